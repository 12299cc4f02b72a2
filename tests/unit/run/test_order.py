"""The order in which a run does things: what others rely on is done before they are told."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from given.engine import EchoInput, open_engine, text_prompt
from weft.model.event import Durable, PartUpdated
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.part import RunningState, ToolPart
from weft.provider.scripted import Say, UseTool
from weft.store.contract import NO_LEASES
from weft.store.lease import LeaseToken
from weft.store.memory import MemoryStore
from weft.tool.contract import Tool, ToolContext, ToolResult


class SlowStore(MemoryStore):
    """Takes a moment for each write and to release a lease, and knows what it has done."""

    def __init__(self) -> None:
        super().__init__()
        self.running_calls: list[str] = []
        self.released = 0

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        await take_a_moment()
        await super().apply(*events, leases=leases)
        parts = [event.part for event in events if isinstance(event, PartUpdated)]
        self.running_calls += [
            part.call_id
            for part in parts
            if isinstance(part, ToolPart) and isinstance(part.state, RunningState)
        ]

    @asynccontextmanager
    async def lease(self, session: SessionID, owner: str) -> AsyncIterator[LeaseToken]:
        async with super().lease(session, owner) as token:
            yield token
            await take_a_moment()
        self.released += 1


async def take_a_moment() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_call_is_stored_as_running_before_its_tool_begins() -> None:
    store = SlowStore()
    stored: list[bool] = []

    async def look(_: EchoInput, ctx: ToolContext) -> ToolResult:
        stored.append(ctx.call_id in store.running_calls)
        return ToolResult(title="", output="seen")

    tool = Tool(name="look", about="Look.", takes=EchoInput, run=look)
    script = [UseTool(tool="look", input={"words": "x"})], [Say(text="done")]
    async with open_engine(*script, store=store, tools=(tool,)) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        await engine.api.prompt(session, text_prompt("go"))
    assert stored == [True]


async def test_a_caller_that_waited_for_a_run_can_take_its_lease() -> None:
    store = SlowStore()
    async with open_engine([Say(text="done")], store=store) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        await engine.api.prompt(session, text_prompt("go"))
        assert store.released == 1
