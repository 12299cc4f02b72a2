"""Keys of providers: those stored in `auth.json`, in OpenCode's own format, and those in the environment."""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from weft.errors import ConfigError, DocumentError
from weft.host.files import locked, read_bytes, write_atomic
from weft.model.provider import AnyAuth
from weft.model.wire import encode_pretty, parse

MAX_BYTES: Final = 4 * 1024 * 1024
# A provider lists the variables it reads. Some hold its key; the others say where it is, or for whom.
_HOLDS_KEY: Final = re.compile(r"(KEY|TOKEN|PAT|SECRET)$")

COPILOT: Final = "github-copilot"

Source = Literal["config", "stored", "environment", "public"]


class Key(Struct, frozen=True, kw_only=True):
    """A key and where it comes from: for `environment`, `variable` says from which. Showing one never shows `secret`."""

    secret: str
    source: Source
    variable: str = ""

    def __repr__(self) -> str:
        return f"Key(source={self.source!r}, variable={self.variable!r})"


class Login(Struct, frozen=True, kw_only=True):
    """A stored credential. `type` is `api`, `oauth` or `wellknown`; only the first is a key as it stands.

    `url` is where it holds, for a company's own server.
    """

    provider: str
    type: str
    secret: str = ""
    url: str = ""

    def __repr__(self) -> str:
        return f"Login(provider={self.provider!r}, type={self.type!r})"


def key_variables(env: Iterable[str]) -> list[str]:
    """Those of a provider's variables that hold a key, any of which will do."""
    names = list(env)
    return [name for name in names if _HOLDS_KEY.search(name)] or names[:1]


def key_from_environment(names: Iterable[str], env: Mapping[str, str]) -> Key | None:
    found = next((name for name in key_variables(names) if env.get(name, "").strip()), None)
    return Key(secret=env[found].strip(), source="environment", variable=found) if found else None


def list_logins(path: str) -> dict[str, Login]:
    """What is stored, by provider. Raises `ConfigError` for a file that cannot be read."""
    return {id: _to_login(id, entry) for id, entry in _read(path).items() if isinstance(entry, dict)}


def find_auth(path: str, provider: str) -> AnyAuth | None:
    """What is stored for a provider, whole; None if there is nothing, or nothing one could understand."""
    try:
        auth: AnyAuth = msgspec.convert(_read(path).get(provider), AnyAuth)
    except msgspec.ValidationError:
        return None
    return auth


def store_key(path: str, provider: str, key: str) -> None:
    """Keep a key, for the owner's eyes alone. All that is stored beside it stays as it was."""
    store_login(path, provider, {"type": "api", "key": key})


def store_login(path: str, provider: str, entry: Mapping[str, Any]) -> None:
    """The same for a credential of any kind."""
    with locked(f"{path}.lock"):
        _write(path, {**_read(path), provider: dict(entry)})


def remove_login(path: str, provider: str) -> bool:
    """Forget what is stored for a provider; says whether there was anything."""
    with locked(f"{path}.lock"):
        entries = _read(path)
        if entries.pop(provider, None) is None:
            return False
        _write(path, entries)
        return True


def _to_login(id: str, entry: dict[str, Any]) -> Login:
    type, key = entry.get("type"), entry.get("key")
    if type == "api" and isinstance(key, str) and key:
        return Login(provider=id, type="api", secret=key)
    if type == "oauth" and id.startswith(COPILOT):
        return _copilot(id, entry)
    return Login(provider=id, type=type if isinstance(type, str) and type != "api" else "unusable")


def _copilot(id: str, entry: dict[str, Any]) -> Login:
    """GitHub's token does not expire, and Copilot takes it as it is; a company's server has an address of its own."""
    token, server = entry.get("refresh"), entry.get("enterpriseUrl")
    host = urlsplit(server if "://" in server else f"//{server}").hostname if isinstance(server, str) else ""
    return Login(
        provider=id,
        type="oauth",
        secret=token if isinstance(token, str) else "",
        url=f"https://copilot-api.{host}" if host else "",
    )


def _read(path: str) -> dict[str, Any]:
    try:
        raw = read_bytes(path, limit=MAX_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(path, f"cannot be read ({error.strerror})") from None
    try:
        entries = parse(raw, where=path) if raw.strip() else {}
    except DocumentError:
        # Never with the parser's words: this file is all secrets.
        raise ConfigError(path, "not JSON") from None
    if not isinstance(entries, dict):
        raise ConfigError(path, "not an object of credentials by provider")
    return entries


def _write(path: str, entries: dict[str, Any]) -> None:
    real = os.path.realpath(path)  # some keep the file elsewhere and a link to it here
    write_atomic(real, encode_pretty(entries), temp=f"{real}.{os.getpid()}.new", flush=True)
