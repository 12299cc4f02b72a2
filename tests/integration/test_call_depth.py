"""The number of our own frames between `Api.prompt` and the request to a provider.

They are counted over three tasks: the caller's, the run's, and the one that reads the provider's stream.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from types import FrameType

import weft
from given.engine import open_engine, text_prompt
from given.models import CLAUDE
from weft.model.input import SessionInput
from weft.provider.anthropic.adapter import AnthropicMessages
from weft.provider.chunk import AnyChunk, Finished, Started, TextDelta, Usage
from weft.provider.contract import ModelRequest
from weft.provider.endpoint import ModelEndpoint
from weft.provider.http_client import HttpClient
from weft.provider.http_connection import ConnectionBrokenError, HttpConnection, Pulse

# As docs/explanation/architecture.md says.
TO_PROVIDER = 11
TO_SOCKET = 14
SOURCE = str(Path(weft.__file__).parent)


def list_frames() -> list[str]:
    """Name our frames, from the caller of `Api.prompt` down to the one that runs now."""
    chains = [list_own_frames(list_waiting(task)) for task in asyncio.all_tasks()]
    walk = [chain for chain in chains if any(name.endswith((".prompt", ":take_step")) for name in chain)]
    return [name for chain in walk for name in chain] + list_own_frames(list_running())[::-1]


def list_waiting(task: asyncio.Task[object]) -> Iterator[FrameType]:
    """Yield the frames of a task that waits, outermost first."""
    awaited: object = task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if frame is not None:
            yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)


def list_running() -> Iterator[FrameType]:
    """Yield the frames of the task that runs, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def list_own_frames(frames: Iterator[FrameType]) -> list[str]:
    codes = (frame.f_code for frame in frames if frame.f_code.co_filename.startswith(SOURCE))
    return [f"{code.co_filename.removeprefix(SOURCE)}:{code.co_qualname}" for code in codes]


class Watcher:
    """A provider that records our frames when its stream opens."""

    def __init__(self) -> None:
        self.frames: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        if request.tools:  # not the request for a title
            self.frames = list_frames()
        yield Started()
        yield TextDelta(id="1", text="Hello.")
        yield Finished(reason="stop", usage=Usage(input=1, output=1))


class WatchingConnection(HttpConnection):
    """A connection that records our frames when a request is sent, and breaks off."""

    def __init__(self, frames: list[str]) -> None:
        super().__init__(Pulse())
        self._frames = frames

    async def send(self, *_: object, **__: object) -> None:
        self._frames[:] = list_frames()
        raise ConnectionBrokenError("no")


class WatchedClient(HttpClient):
    """A client that connects to nothing, and keeps the frames of its last request."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[str] = []

    async def _connect(self, *_: object, **__: object) -> HttpConnection:
        return WatchingConnection(self.frames)


async def test_a_prompt_reaches_its_provider_through_few_frames() -> None:
    provider = Watcher()
    async with open_engine(provider=provider) as engine:
        session = await engine.api.create_session(SessionInput())
        await engine.api.prompt(session.id, text_prompt("Hello?"))
    assert any(name.endswith(":take_step") for name in provider.frames)
    assert len(provider.frames) == TO_PROVIDER, "\n".join(provider.frames)


async def test_a_prompt_reaches_the_socket_through_few_frames() -> None:
    client = WatchedClient()
    provider = AnthropicMessages(client, ModelEndpoint(base_url="https://api.example.com/v1", api_key="k"))
    async with open_engine(model=CLAUDE, provider=provider, skip_waits=True) as engine:
        session = await engine.api.create_session(SessionInput(title="t"))
        await engine.api.prompt(session.id, text_prompt("Hello?"))
    assert any(name.endswith(":take_step") for name in client.frames)
    assert len(client.frames) == TO_SOCKET, "\n".join(client.frames)
