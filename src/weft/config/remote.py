"""Fetch documents from the network and keep copies: instructions, and the configuration that organisations publish."""

import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, TypeVar

from msgspec import Struct

from weft.config.jsonc import JsoncDocument
from weft.config.layer import ConfigLayer, ConfigOrigin, ConfigProblems, make_layer, read_text
from weft.config.substitution import make_resolver
from weft.errors import ConfigError, WeftError
from weft.host.files import make_directory, read_bytes, write_atomic
from weft.host.now import now
from weft.host.web import WebError

MAX_COPY_AGE_MS: Final = 10 * 60 * 1000
MAX_COPY_BYTES: Final = 1 << 20
BROKEN_KEYS_HINT: Final = "correct it; or move it away and store your keys again: weft auth login"

T = TypeVar("T")

# Returns the body of a URL. Raises `OSError` or `WeftError` unless it answers with success.
Fetch = Callable[[str], bytes]


class OrganisationLogin(Struct, frozen=True):
    """A login at an organisation. Its configuration may use the variable `key`, which holds `token`."""

    url: str
    key: str
    token: str


def list_organisations(auth_file: str, problems: ConfigProblems) -> list[OrganisationLogin]:
    """Return the organisations that the user is logged in to, from the credentials file."""
    try:
        text = read_text(auth_file)
    except ConfigError as error:
        problems.errors.append(error)
        return []
    try:
        entries = json.loads(text) if text and text.strip() else {}
    except (ValueError, RecursionError):
        # Never quote the parser: this file holds secrets.
        problems.errors.append(ConfigError(auth_file, "not JSON", hint=BROKEN_KEYS_HINT))
        return []
    items = entries.items() if isinstance(entries, dict) else ()
    return [login for url, entry in items if (login := _to_organisation(url, entry)) is not None]


def _to_organisation(url: str, entry: Any) -> OrganisationLogin | None:
    match entry:
        case {"type": "wellknown", "key": str(key), "token": str(token)}:
            return OrganisationLogin(url.rstrip("/"), key, token)
        case _:
            return None


class RemoteDocuments:
    """Documents from the network, each with a copy on disk for when there is no network.

    A copy younger than `MAX_COPY_AGE_MS` is used without fetching. Without `fetch`, only copies are read.
    """

    def __init__(self, cache: str, fetch: Fetch | None) -> None:
        self._directory = os.path.join(cache, "weft", "remote")
        self._fetch = fetch
        self.stale: list[ConfigError] = []

    def get(self, url: str, parse: Callable[[bytes], T]) -> T:
        """Fetch and parse a document, or parse its copy if it cannot be fetched. Raise `ConfigError` if there is neither.

        A document that `parse` refuses is not copied.
        """
        path = os.path.join(self._directory, sha256(url.encode()).hexdigest())
        copy = _read_copy(path)
        if copy is not None and (self._fetch is None or _is_fresh(path)):
            return parse(copy)
        if self._fetch is None:
            raise ConfigError(url, "has not been fetched yet")
        try:
            body = self._fetch(url)
            value = parse(body)
        except (OSError, WeftError) as error:
            # Other messages may quote the URL, and a key in it.
            message = str(error) if isinstance(error, WebError) else type(error).__name__
            reason = error.reason if isinstance(error, ConfigError) else f"could not be fetched ({message})"
            if copy is None:
                raise ConfigError(url, reason) from None
            self.stale.append(ConfigError(url, f"{reason}; using an earlier copy"))
            return parse(copy)
        _write_copy(path, body)
        return value


def _read_copy(path: str) -> bytes | None:
    try:
        return read_bytes(path, limit=MAX_COPY_BYTES)
    except OSError:
        return None


def _is_fresh(path: str) -> bool:
    """Return True if a copy is recent. A time in the future does not count: the clock was wrong."""
    try:
        return 0 <= now() - os.stat(path).st_mtime_ns // 1_000_000 < MAX_COPY_AGE_MS
    except OSError:
        return False


def _write_copy(path: str, body: bytes) -> None:
    # If the copy cannot be written, weft works without it.
    with suppress(OSError):
        make_directory(os.path.dirname(path))
        write_atomic(path, body, temp=f"{path}.{os.getpid()}.{threading.get_ident()}")


def fetch_layer(
    login: OrganisationLogin, remote: RemoteDocuments, env: Mapping[str, str], problems: ConfigProblems
) -> ConfigLayer | None:
    """Return the layer that an organisation publishes, or None if it cannot be had.

    OpenCode does not start if an organisation's server fails or publishes an error. The user cannot fix that, so here it
    is a warning.
    """
    url = f"{login.url}/.well-known/opencode"
    origin, layer_problems = ConfigOrigin(kind="well-known", path=url, own=True), ConfigProblems()
    layer: ConfigLayer | None = None
    try:
        if not is_address(url):
            raise ConfigError(url, "is not an http or https address")
        text = remote.get(url, lambda body: _extract_config(url, body))
        document = JsoncDocument(url, text, make_resolver(env, directory=None, home=""))
        layer_problems.add(origin, None, document.findings)
        layer = make_layer(origin, document.value, None, layer_problems)
    except ConfigError as error:
        layer_problems.errors.append(error)
    problems.warnings += [*layer_problems.errors, *layer_problems.warnings]
    return layer


def is_address(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _extract_config(url: str, body: bytes) -> str:
    try:
        document = json.loads(body)
        return json.dumps(document.get("config") or {}) if isinstance(document, dict) else "{}"
    except (ValueError, RecursionError):
        raise ConfigError(url, "the answer is not JSON") from None
