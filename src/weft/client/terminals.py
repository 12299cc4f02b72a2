"""Terminals over HTTP, with their screens over a websocket."""

import asyncio
import codecs
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
from wsproto.utilities import RemoteProtocolError

from weft.api.workspace import Screen
from weft.client.http import (
    CONNECT_SECONDS,
    NO_SERVER_HINT,
    ServerConnection,
    delete,
    get,
    post,
    put,
    to_error,
)
from weft.errors import UnreachableError
from weft.model.ids import PtyID, check_id
from weft.model.workspace import Pty, PtyChange, PtyInput

READ_BYTES: Final = 65_536
PROXY_HINT: Final = "a proxy before the server has to pass on the headers Upgrade and Connection"


def pty_path(id: PtyID) -> str:
    return f"/pty/{check_id('pty', id)}"


class RemoteTerminals:
    """The `Terminals` of a server."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def list_ptys(self) -> list[Pty]:
        return await self._connection.send(get("/pty"), list[Pty])

    async def create_pty(self, input: PtyInput) -> Pty:
        return await self._connection.send(post("/pty", input), Pty)

    async def get_pty(self, id: PtyID) -> Pty:
        return await self._connection.send(get(pty_path(id)), Pty)

    async def update_pty(self, id: PtyID, change: PtyChange) -> Pty:
        return await self._connection.send(put(pty_path(id), change), Pty)

    async def remove_pty(self, id: PtyID) -> None:
        await self._connection.send(delete(pty_path(id)), bool)

    @asynccontextmanager
    async def open_screen(self, id: PtyID) -> AsyncIterator[Screen]:
        await self.get_pty(id)
        screen = await open_remote_screen(self._connection, f"{pty_path(id)}/connect")
        try:
            yield screen
        finally:
            await screen.close()


async def open_remote_screen(connection: ServerConnection, path: str) -> "RemoteScreen":
    """Open a websocket. Raise `UnreachableError` if the server does not answer, or its refusal."""
    address = urlsplit(connection.url)
    secure, port = address.scheme == "https", address.port or (443 if address.scheme == "https" else 80)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                address.hostname, port, ssl=ssl.create_default_context() if secure else None
            )
            screen = RemoteScreen(connection.url, reader, writer)
            try:
                await screen.shake_hands(address.netloc, address.path + path, _make_headers(connection))
            except BaseException:
                writer.close()
                raise
    except (OSError, TimeoutError) as error:
        raise UnreachableError(
            f"{connection.url}: {str(error) or 'no answer'}", hint=NO_SERVER_HINT
        ) from error
    return screen


def _make_headers(connection: ServerConnection) -> list[tuple[bytes, bytes]]:
    directory = connection.client.headers.get("x-opencode-directory")
    headers = [] if directory is None else [(b"x-opencode-directory", directory.encode())]
    token = connection.client.headers.get("authorization")
    if token is not None:
        headers.append((b"authorization", token.encode()))
    elif connection.login is not None:
        headers.append((b"authorization", b"Basic " + b64encode(":".join(connection.login).encode())))
    return headers


class RemoteScreen:
    """The screen of a terminal, over a websocket."""

    def __init__(self, url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._url = url
        self._reader = reader
        self._writer = writer
        self._ws = WSConnection(ConnectionType.CLIENT)
        self._ended = False
        # A character that is typed in two pieces is sent whole.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

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
        raise UnreachableError(f"{self._url} does not accept a websocket", hint=PROXY_HINT)

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
        if self._ended:
            return
        self._writer.write(self._ws.send(TextMessage(data=self._decoder.decode(typed))))
        await self._writer.drain()

    async def close(self) -> None:
        if not self._ended:
            self._writer.write(self._ws.send(CloseConnection(code=1000)))
        self._writer.close()

    async def _events(self) -> AsyncIterator[Event]:
        """Yield the events of the websocket until it is closed, or the other side breaks the protocol."""
        while not self._ended:
            for event in self._ws.events():
                yield event
            data = await self._reader.read(READ_BYTES)
            if not data:
                return
            try:
                self._ws.receive_data(data)
            except RemoteProtocolError:
                return  # it is no HTTP
