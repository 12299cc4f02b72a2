"""Keys of providers: stored in `auth.json` in OpenCode's format, or set in the environment."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from weft.errors import ConfigError, DocumentError
from weft.host.files import hold_lock, read_bytes, write_atomic
from weft.model.provider import AnyAuth
from weft.model.wire import encode_pretty, from_plain, parse

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
# A provider lists the variables that it reads. Only some of them hold a key.
_KEY_VARIABLE: Final = r"(KEY|TOKEN|PAT|SECRET)$"

BROKEN_HINT: Final = "correct it; or move it away and store your keys again: weft auth login"

COPILOT_ID: Final = "github-copilot"

KeySource = Literal["config", "stored", "environment", "public"]


class ProviderKey(Struct, frozen=True, kw_only=True):
    """A key and its source. For `environment`, `variable` is its name. `repr` never shows `secret`."""

    secret: str
    source: KeySource
    variable: str = ""

    def __repr__(self) -> str:
        return f"ProviderKey(source={self.source!r}, variable={self.variable!r})"


class StoredLogin(Struct, frozen=True, kw_only=True):
    """A stored credential. `type` is `api`, `oauth` or `wellknown`; only `api` holds a key as it is.

    `url` is the address of a company's own server.
    """

    provider: str
    type: str
    secret: str = ""
    url: str = ""

    def __repr__(self) -> str:
        return f"StoredLogin(provider={self.provider!r}, type={self.type!r})"


def list_key_variables(env: Iterable[str]) -> list[str]:
    """Return those of a provider's variables that hold a key; any of them is enough."""
    names = list(env)
    return [name for name in names if re.search(_KEY_VARIABLE, name)] or names[:1]


def find_environment_key(names: Iterable[str], env: Mapping[str, str]) -> ProviderKey | None:
    variable = next((name for name in list_key_variables(names) if env.get(name, "").strip()), None)
    return (
        ProviderKey(secret=env[variable].strip(), source="environment", variable=variable)
        if variable
        else None
    )


def list_logins(path: str) -> dict[str, StoredLogin]:
    """Return the stored logins by provider. Raise `ConfigError` if the file cannot be read."""
    return {id: _to_login(id, entry) for id, entry in _read_entries(path).items() if isinstance(entry, dict)}


def find_auth(path: str, provider: str) -> AnyAuth | None:
    """Return the whole stored credential of a provider; None if there is none, or if its format is unknown."""
    try:
        auth: AnyAuth = from_plain(_read_entries(path).get(provider), AnyAuth)
    except DocumentError:
        return None
    return auth


def store_key(path: str, provider: str, key: str) -> None:
    """Store a key. Only the owner can read the file, and its other entries stay unchanged."""
    store_login(path, provider, {"type": "api", "key": key})


def store_login(path: str, provider: str, entry: Mapping[str, Any]) -> None:
    """Store a credential of any kind. Only the owner can read the file, and its other entries stay unchanged.

    Raise `ConfigError` if the file cannot be read or written.
    """
    with _changing(path):
        _write_entries(path, {**_read_entries(path), provider: dict(entry)})


def remove_login(path: str, provider: str) -> bool:
    """Remove the stored credential of a provider. Return False if there was none.

    Raise `ConfigError` if the file cannot be read or written.
    """
    with _changing(path):
        entries = _read_entries(path)
        if entries.pop(provider, None) is None:
            return False
        _write_entries(path, entries)
        return True


@contextmanager
def _changing(path: str) -> Iterator[None]:
    """Hold the lock of the file. Raise `ConfigError` if it or the file cannot be written."""
    try:
        with hold_lock(f"{path}.lock"):
            yield
    except OSError as error:
        hint = "make its directory writable, or free some space on its disk"
        raise ConfigError(path, f"cannot be written ({error.strerror})", hint=hint) from None


def _to_login(id: str, entry: dict[str, Any]) -> StoredLogin:
    type, key = entry.get("type"), entry.get("key")
    if type == "api" and isinstance(key, str) and key:
        return StoredLogin(provider=id, type="api", secret=key)
    if type == "oauth" and id.startswith(COPILOT_ID):
        return _to_copilot_login(id, entry)
    return StoredLogin(provider=id, type=type if isinstance(type, str) and type != "api" else "unusable")


def _to_copilot_login(id: str, entry: dict[str, Any]) -> StoredLogin:
    """Convert a Copilot login. GitHub's token does not expire; a company's server has its own address."""
    token, server = entry.get("refresh"), entry.get("enterpriseUrl")
    return StoredLogin(
        provider=id,
        type="oauth",
        secret=token if isinstance(token, str) else "",
        url=f"https://copilot-api.{host}" if isinstance(server, str) and (host := _find_host(server)) else "",
    )


def _find_host(server: str) -> str | None:
    """Return the host of an address, with or without its scheme; None if it is not an address."""
    try:
        return urlsplit(server if "://" in server else f"//{server}").hostname
    except ValueError:
        return None


def _read_entries(path: str) -> dict[str, Any]:
    try:
        raw = read_bytes(path, limit=MAX_FILE_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(path, f"cannot be read ({error.strerror})") from None
    try:
        entries = parse(raw, where=path) if raw.strip() else {}
    except DocumentError:
        # Never quote the parser: this file holds secrets.
        raise ConfigError(path, "not JSON", hint=BROKEN_HINT) from None
    if not isinstance(entries, dict):
        reason = "must be an object that maps providers to credentials"
        raise ConfigError(path, reason, hint=BROKEN_HINT)
    return entries


def _write_entries(path: str, entries: dict[str, Any]) -> None:
    real = os.path.realpath(path)  # the file may be a link
    write_atomic(real, encode_pretty(entries), temp=f"{real}.{os.getpid()}.new", flush=True)
