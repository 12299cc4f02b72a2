"""A fake model API on the loopback interface: it validates requests, plays scripted answers, and misbehaves on demand."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from weft.provider.scripted import AnyMove

REASON_PHRASES = {200: "OK"}
WAIT_SECONDS = 10.0


class ReceivedRequest(Struct, frozen=True, kw_only=True):
    """A request as the server received it."""

    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.raw)
        return found


class Dialect(Protocol):
    """How one API encodes requests and answers. `kind` is the content type of its streams."""

    kind: str

    def problem(self, request: ReceivedRequest) -> str | None:
        """Return why the API would refuse the request, or None."""
        ...

    def frames(self, moves: Sequence[AnyMove]) -> list[bytes]:
        """Return an answer as the pieces in which it is streamed."""
        ...

    def wrapped(self, data: bytes) -> bytes:
        """Return any bytes as one event of an answer."""
        ...

    def refusal(self, status: int, message: str) -> bytes:
        """Return the body of an error response."""
        ...

    def failure(self, message: str) -> bytes:
        """Return the event that reports an overload inside an answer."""
        ...

    def nameless_call(self) -> list[bytes]:
        """Return an answer that calls a tool without a name."""
        ...


class ServerSentEvents:
    """A dialect that streams server-sent events, as most APIs do."""

    kind = "text/event-stream"

    def wrapped(self, data: bytes) -> bytes:
        return b"data: %b\n\n" % data


def split_words(text: str) -> list[str]:
    """Split a text into the pieces in which it is streamed."""
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
            f"HTTP/1.1 {status} {REASON_PHRASES.get(status, 'Status')}",
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
        """Break the connection, as a network failure does."""
        self._writer.transport.abort()


SendAnswer = Callable[[Reply], Awaitable[None]]


class FakeServer:
    """Sends prepared answers, one per request, in order. It refuses a request that its API would refuse."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.requests: list[ReceivedRequest] = []
        self.url = ""
        self.connections = 0
        self._answers: deque[SendAnswer] = deque()
        self._client_left = asyncio.Event()

    def play(self, *answers: Sequence[AnyMove]) -> None:
        """Prepare scripted answers."""
        for moves in answers:
            self._answers.append(self._make_answer(self.dialect.frames(moves)))

    def send(self, *pieces: bytes, status: int = 200, kind: str = "", **headers: str) -> None:
        """Prepare an answer of these bytes."""

        async def answer(reply: Reply) -> None:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            await reply.begin(status, kind, named)
            for piece in pieces:
                await reply.write(piece)
            await reply.end()

        self._answers.append(answer)

    def answer(self, answer: SendAnswer) -> None:
        """Prepare an answer that a callback writes."""
        self._answers.append(answer)

    def refuse(self, status: int, message: str, **headers: str) -> None:
        """Prepare an error response."""
        self.send(self.dialect.refusal(status, message), status=status, kind="application/json", **headers)

    def hang(self, *moves: AnyMove, pieces: int | None = None) -> None:
        """Prepare an answer that begins and then stops until the client leaves; without moves nothing is sent."""
        frames = self.dialect.frames(moves)[:pieces] if moves else []

        async def answer(reply: Reply) -> None:
            if moves:
                await reply.begin()
            for frame in frames:
                await reply.write(frame)
            await asyncio.Event().wait()

        self._answers.append(answer)

    def forget(self) -> None:
        """Discard the prepared answers."""
        self._answers.clear()

    async def wait_for_disconnect(self) -> None:
        """Wait until the client has closed a connection during an answer."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self._client_left.wait()

    @staticmethod
    def _make_answer(frames: list[bytes]) -> SendAnswer:
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
                request = await _read_request(reader)
                self.requests.append(request)
                await self._respond(request, reader, Reply(writer, self.dialect.kind))
        writer.close()

    async def _respond(self, request: ReceivedRequest, reader: asyncio.StreamReader, reply: Reply) -> None:
        problem = self.dialect.problem(request)
        if problem is not None:
            self.refuse(400, problem)
            self._answers.rotate(1)  # the refusal comes first, and the prepared answers stay
        if not self._answers:
            self.refuse(500, "the test gave this server no answer")
        answer = self._answers.popleft()
        # Nothing is received during an answer, so the end of the input means that the client left.
        async with asyncio.TaskGroup() as tasks:
            speaking = tasks.create_task(_ignore_disconnect(answer(reply)))
            listening = tasks.create_task(_ignore_disconnect(reader.read(1)))
            await asyncio.wait({speaking, listening}, return_when=asyncio.FIRST_COMPLETED)
            left = not speaking.done()
            speaking.cancel()
            listening.cancel()
        if left:
            self._client_left.set()
            raise ConnectionResetError


async def _ignore_disconnect(answer: Awaitable[object]) -> None:
    with suppress(ConnectionError):
        await answer


async def _read_request(reader: asyncio.StreamReader) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(path=first.split(" ")[1], headers=headers, raw=raw)


@asynccontextmanager
async def open_server(dialect: Dialect) -> AsyncIterator[FakeServer]:
    """Start a fake server for a dialect. `url` is its address."""
    fake = FakeServer(dialect)
    async with asyncio.TaskGroup() as tasks:
        serving: list[asyncio.Task[None]] = []

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            serving.append(tasks.create_task(fake.serve(reader, writer)))
            serving[-1].add_done_callback(lambda _: writer.transport.abort())

        server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=2**20)
        fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        try:
            yield fake
        finally:
            server.close()
            for task in serving:
                task.cancel()
