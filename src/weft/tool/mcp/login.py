"""Logins at MCP servers: the file that stores them, and the page that a browser returns to."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from weft.errors import ConfigError, DocumentError, McpError
from weft.host.files import hold_lock, read_bytes, write_atomic
from weft.model.wire import encode_pretty, parse
from weft.tool.mcp.contract import CALLBACK_PORT
from weft.tool.mcp.entry import to_single_line

MAX_FILE_BYTES: Final = 4 << 20


class McpLoginStore:
    """Stores logins in a file for its owner. A login is only valid for the URL it was stored for."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find(self, name: str, url: str) -> dict[str, Any]:
        """Return the entry of a server, or {} if there is none for this URL."""
        entry = self._read().get(name)
        return entry if isinstance(entry, dict) and entry.get("serverUrl") == url else {}

    def put(self, name: str, url: str, change: dict[str, Any]) -> None:
        """Add to the entry of a server. An entry for another URL is replaced."""
        with hold_lock(f"{self._path}.lock"):
            entries = self._read()
            entry = entries.get(name)
            stored = entry if isinstance(entry, dict) and entry.get("serverUrl") == url else {}
            self._write({**entries, name: {**stored, **change, "serverUrl": url}})

    def remove(self, name: str) -> bool:
        """Remove the entry of a server. Return True if there was one."""
        if not os.path.exists(self._path):
            return False
        with hold_lock(f"{self._path}.lock"):
            entries = self._read()
            if entries.pop(name, None) is None:
                return False
            self._write(entries)
            return True

    def list_names(self) -> list[str]:
        """Return the names of the servers with a login."""
        return [
            name for name, entry in self._read().items() if isinstance(entry, dict) and entry.get("tokens")
        ]

    def _read(self) -> dict[str, Any]:
        try:
            raw = read_bytes(self._path, limit=MAX_FILE_BYTES)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(self._path, f"cannot be read ({error.strerror})") from None
        try:
            entries = parse(raw, where=self._path) if raw.strip() else {}
        except DocumentError:
            # Do not show the parser's message, which may quote a secret.
            raise ConfigError(self._path, "not JSON") from None
        if not isinstance(entries, dict):
            raise ConfigError(self._path, "not an object that maps servers to logins")
        return entries

    def _write(self, entries: dict[str, Any]) -> None:
        real = os.path.realpath(self._path)  # the file may be a link to another place
        write_atomic(real, encode_pretty(entries), temp=f"{real}.{os.getpid()}.new", flush=True)


MAX_REASON_LENGTH: Final = 300


class PendingLogin:
    """A login that a person completes, through the page they return to or with a code.

    `url` is the login page. `listening` is set once we listen for the browser, or have failed to; then `listen_error`
    says why.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.url: asyncio.Future[str] = loop.create_future()
        self.listening = asyncio.Event()
        self.listen_error = ""
        self._answer: asyncio.Future[tuple[str, str | None, str | None]] = loop.create_future()

    async def show(self, url: str) -> None:
        if not self.url.done():
            self.url.set_result(url)

    async def wait_for_code(self) -> tuple[str, str | None, str | None]:
        return await self._answer

    @property
    def state(self) -> str:
        """Return the state of the login request. An answer without it is not accepted."""
        if not self.url.done() or self.url.cancelled():
            return ""
        return next(iter(parse_qs(urlsplit(self.url.result()).query).get("state", [])), "")

    def is_for(self, state: str) -> bool:
        """Return True if an answer with this state belongs to this login."""
        return bool(self.state) and secrets.compare_digest(state.encode(), self.state.encode())

    def accept_code(self, code: str, issuer: str | None = None) -> None:
        """Accept the code that completes the login."""
        if not self._answer.done():
            self._answer.set_result((code, self.state, issuer))

    def refuse(self, reason: str) -> None:
        """Let the login fail for this reason."""
        if not self._answer.done():
            self._answer.set_exception(
                McpError(f"the login was refused: {to_single_line(reason, MAX_REASON_LENGTH)}")
            )


CALLBACK_HOST: Final = "127.0.0.1"
CALLBACK_PATH: Final = "/mcp/oauth/callback"
MAX_HEAD_BYTES: Final = 16_384
REQUEST_TIMEOUT_SECONDS: Final = 10.0
MAX_CONCURRENT_REQUESTS: Final = 16

DONE_TEXT: Final = "You are logged in. This page can be closed."
REFUSED_TEXT: Final = "The login failed. The terminal says why."
UNKNOWN_LOGIN_TEXT: Final = "This does not belong to a login in progress."


def make_redirect_uri(port: int = CALLBACK_PORT) -> str:
    """Return the URL that a browser returns to."""
    return f"http://{CALLBACK_HOST}:{port}{CALLBACK_PATH}"


@asynccontextmanager
async def open_callback(login: PendingLogin, port: int = CALLBACK_PORT) -> AsyncIterator[None]:
    """Serve the page that a browser returns to. Raise `OSError` if the port is taken."""
    active_requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal active_requests
        active_requests += 1
        try:
            if active_requests <= MAX_CONCURRENT_REQUESTS:
                async with asyncio.timeout(REQUEST_TIMEOUT_SECONDS):
                    await _answer_request(login, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the browser closed the connection; a timeout is an OSError, too
        finally:
            active_requests -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, CALLBACK_HOST, port, limit=MAX_HEAD_BYTES)
    try:
        yield
    finally:
        server.close()


async def _answer_request(
    login: PendingLogin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, _, rest = head.partition(" ")
    status, text = (
        _handle_callback(login, rest.partition(" ")[0]) if method == "GET" else ("405 Method Not Allowed", "")
    )
    body = f"<!doctype html><meta charset=utf-8><title>weft</title><p>{text}</p>".encode()
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()


def _handle_callback(login: PendingLogin, target: str) -> tuple[str, str]:
    """Pass the browser's answer to the login if its state is correct. Return the status and text of the page."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return "400 Bad Request", UNKNOWN_LOGIN_TEXT
    if parts.path != CALLBACK_PATH:
        return "404 Not Found", UNKNOWN_LOGIN_TEXT
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    if not login.is_for(query.get("state", "")):
        return "400 Bad Request", UNKNOWN_LOGIN_TEXT
    if "code" not in query:
        login.refuse(query.get("error_description") or query.get("error") or "no code was returned")
        return "400 Bad Request", REFUSED_TEXT
    login.accept_code(query["code"], query.get("iss"))
    return "200 OK", DONE_TEXT
