"""Determine where sessions are stored: flag, environment variable, configuration, or OpenCode's directory."""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from weft.errors import ConfigError, InvalidInputError
from weft.host.paths import Paths, parse_store_path

CONFIG_NAMES = ("opencode.jsonc", "opencode.json", "config.json")
STORE_KEY = ("experimental", "weft", "store")


SCHEMES = ("file", "sqlite", "memory", "postgres", "postgresql")


def resolve_store_url(env: Mapping[str, str], paths: Paths, option: str | None = None) -> str:
    """Return the URL of the store. `option` is the flag `--store`; a plain path means a file store. Paths are made absolute.

    Raise `InvalidInputError` if the store cannot be used.
    """
    address = option or env.get("WEFT_STORE") or get_configured_store(paths)
    if not address:
        _check_usable(paths.storage)
        return get_default_store_url(paths)
    scheme, colon, _ = address.partition(":")
    if not colon or os.sep in scheme:
        return f"file:{_check_usable(os.path.expanduser(_check_no_scheme(address)))}"
    if scheme == "sqlite":
        return f"sqlite:{_check_database(address)}"
    if scheme == "file":
        return f"file:{_check_usable(parse_store_path(address))}"
    return address


def get_default_store_url(paths: Paths) -> str:
    """Return the URL of OpenCode's own tree."""
    return f"file:{os.path.abspath(paths.storage)}"


def _check_no_scheme(address: str) -> str:
    """Return the path. Raise `InvalidInputError` if it is the name of a kind of store, and no such directory exists."""
    if address in SCHEMES and not os.path.lexists(address):
        raise InvalidInputError(
            "store", f"there is no directory {address!r}", hint=f"did you mean {address}: ?"
        )
    return address


def _check_usable(path: str) -> str:
    """Return the absolute path. Raise `InvalidInputError` if a store cannot be there."""
    path, reason = _make_absolute(path), ""
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            reason = "is not a directory"
    except FileNotFoundError:
        pass  # it is created when it is needed
    except OSError as error:
        reason = f"cannot be used: {error.strerror}"
    except ValueError:
        reason = "is not a valid path"  # it contains a NUL
    if reason:
        raise InvalidInputError(
            "store",
            f"{path} {reason}",
            hint="set --store to a directory that exists or can be created",
        )
    return path


def _check_database(address: str) -> str:
    """Return the absolute path in `sqlite:<path>`. Raise `InvalidInputError` if a database cannot be there."""
    path = parse_store_path(address)
    if path == ":memory:":
        raise InvalidInputError("store", "'sqlite::memory:' is not a file", hint="use memory:")
    if os.path.isdir(path):
        raise InvalidInputError("store", f"{address!r} is a directory", hint="use sqlite:<path of a file>")
    return _make_absolute(path)


def _make_absolute(path: str) -> str:
    """Return an absolute path that begins with one slash: after `file:`, two would make it percent-encoded."""
    return "/" + os.path.abspath(path).lstrip("/")


def get_configured_store(paths: Paths) -> str:
    """Return `experimental.weft.store` of the user's own configuration, or "". Projects cannot set it."""
    url = find_own_setting(paths, STORE_KEY)
    return url if isinstance(url, str) else ""


def find_own_setting(paths: Paths, key: tuple[str, ...]) -> Any:
    """Return one of our settings from the user's own configuration, or None.

    Reading history must not depend on the rest of the configuration. So this parses a file only if it can hold the key,
    and ignores broken files: they are reported when the configuration is loaded.
    """
    for name in CONFIG_NAMES:
        with suppress(OSError, UnicodeDecodeError):
            path = os.path.join(paths.config, name)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            if '"weft"' in text and (value := _find_value(path, text, key)) is not None:
                return value
    return None


def _find_value(path: str, text: str, key: tuple[str, ...]) -> Any:
    from weft.config.jsonc import JsoncDocument  # noqa: PLC0415  rarely needed

    try:
        value: Any = JsoncDocument(path, text).value
    except ConfigError:
        return None
    for name in key:
        value = value.get(name) if isinstance(value, dict) else None
    return value
