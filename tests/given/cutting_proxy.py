"""A proxy that cuts connections in the middle of responses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from urllib.parse import urlsplit

PIECE = 4096
STREAM = b"GET /event"


class CuttingProxy:
    """Cuts a number of connections: each event stream after some hundred bytes, and every other response, if it is long
    enough, before it is complete. At least `answer_cuts` of the cuts are for responses that are not event streams."""

    def __init__(self, url: str, *, cuts: int, answer_cuts: int = 0, seed: int = 1) -> None:
        self.cuts_left = cuts
        self._answer_cuts = answer_cuts
        self.cut_streams = 0
        self.cut_answers = 0
        self.url = ""
        self._to = urlsplit(url)
        self._random = Random(seed)
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._forward(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Also if it is cancelled before it has begun, or before it has reached the server.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def redirect(self, url: str) -> None:
        """Forward to another server from now on, and cut all connections."""
        self._to = urlsplit(url)
        await self.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection(self._to.hostname, self._to.port)
        connection = ProxyConnection(self)
        going = asyncio.ensure_future(connection.forward_request(reader, there))
        try:
            await connection.forward_response(there_reader, writer)
        except ConnectionError:
            pass  # the client has hung up
        finally:
            going.cancel()
            there.transport.abort()
            await asyncio.gather(going, return_exceptions=True)

    def draw_cut(self, request: bytes) -> int | None:
        """Return after how many bytes the response is cut, or None if it is not."""
        if not self.cuts_left or not (request.startswith(STREAM) or self._random.random() < 1 / 2):
            return None
        return self._random.randint(300, 6000)

    def count_cut(self, *, stream: bool) -> bool:
        """Count a cut. Return False if none is left."""
        reserved = max(0, self._answer_cuts - self.cut_answers) if stream else 0
        if self.cuts_left <= reserved:
            return False
        self.cuts_left -= 1
        self.cut_streams += stream
        self.cut_answers += not stream
        return True


class ProxyConnection:
    """One connection with any number of requests."""

    def __init__(self, proxy: CuttingProxy) -> None:
        self._proxy = proxy
        self._bytes_left: int | None = None
        self._stream = False

    async def forward_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(PIECE):
            if data.startswith((b"GET ", b"POST ", b"PUT ", b"PATCH ", b"DELETE ")):
                self._bytes_left, self._stream = self._proxy.draw_cut(data), data.startswith(STREAM)
            writer.write(data)
            await writer.drain()

    async def forward_response(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(PIECE):
            if (
                self._bytes_left is not None
                and len(data) > self._bytes_left
                and self._proxy.count_cut(stream=self._stream)
            ):
                writer.write(data[: self._bytes_left])
                await writer.drain()
                return
            self._bytes_left = None if self._bytes_left is None else self._bytes_left - len(data)
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def open_cutting_proxy(
    url: str, *, cuts: int, answer_cuts: int = 0, seed: int = 1
) -> AsyncIterator[CuttingProxy]:
    proxy = CuttingProxy(url, cuts=cuts, answer_cuts=answer_cuts, seed=seed)
    server = await asyncio.start_server(proxy.begin, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
