"""Harnesses for provider checks: a provider, and the model that answers it (a fake server or a script)."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Protocol

from msgspec import Struct

from weft.errors import ProviderError
from weft.host.clock import SystemClock
from weft.model.catalog import Model
from weft.provider.chunk import (
    AnyChunk,
    Finished,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Started,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolInputDelta,
    ToolInputStart,
)
from weft.provider.contract import (
    ModelMessage,
    ModelRequest,
    Provider,
    TextContent,
    ToolSpec,
    UserModelMessage,
)
from weft.provider.endpoint import ModelEndpoint, StreamDeadlines
from weft.provider.http_client import HttpClient
from weft.provider.scripted import AnyMove, ScriptedProvider
from weft.testing.fake_model_api import Dialect, FakeServer, open_server

MakeProvider = Callable[[HttpClient, ModelEndpoint], Provider]
KEY = "sk-fake-0123456789"
HELLO = UserModelMessage(content=(TextContent(text="hello"),))
READ = ToolSpec(
    name="read",
    about="Read a file.",
    schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


class ProviderHarness(Protocol):
    """What every provider check is given."""

    model: Model
    provider: Provider

    def play(self, *answers: Sequence[AnyMove]) -> None:
        """Prepare what the model does, one answer per request."""
        ...

    @property
    def request_count(self) -> int:
        """The number of requests so far."""
        ...


class ServerProviderHarness:
    """A provider that talks to a fake server."""

    def __init__(self, server: FakeServer, client: HttpClient, make: MakeProvider, model: Model) -> None:
        self.server = server
        self.model = model
        self._client = client
        self._make = make
        self.made: list[Provider] = []
        self.provider = self.with_deadlines(StreamDeadlines())

    def with_deadlines(self, deadlines: StreamDeadlines) -> Provider:
        """Return a provider with these deadlines."""
        endpoint = ModelEndpoint(
            base_url=self.server.url, api_key=KEY, provider_id=self.model.provider_id, deadlines=deadlines
        )
        self.made.append(self._make(self._client, endpoint))
        return self.made[-1]

    def play(self, *answers: Sequence[AnyMove]) -> None:
        self.server.play(*answers)

    @property
    def request_count(self) -> int:
        return len(self.server.requests)


class ScriptedProviderHarness:
    """The scripted provider, which needs no server and fulfils the same contract."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._script: list[Sequence[AnyMove]] = []
        self.provider = ScriptedProvider(self._script, SystemClock())

    def play(self, *answers: Sequence[AnyMove]) -> None:
        self._script.extend(answers)

    @property
    def request_count(self) -> int:
        return len(self.provider.requests)


@asynccontextmanager
async def open_provider_harness(
    dialect: Dialect, make: MakeProvider, model: Model
) -> AsyncIterator[ServerProviderHarness]:
    """Start a fake server and yield a harness with a provider for it."""
    async with open_server(dialect) as server, aclosing(HttpClient()) as client:
        harness = ServerProviderHarness(server, client, make, model)
        try:
            yield harness
        finally:
            for provider in harness.made:
                if (close := getattr(provider, "aclose", None)) is not None:
                    await close()


def make_request(
    model: Model, *messages: ModelMessage, tools: tuple[ToolSpec, ...] = (READ,)
) -> ModelRequest:
    """Return a request with these messages."""
    return ModelRequest(model=model, system=("Be brief.",), messages=messages or (HELLO,), tools=tools)


class CollectedAnswer(Struct):
    """An answer: its chunks, and the error that ended it."""

    chunks: list[AnyChunk]
    error: ProviderError | None = None

    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks if isinstance(chunk, TextDelta))

    def thought(self) -> str:
        return "".join(chunk.text for chunk in self.chunks if isinstance(chunk, ReasoningDelta))

    def calls(self) -> list[ToolCall]:
        return [chunk for chunk in self.chunks if isinstance(chunk, ToolCall)]

    def finished(self) -> Finished:
        found = self.chunks[-1]
        assert isinstance(found, Finished), f"the last chunk is {found}"
        return found


async def collect_answer(provider: Provider, request: ModelRequest) -> CollectedAnswer:
    """Collect the whole answer and check the order of its chunks, even if it ends with an error."""
    answer = CollectedAnswer(chunks=[])
    try:
        async with aclosing(provider.stream(request)) as stream:
            async for chunk in stream:
                answer.chunks.append(chunk)
    except ProviderError as error:
        answer.error = error
    check_order(answer.chunks, whole=answer.error is None)
    return answer


def check_order(chunks: Sequence[AnyChunk], *, whole: bool) -> None:
    """Check the order of chunks: `Started` first and `Finished` last, once each; every block opened, then grown, then
    closed.
    """
    kinds = [type(chunk) for chunk in chunks]
    if chunks:
        assert kinds[0] is Started, f"the first chunk is {chunks[0]}"
        assert kinds.count(Started) == 1
    assert kinds.count(Finished) == (1 if whole else 0)
    assert not whole or kinds[-1] is Finished
    opened = _list_open(chunks)
    assert not whole or not opened, f"left open: {opened}"


def _list_open(chunks: Sequence[AnyChunk]) -> set[tuple[str, str]]:
    opened: set[tuple[str, str]] = set()
    seen: set[tuple[str, str]] = set()
    for chunk in chunks:
        match chunk:
            case TextStart(id=id) | ReasoningStart(id=id) | ToolInputStart(call_id=id):
                key = (_get_kind(chunk), id)
                assert key not in seen, f"opened twice: {key}"
                seen.add(key)
                opened.add(key)
            case TextDelta(id=id) | ReasoningDelta(id=id) | ToolInputDelta(call_id=id):
                assert (_get_kind(chunk), id) in opened, f"a delta for a block that is not open: {chunk}"
                assert chunk.text, "an empty delta"
            case TextEnd(id=id) | ReasoningEnd(id=id) | ToolCall(call_id=id):
                assert (_get_kind(chunk), id) in opened, f"the end of a block that is not open: {chunk}"
                opened.discard((_get_kind(chunk), id))
            case Started() | Finished():
                pass
    return opened


def _get_kind(chunk: AnyChunk) -> str:
    return (
        type(chunk)
        .__name__.removesuffix("Start")
        .removesuffix("Delta")
        .removesuffix("End")
        .removesuffix("Call")
        .removesuffix("Input")
    )
