"""A server on the loopback that plays a model's API: strict about what it is asked, and badly behaved when told to be."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from weft.provider.scripted import AnyMove

REASONS = {200: "OK"}
PATIENCE = 10.0


class Received(Struct, frozen=True, kw_only=True):
    """A request as it came."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.raw)
        return found


class Dialect(Protocol):
    """How one API is spoken. `kind` is the type of an answer."""

    kind: str

    def problem(self, request: Received) -> str | None:
        """What the API would refuse the request for."""
        ...

    def frames(self, moves: Sequence[AnyMove]) -> list[bytes]:
        """An answer, as the pieces in which it is streamed."""
        ...

    def wrapped(self, data: bytes) -> bytes:
        """Some bytes as one event of an answer, whatever they are."""
        ...

    def refusal(self, status: int, message: str) -> bytes:
        """The body of an answer that says no."""
        ...

    def failure(self, message: str) -> bytes:
        """What is streamed when the server fails within an answer: that it is overloaded."""
        ...

    def nameless_call(self) -> list[bytes]:
        """An answer that calls a tool and does not say which."""
        ...


class InLines:
    """An API that streams its answers in lines, as most do."""

    kind = "text/event-stream"

    def wrapped(self, data: bytes) -> bytes:
        return b"data: %b\n\n" % data


def words(text: str) -> list[str]:
    """A text in the pieces in which it is streamed."""
    first, *rest = text.split(" ")
    return [word for word in (first, *(f" {word}" for word in rest)) if word]


class Reply:
    """The server's side of one exchange."""

    def __init__(self, writer: asyncio.StreamWriter, kind: str) -> None:
        self._writer = writer
        self._kind = kind

    async def begin(
        self, status: int = 200, kind: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        lines = [
            f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}",
            f"content-type: {kind or self._kind}",
        ]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        lines += ["transfer-encoding: chunked", "", ""]
        self._writer.write("\r\n".join(lines).encode())
        await self._writer.drain()

    async def write(self, data: bytes) -> None:
        if data:
            self._writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await self._writer.drain()

    async def end(self) -> None:
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    def drop(self) -> None:
        """Break the connection, as a network does."""
        self._writer.transport.abort()


Answer = Callable[[Reply], Awaitable[None]]


class FakeServer:
    """Gives the answers it was given, one per request, in order. What its API would refuse, it refuses."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.requests: list[Received] = []
        self.url = ""
        self.connections = 0
        self._answers: deque[Answer] = deque()
        self._left = asyncio.Event()

    def play(self, *answers: Sequence[AnyMove]) -> None:
        for moves in answers:
            self._answers.append(self._playing(self.dialect.frames(moves)))

    def send(self, *pieces: bytes, status: int = 200, kind: str = "", **headers: str) -> None:
        """Answer with these bytes, whatever they are."""

        async def answer(reply: Reply) -> None:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            await reply.begin(status, kind, named)
            for piece in pieces:
                await reply.write(piece)
            await reply.end()

        self._answers.append(answer)

    def answer(self, answer: Answer) -> None:
        self._answers.append(answer)

    def refuse(self, status: int, message: str, **headers: str) -> None:
        self.send(self.dialect.refusal(status, message), status=status, kind="application/json", **headers)

    def hang(self, *moves: AnyMove, pieces: int | None = None) -> None:
        """Begin an answer and then say nothing until the other side leaves; without moves say nothing at all."""
        frames = self.dialect.frames(moves)[:pieces] if moves else []

        async def answer(reply: Reply) -> None:
            if moves:
                await reply.begin()
            for frame in frames:
                await reply.write(frame)
            await asyncio.Event().wait()

        self._answers.append(answer)

    def forget(self) -> None:
        """Give none of the answers that are still to be given."""
        self._answers.clear()

    async def left(self) -> None:
        """Wait until the other side has closed a connection while it was being answered."""
        async with asyncio.timeout(PATIENCE):
            await self._left.wait()

    @staticmethod
    def _playing(frames: list[bytes]) -> Answer:
        async def answer(reply: Reply) -> None:
            await reply.begin()
            for frame in frames:
                await reply.write(frame)
            await reply.end()

        return answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                request = await _read(reader)
                self.requests.append(request)
                await self._respond(request, reader, Reply(writer, self.dialect.kind))
        writer.close()

    async def _respond(self, request: Received, reader: asyncio.StreamReader, reply: Reply) -> None:
        problem = self.dialect.problem(request)
        if problem is not None:
            self.refuse(400, problem)
            self._answers.rotate(1)
        if not self._answers:
            self.refuse(500, "the test gave this server no answer")
        answer = self._answers.popleft()
        # While we answer, nothing more is to come: an end of what we read is the other side leaving.
        async with asyncio.TaskGroup() as tasks:
            speaking = tasks.create_task(_settled(answer(reply)))
            listening = tasks.create_task(_settled(reader.read(1)))
            await asyncio.wait({speaking, listening}, return_when=asyncio.FIRST_COMPLETED)
            left = not speaking.done()
            speaking.cancel()
            listening.cancel()
        if left:
            self._left.set()
            raise ConnectionResetError


async def _settled(answer: Awaitable[object]) -> None:
    with suppress(ConnectionError):
        await answer


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(path=first.split(" ")[1], headers=headers, raw=raw)


@asynccontextmanager
async def open_server(dialect: Dialect) -> AsyncIterator[FakeServer]:
    fake = FakeServer(dialect)
    async with asyncio.TaskGroup() as tasks:
        serving: list[asyncio.Task[None]] = []

        def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            serving.append(tasks.create_task(fake.serve(reader, writer)))
            serving[-1].add_done_callback(lambda _: writer.transport.abort())

        server = await asyncio.start_server(greet, "127.0.0.1", 0, limit=2**20)
        fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        try:
            yield fake
        finally:
            server.close()
            for task in serving:
                task.cancel()
