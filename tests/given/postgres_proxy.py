"""A proxy before a Postgres server that counts round trips, and cuts connections at the worst moment."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from urllib.parse import urlsplit

PIECE = 1 << 16


class PostgresProxy:
    """Forwards connections. A round trip is something that a client sends after the server has answered."""

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self.port = 0
        self.round_trips = 0
        self.cuts = 0
        self.cut = asyncio.Event()
        self.refuses = False
        self.refused = 0
        # While it is cleared, answers are held back: connections stay open, and nothing arrives on them.
        self.answers = asyncio.Event()
        self.answers.set()
        self._answers_left: int | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return self._to._replace(netloc=f"{self._to.username}@127.0.0.1:{self.port}").geturl()

    def cut_after(self, answers: int) -> None:
        """Let some `answers` pass. Swallow the next one, and cut its connection: the statement was carried out."""
        self._answers_left = answers

    def begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            self.refused += 1
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._forward(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        # Also of one that was cut before it began, or while it connected.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def cut_all(self) -> None:
        """Cut every connection, now."""
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there = await asyncio.open_connection(self._to.hostname, self._to.port)
        except OSError:  # the server is unreachable
            return
        connection = _Connection(self)
        ways = [
            asyncio.ensure_future(connection.forward_requests(reader, there)),
            asyncio.ensure_future(connection.forward_answers(there_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            there.transport.abort()

    def takes_answer(self) -> bool:
        """Count an answer. Return True if it is the one to swallow."""
        if self._answers_left is None:
            return False
        self._answers_left -= 1
        if self._answers_left >= 0:
            return False
        self._answers_left = None
        self.cuts += 1
        self.cut.set()
        return True


class _Connection:
    def __init__(self, proxy: PostgresProxy) -> None:
        self._proxy = proxy
        self._is_asking = False

    async def forward_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(PIECE):
            self._proxy.round_trips += not self._is_asking
            self._is_asking = True
            writer.write(data)
            await writer.drain()

    async def forward_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(PIECE):
            await self._proxy.answers.wait()
            if self._is_asking and self._proxy.takes_answer():
                return
            self._is_asking = False
            with suppress(ConnectionError):
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def open_postgres_proxy(url: str) -> AsyncIterator[PostgresProxy]:
    proxy = PostgresProxy(url)
    server = await asyncio.start_server(proxy.begin, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.cut_all()


@contextmanager
def run_postgres_proxy(url: str) -> Iterator[tuple[PostgresProxy, asyncio.AbstractEventLoop]]:
    """Run a proxy in a thread, for tests without an event loop."""
    loop, ready, stop = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[PostgresProxy] = []

    async def serve() -> None:
        async with open_postgres_proxy(url) as proxy:
            found.append(proxy)
            ready.set()
            await stop.wait()
        for _ in range(10):  # so that all connections are closed before the loop is
            await asyncio.sleep(0)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield found[0], loop
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()
