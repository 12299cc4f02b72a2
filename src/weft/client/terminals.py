"""Terminals over HTTP: their records as answers, their screens over a websocket."""

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)

from weft.client.errors import to_error
from weft.client.http import CONNECT, Line, delete, get, post, put
from weft.errors import UnreachableError
from weft.model.ids import PtyID, checked
from weft.model.workspace import Pty, PtyChange, PtyInput
from weft.outlook import Screen

PIECE: Final = 65_536


def pty_at(id: PtyID) -> str:
    return f"/pty/{checked('pty', id)}"


class RemoteTerminals:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def list_ptys(self) -> list[Pty]:
        return await self._line.ask(get("/pty"), list[Pty])

    async def create_pty(self, input: PtyInput) -> Pty:
        return await self._line.ask(post("/pty", input), Pty)

    async def get_pty(self, id: PtyID) -> Pty:
        return await self._line.ask(get(pty_at(id)), Pty)

    async def update_pty(self, id: PtyID, change: PtyChange) -> Pty:
        return await self._line.ask(put(pty_at(id), change), Pty)

    async def remove_pty(self, id: PtyID) -> None:
        await self._line.ask(delete(pty_at(id)), bool)

    @asynccontextmanager
    async def open_screen(self, id: PtyID) -> AsyncIterator[Screen]:
        await self.get_pty(id)
        screen = await open_socket(self._line, f"{pty_at(id)}/connect")
        try:
            yield screen
        finally:
            await screen.close()


async def open_socket(line: Line, path: str) -> "Socket":
    """A websocket to the server, once it has agreed to one."""
    at = urlsplit(line.url)
    secure, port = at.scheme == "https", at.port or (443 if at.scheme == "https" else 80)
    try:
        async with asyncio.timeout(CONNECT):
            reader, writer = await asyncio.open_connection(
                at.hostname, port, ssl=ssl.create_default_context() if secure else None
            )
    except (OSError, TimeoutError) as error:
        raise UnreachableError(f"{line.url}: {str(error) or 'no answer'}") from error
    socket = Socket(line.url, reader, writer)
    try:
        await socket.shake_hands(at.netloc, at.path + path, _headers(line))
    except BaseException:
        writer.close()
        raise
    return socket


def _headers(line: Line) -> list[tuple[bytes, bytes]]:
    directory = line.client.headers.get("x-opencode-directory")
    given = [] if directory is None else [(b"x-opencode-directory", directory.encode())]
    if line.login is not None:
        given.append((b"authorization", b"Basic " + b64encode(":".join(line.login).encode())))
    return given


class Socket:
    """A terminal's screen at the other end of a websocket."""

    def __init__(self, url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._url = url
        self._reader = reader
        self._writer = writer
        self._ws = WSConnection(ConnectionType.CLIENT)
        self._ended = False

    async def shake_hands(self, host: str, path: str, headers: list[tuple[bytes, bytes]]) -> None:
        self._writer.write(self._ws.send(Request(host=host, target=path, extra_headers=headers)))
        async for event in self._events():
            match event:
                case AcceptConnection():
                    return
                case RejectConnection(status_code=status):
                    raise to_error(status, b"", path)
                case _:
                    break
        raise UnreachableError(f"{self._url} does not open a socket")

    async def read(self) -> bytes:
        async for event in self._events():
            match event:
                case TextMessage(data=text):
                    return text.encode(errors="replace")
                case BytesMessage(data=data):
                    return bytes(data)
                case Ping():
                    self._writer.write(self._ws.send(event.response()))
                case CloseConnection():
                    self._writer.write(self._ws.send(event.response()))
                    break
                case _:
                    continue
        self._ended = True
        return b""

    async def write(self, typed: bytes) -> None:
        self._writer.write(self._ws.send(TextMessage(data=typed.decode(errors="replace"))))
        await self._writer.drain()

    async def close(self) -> None:
        if not self._ended:
            self._writer.write(self._ws.send(CloseConnection(code=1000)))
        self._writer.close()

    async def _events(self) -> AsyncIterator[Event]:
        """What the other end says, one after the other; none once it is over."""
        while not self._ended:
            for event in self._ws.events():
                yield event
            data = await self._reader.read(PIECE)
            if not data:
                return
            self._ws.receive_data(data)
