"""A run whose lease another process took over: it stores nothing more, ends its tools, and reports that to its caller."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec import Struct

from given.engine import EchoInput, Engine, open_engine, text_prompt
from given.lease_taker import OWNER as OTHER
from given.served_engine import open_served_engine
from weft.errors import LeaseLostError
from weft.host.clock import SystemClock
from weft.model.event import MessageUpdated, PartUpdated, SessionFailed, StatusChanged
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.message import MessageWithParts
from weft.model.session import Busy, Idle
from weft.provider.chunk import AnyChunk, Started, TextDelta, TextStart, ToolCall
from weft.provider.contract import ModelRequest
from weft.provider.scripted import Say, UseTool
from weft.store.files.layout import Layout
from weft.store.files.lock import owner_path
from weft.store.files.store import FileStore
from weft.store.url import open_store
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult

TAKER = Path(__file__).parents[1] / "given" / "lease_taker.py"
CALLS = [UseTool(tool="brief", input={"words": "x"}), UseTool(tool="endless", input={"words": "x"})]


class CallsUnderWay:
    """Two tools: one that ends when the test lets it, and one that never ends by itself."""

    def __init__(self) -> None:
        self.begun: set[str] = set()
        self.both_begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.was_cancelled = False

    def tools(self) -> tuple[AnyTool, ...]:
        return (
            Tool(name="brief", about="End soon.", takes=EchoInput, run=self._run_brief),
            Tool(name="endless", about="Never end.", takes=EchoInput, run=self._run_endless),
        )

    async def _run_brief(self, _: EchoInput, __: ToolContext) -> ToolResult:
        self._record("brief")
        await self.may_end.wait()
        return ToolResult(title="", output="done")

    async def _run_endless(self, _: EchoInput, __: ToolContext) -> ToolResult:
        self._record("endless")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        raise AssertionError("it never ends by itself")

    def _record(self, name: str) -> None:
        self.begun.add(name)
        if len(self.begun) == 2:
            self.both_begun.set()


class Takeover(Struct, frozen=True):
    """What another process saw when it took over the session."""

    store: FileStore
    history: list[MessageWithParts]


@asynccontextmanager
async def take_over(root: Path, session: SessionID) -> AsyncIterator[Takeover]:
    """Remove the lease of a session, as a person does who takes its process for dead, and hold it as another process."""
    lease = Layout(str(root)).lease(session)
    os.unlink(lease)
    os.unlink(owner_path(lease))
    store = FileStore(str(root))
    async with store.lease(session, OTHER):
        yield Takeover(store, await store.list_messages(session))


async def list_events(engine: Engine) -> list[Any]:
    """Return all events published so far."""
    listener = engine.api.bus.listen(after=0)
    return [each.event for each in await listener.take()]


async def test_a_run_that_lost_its_lease_stores_nothing_and_ends(tmp_path: Path) -> None:
    calls = CallsUnderWay()
    store = FileStore(str(tmp_path))
    async with open_engine(CALLS, [Say(text="never said")], store=store, tools=calls.tools()) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        prompting = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        await calls.both_begun.wait()
        async with take_over(tmp_path, session) as taken:
            before = len(await list_events(engine))
            calls.may_end.set()
            with pytest.raises(LeaseLostError) as lost:
                await prompting
            assert lost.value.owner == OTHER
            assert calls.was_cancelled
            assert len(engine.provider.requests) == 1
            assert await taken.store.list_messages(session) == taken.history
            assert await taken.store.find_holder(session) == OTHER
            later = (await list_events(engine))[before:]
            assert [event for event in later if isinstance(event, MessageUpdated | PartUpdated)] == []
            assert [type(event) for event in later if isinstance(event, SessionFailed)] == [SessionFailed]
            assert [event.status for event in later if isinstance(event, StatusChanged)] == [Idle()]
            assert await engine.api.get_status(session) == Idle()
    assert await FileStore(str(tmp_path)).list_messages(session) == taken.history


async def test_the_session_continues_here_once_the_other_process_is_done(tmp_path: Path) -> None:
    calls = CallsUnderWay()
    store = FileStore(str(tmp_path))
    async with open_engine(CALLS, [Say(text="said")], store=store, tools=calls.tools()) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        prompting = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        await calls.both_begun.wait()
        async with take_over(tmp_path, session):
            calls.may_end.set()
            with pytest.raises(LeaseLostError):
                await prompting
        answer = await engine.api.prompt(session, text_prompt("go on"))
        assert [part.text for part in answer.parts if hasattr(part, "text")] == ["said"]
        assert await store.list_abandoned() == []


async def test_over_http_a_lost_lease_is_a_conflict(tmp_path: Path) -> None:
    calls = CallsUnderWay()
    store = FileStore(str(tmp_path))
    async with (
        open_served_engine(CALLS, [Say(text="never said")], store=store, tools=calls.tools()) as served,
        httpx2.AsyncClient(base_url=served.url, timeout=60) as client,
    ):
        session = (await served.engine.api.create_session(SessionInput())).id
        body = {"parts": [{"type": "text", "text": "go"}]}
        prompting = asyncio.ensure_future(client.post(f"/session/{session}/message", json=body))
        await calls.both_begun.wait()
        assert await served.engine.api.get_status(session) == Busy()
        async with take_over(tmp_path, session):
            calls.may_end.set()
            answered = await prompting
        assert answered.status_code == 409
        assert OTHER in answered.text


# --- a run that awaits no write ---


class TalkingModel:
    """A model that calls a tool, says a word, says another when the test lets it, and then never ends."""

    def __init__(self) -> None:
        self.requests = 0
        self.may_go_on = asyncio.Event()
        self.was_cancelled = False

    async def stream(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self.requests += 1
        yield Started()
        yield ToolCall(call_id="c1", tool="endless", raw='{"words": "x"}')
        yield TextStart(id="t")
        yield TextDelta(id="t", text="before ")
        await self.may_go_on.wait()
        yield TextDelta(id="t", text="after")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


@asynccontextmanager
async def take_over_in_a_process(url: str, session: SessionID) -> AsyncIterator[None]:
    taker = await asyncio.create_subprocess_exec(
        sys.executable, str(TAKER), url, session, stdin=PIPE, stdout=PIPE
    )
    assert taker.stdin is not None
    assert taker.stdout is not None
    try:
        assert await taker.stdout.readline() == b"held\n"
        yield
    finally:
        taker.stdin.close()  # which ends it
        assert await taker.wait() == 0


@pytest.mark.parametrize("kind", ["file", "sqlite"])
async def test_refused_growth_ends_the_run_and_its_tools_at_once(kind: str, tmp_path: Path) -> None:
    url = f"{kind}:{tmp_path}/store"
    model, calls = TalkingModel(), CallsUnderWay()
    calls.begun.add("brief")
    async with (
        open_store(url) as store,
        # Growth is stored after a quarter of a second. No task waits for that, and no other write follows.
        open_engine(store=store, tools=calls.tools(), provider=model, clock=SystemClock()) as engine,
    ):
        session = (await engine.api.create_session(SessionInput())).id
        prompting = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        await calls.both_begun.wait()
        async with take_over_in_a_process(url, session):
            stored = await store.list_messages(session)
            model.may_go_on.set()
            with pytest.raises(LeaseLostError) as lost:
                await prompting
            assert (lost.value.session, lost.value.owner) == (session, OTHER)
            assert (model.was_cancelled, calls.was_cancelled, model.requests) == (True, True, 1)
            assert [
                OTHER in event.error.data.message
                for event in await list_events(engine)
                if isinstance(event, SessionFailed)
            ] == [True]
            assert await engine.api.get_status(session) == Idle()
            assert await store.list_messages(session) == stored
            assert await store.find_holder(session) == OTHER
