"""Find out where sessions are stored: flag, environment, configuration, or OpenCode's directory."""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from weft.errors import ConfigError, InvalidInputError
from weft.host.paths import Paths

CONFIGS = ("opencode.jsonc", "opencode.json", "config.json")
KEY = ("experimental", "weft", "store")


def store_url(env: Mapping[str, str], paths: Paths, given: str | None = None) -> str:
    """The address of the store. A bare path is one of files. Raise `InvalidInputError` if none can be there."""
    address = given or env.get("WEFT_STORE") or configured(paths)
    if not address:
        return f"file:{_usable(paths.storage)}"
    scheme, colon, rest = address.partition(":")
    if colon and scheme != "file":
        return address
    if colon and not rest:
        raise InvalidInputError("store", f"{address!r} needs a path", hint="use file:<path>")
    return f"file:{_usable(os.path.expanduser(rest if colon else address))}"


def _usable(path: str) -> str:
    """The absolute path, if a store is there or may be made there."""
    path, reason = os.path.abspath(path), ""
    try:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            reason = "is not a directory"
    except FileNotFoundError:
        pass  # it is made when it is needed
    except OSError as error:
        reason = f"cannot be used: {error.strerror}"
    except ValueError:
        reason = "is no path"  # it holds a NUL
    if reason:
        raise InvalidInputError(
            "store",
            f"{path} {reason}",
            hint="point --store at a directory, or at a place where one can be made",
        )
    return path


def storage_root(env: Mapping[str, str], paths: Paths, given: str | None = None) -> str:
    """The directory of a store of files."""
    url = store_url(env, paths, given)
    if not url.startswith("file:"):
        raise InvalidInputError(
            "--store", f"{url!r} is not a store of files", hint="use a directory or file:<path>"
        )
    return url.removeprefix("file:")


def configured(paths: Paths) -> str:
    """What `experimental.weft.store` says in the person's own configuration. A project has no say in it."""
    found = find_own_setting(paths, KEY)
    return found if isinstance(found, str) else ""


def find_own_setting(paths: Paths, key: tuple[str, ...]) -> Any:
    """One of our own settings in the person's own configuration, None if it is not there.

    Reading history must not depend on the rest of the configuration, so this looks for the one key, and parses a file
    only if it can hold it; a file that is broken says nothing here, and is complained of when it is used.
    """
    for name in CONFIGS:
        with suppress(OSError, UnicodeDecodeError):
            path = os.path.join(paths.config, name)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            if '"weft"' in text and (found := _find(path, text, key)) is not None:
                return found
    return None


def _find(path: str, text: str, key: tuple[str, ...]) -> Any:
    from weft.config.jsonc import Document  # noqa: PLC0415  few configurations get here

    try:
        value: Any = Document(path, text).value
    except ConfigError:
        return None
    for each in key:
        value = value.get(each) if isinstance(value, dict) else None
    return value
