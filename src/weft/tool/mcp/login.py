"""Logins at MCP servers: stored for the owner alone, and the page a browser comes back to."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from weft.errors import ConfigError, DocumentError, McpError
from weft.host.files import locked, read_bytes, write_atomic
from weft.model.wire import encode_pretty, parse
from weft.tool.mcp.entry import legible

MAX_BYTES: Final = 4 << 20


class Book:
    """What is stored for a server counts only for the address it was stored for."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find(self, name: str, url: str) -> dict[str, Any]:
        """The entry of a server at this address; empty if there is none, or it is another address's."""
        entry = self._read().get(name)
        return entry if isinstance(entry, dict) and entry.get("serverUrl") == url else {}

    def put(self, name: str, url: str, change: dict[str, Any]) -> None:
        """Add to an entry. What it was for another address goes."""
        with locked(f"{self._path}.lock"):
            entries = self._read()
            entry = entries.get(name)
            kept = entry if isinstance(entry, dict) and entry.get("serverUrl") == url else {}
            self._write({**entries, name: {**kept, **change, "serverUrl": url}})

    def remove(self, name: str) -> bool:
        """Forget a server; says whether there was anything."""
        if not os.path.exists(self._path):
            return False
        with locked(f"{self._path}.lock"):
            entries = self._read()
            if entries.pop(name, None) is None:
                return False
            self._write(entries)
            return True

    def list_names(self) -> list[str]:
        """The servers there is a login for."""
        return [
            name for name, entry in self._read().items() if isinstance(entry, dict) and entry.get("tokens")
        ]

    def _read(self) -> dict[str, Any]:
        try:
            raw = read_bytes(self._path, limit=MAX_BYTES)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(self._path, f"cannot be read ({error.strerror})") from None
        try:
            entries = parse(raw, where=self._path) if raw.strip() else {}
        except DocumentError:
            # Never with the parser's words: this file is all secrets.
            raise ConfigError(self._path, "not JSON") from None
        if not isinstance(entries, dict):
            raise ConfigError(self._path, "not an object of logins by server")
        return entries

    def _write(self, entries: dict[str, Any]) -> None:
        real = os.path.realpath(self._path)  # some keep the file elsewhere and a link to it here
        write_atomic(real, encode_pretty(entries), temp=f"{real}.{os.getpid()}.new", flush=True)


LONGEST_REASON: Final = 300


class PendingLogin:
    """A `Login` that a person answers: by the page they come back to, or with a code they hand over.

    Once somebody has `listened` for the browser it is known what `trouble` they had with that, if any.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.shown: asyncio.Future[str] = loop.create_future()
        self.listened = asyncio.Event()
        self.trouble = ""
        self._brought: asyncio.Future[tuple[str, str | None, str | None]] = loop.create_future()

    async def show(self, url: str) -> None:
        if not self.shown.done():
            self.shown.set_result(url)

    async def bring(self) -> tuple[str, str | None, str | None]:
        return await self._brought

    @property
    def state(self) -> str:
        """The word it was sent out with: whoever does not know it has nothing to bring."""
        if not self.shown.done() or self.shown.cancelled():
            return ""
        return next(iter(parse_qs(urlsplit(self.shown.result()).query).get("state", [])), "")

    def is_for(self, state: str) -> bool:
        return bool(self.state) and secrets.compare_digest(state.encode(), self.state.encode())

    def take(self, code: str, issuer: str | None = None) -> None:
        if not self._brought.done():
            self._brought.set_result((code, self.state, issuer))

    def refuse(self, reason: str) -> None:
        if not self._brought.done():
            self._brought.set_exception(McpError(f"the login was refused: {legible(reason, LONGEST_REASON)}"))


HOST: Final = "127.0.0.1"
PORT: Final = 19876
PATH: Final = "/mcp/oauth/callback"
LONGEST_HEAD: Final = 16_384
SECONDS: Final = 10.0
MOST: Final = 16

DONE: Final = "You are logged in. This page can be closed."
REFUSED: Final = "The login failed. The terminal says why."
STRANGE: Final = "This is not an answer to a login that is under way here."


def redirect_uri(port: int = PORT) -> str:
    return f"http://{HOST}:{port}{PATH}"


@asynccontextmanager
async def open_callback(login: PendingLogin, port: int = PORT) -> AsyncIterator[None]:
    """Take what a browser brings for this login. Raises `OSError` if the port is somebody else's."""
    at_once = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal at_once
        at_once += 1
        try:
            if at_once <= MOST:
                async with asyncio.timeout(SECONDS):
                    await _answer(login, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever it was did not want an answer; a timeout is an OSError, too
        finally:
            at_once -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, HOST, port, limit=LONGEST_HEAD)
    try:
        yield
    finally:
        server.close()


async def _answer(login: PendingLogin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    method, _, rest = head.partition(" ")
    status, words = (
        _judge(login, rest.partition(" ")[0]) if method == "GET" else ("405 Method Not Allowed", "")
    )
    body = f"<!doctype html><meta charset=utf-8><title>weft</title><p>{words}</p>".encode()
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()


def _judge(login: PendingLogin, target: str) -> tuple[str, str]:
    """What is brought counts only with the word that the login was sent out with."""
    try:
        found = urlsplit(target)
    except ValueError:
        return "400 Bad Request", STRANGE
    if found.path != PATH:
        return "404 Not Found", STRANGE
    asked = {name: values[0] for name, values in parse_qs(found.query).items()}
    if not login.is_for(asked.get("state", "")):
        return "400 Bad Request", STRANGE
    if "code" not in asked:
        login.refuse(asked.get("error_description") or asked.get("error") or "no code came back")
        return "400 Bad Request", REFUSED
    login.take(asked["code"], asked.get("iss"))
    return "200 OK", DONE
