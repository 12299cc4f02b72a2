"""Documents from the network: what an organisation publishes at `/.well-known/opencode` for those who logged in to it, and
copies of all that was fetched."""

import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, TypeVar

from msgspec import Struct

from weft.config.jsonc import Document
from weft.config.layer import Layer, Origin, Problems, make_layer, read_text
from weft.config.substitute import resolver
from weft.errors import ConfigError, WeftError
from weft.host.files import make_directory, read_bytes, write_atomic
from weft.host.now import now
from weft.host.web import WebError

FRESH_MS: Final = 10 * 60 * 1000
MOST_BYTES: Final = 1 << 20

T = TypeVar("T")

# Gives the body of a URL that answered with success. Raises `OSError` or `WeftError` for anything else.
Fetch = Callable[[str], bytes]


class Login(Struct, frozen=True):
    """`token` is what the variable `key` is to hold for what this organisation configures."""

    url: str
    key: str
    token: str


def list_logins(auth_file: str, problems: Problems) -> list[Login]:
    """The organisations logged in to, as the credentials file lists them."""
    try:
        text = read_text(auth_file)
    except ConfigError as error:
        problems.errors.append(error)
        return []
    try:
        entries = json.loads(text) if text and text.strip() else {}
    except (ValueError, RecursionError):
        # Never with the parser's words: this file is all secrets.
        problems.errors.append(ConfigError(auth_file, "not JSON"))
        return []
    found = entries.items() if isinstance(entries, dict) else ()
    return [login for url, entry in found if (login := _to_login(url, entry)) is not None]


def _to_login(url: str, entry: Any) -> Login | None:
    match entry:
        case {"type": "wellknown", "key": str(key), "token": str(token)}:
            return Login(url.rstrip("/"), key, token)
        case _:
            return None


class Remote:
    """Documents from the network, each with a copy on disk for when there is no network.

    A copy that is younger than `FRESH_MS` is taken as it is. Without `fetch` nothing is fetched, and only copies are read.
    """

    def __init__(self, cache: str, fetch: Fetch | None) -> None:
        self._directory = os.path.join(cache, "weft", "remote")
        self._fetch = fetch
        self.stale: list[ConfigError] = []

    def get(self, url: str, read: Callable[[bytes], T]) -> T:
        """Return what `read` makes of a document: of the one that is there, else of the copy. Raise `ConfigError` if there
        is neither. What `read` refuses is not copied."""
        path = os.path.join(self._directory, sha256(url.encode()).hexdigest())
        kept = _read_copy(path)
        if kept is not None and (self._fetch is None or _is_fresh(path)):
            return read(kept)
        if self._fetch is None:
            raise ConfigError(url, "not fetched yet")
        try:
            body = self._fetch(url)
            value = read(body)
        except (OSError, WeftError) as error:
            # Other errors may quote the address, and a key in it.
            told = str(error) if isinstance(error, WebError) else type(error).__name__
            reason = error.reason if isinstance(error, ConfigError) else f"could not be fetched ({told})"
            if kept is None:
                raise ConfigError(url, reason) from None
            self.stale.append(ConfigError(url, f"{reason}; the copy of an earlier time is used"))
            return read(kept)
        _keep_copy(path, body)
        return value


def _read_copy(path: str) -> bytes | None:
    try:
        return read_bytes(path, limit=MOST_BYTES)
    except OSError:
        return None


def _is_fresh(path: str) -> bool:
    """Return whether a copy is young. One from the future is not: the clock was wrong."""
    try:
        return 0 <= now() - os.stat(path).st_mtime_ns // 1_000_000 < FRESH_MS
    except OSError:
        return False


def _keep_copy(path: str, body: bytes) -> None:
    # On a disk that takes nothing weft starts all the same, without a copy.
    with suppress(OSError):
        make_directory(os.path.dirname(path))
        write_atomic(path, body, temp=f"{path}.{os.getpid()}.{threading.get_ident()}")


def fetch_layer(login: Login, remote: Remote, env: Mapping[str, str], problems: Problems) -> Layer | None:
    """Return what an organisation configures, or None. OpenCode does not start if one does not answer, or publishes a
    mistake. Nobody here can mend that, so it is a warning."""
    url = f"{login.url}/.well-known/opencode"
    origin, own = Origin(kind="well-known", path=url, own=True), Problems()
    layer: Layer | None = None
    try:
        if not is_address(url):
            raise ConfigError(url, "is not an http or https address")
        text = remote.get(url, lambda body: _config_of(url, body))
        document = Document(url, text, resolver(env, directory=None, home=""))
        own.note(origin, None, document.findings)
        layer = make_layer(origin, document.value, None, own)
    except ConfigError as error:
        own.errors.append(error)
    problems.warnings += [*own.errors, *own.warnings]
    return layer


def is_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _config_of(url: str, body: bytes) -> str:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise ConfigError(url, "the answer is not JSON") from None
    return json.dumps(answer.get("config") or {}) if isinstance(answer, dict) else "{}"
