"""A permission gate by itself, with a manual clock, a store in memory or in files, and the events it published."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.local.permissions import make_gate_storage
from weft.model.event import Event, PermissionAsked
from weft.model.ids import MessageID, Mint, PermissionID, ProjectID, SessionID
from weft.model.permission import PermissionRequest, Rule, Ruleset
from weft.permission.gate import CallOrigin, Gate, GateStorage, PermissionCaller
from weft.permission.policy import AskPolicy, GateContext
from weft.permission.questions import QuestionGate
from weft.store.contract import Store
from weft.store.files.store import FileStore
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock

NOW = 1_790_000_000_000
PROJECT = ProjectID("project")
SESSION = SessionID("ses_00000000000000000000000001")
OTHER = SessionID("ses_00000000000000000000000002")
TURN = MessageID("msg_00000000000000000000000001")
ASK: Ruleset = (Rule(permission="*", pattern="*", action="ask"),)


def rules(*said: str) -> Ruleset:
    """Parse rules such as `bash:rm *:deny`."""
    split = (each.split(":") for each in said)
    return tuple(Rule(permission=one, pattern=two, action=three) for one, two, three in split)  # type: ignore[arg-type]


class GateHarness(Struct, frozen=True, kw_only=True):
    """A gate, with its storage, clock and published events."""

    gate: Gate
    questions: QuestionGate
    storage: GateStorage
    clock: HandClock
    events: list[Event]
    mint: Mint
    event_arrived: asyncio.Event

    def request(self, *patterns: str, **more: Any) -> PermissionRequest:
        usual: dict[str, Any] = {
            "id": self.mint.permission(),
            "session_id": SESSION,
            "permission": "bash",
            "patterns": patterns,
            "metadata": {},
            "always": patterns,
        }
        return PermissionRequest(**usual | more)

    async def wait_for_requests(self, count: int = 1) -> list[PermissionID]:
        """Wait for `count` permission requests, and return their ids."""
        while True:
            found = [event.request.id for event in self.events if isinstance(event, PermissionAsked)]
            if len(found) >= count:
                return found
            self.event_arrived.clear()
            await self.event_arrived.wait()


def make_gate_harness(
    root: str = "",
    *,
    clock: HandClock | None = None,
    project: ProjectID = PROJECT,
    seed: str = "",
    shared: Store | None = None,
    **terms: Any,
) -> GateHarness:
    clock = clock or HandClock(NOW)
    events: list[Event] = []
    event_arrived = asyncio.Event()

    async def tell(event: Event) -> None:
        events.append(event)
        event_arrived.set()

    mint = Mint(clock.now, Random(f"{root} {project} {seed}").randbytes)
    context = GateContext(clock=clock, mint=mint, project=project, publish=tell)
    store: Store = shared or (FileStore(root) if root else MemoryStore())
    storage = make_gate_storage(store, project, persistent=bool(root or shared))
    said = replace(AskPolicy(can_ask=True, person="ada", owner="here"), **terms)
    return GateHarness(
        gate=Gate(storage, context, said),
        questions=QuestionGate(storage.asked, context, said),
        storage=storage,
        clock=clock,
        events=events,
        mint=mint,
        event_arrived=event_arrived,
    )


def make_caller(
    *limits: Ruleset,
    agent: str = "build",
    root: SessionID = SESSION,
    turn: MessageID | None = TURN,
) -> PermissionCaller:
    async def find() -> CallOrigin:
        return CallOrigin(root_id=root, turn_id=turn)

    return PermissionCaller(rulesets=limits or (ASK,), agent=agent, find=find)


@asynccontextmanager
async def run_alongside(*asking: Awaitable[object]) -> AsyncIterator[list[asyncio.Task[object]]]:
    """Run the awaitables while the body answers them. At the end none may be left waiting."""
    tasks = [asyncio.ensure_future(each) for each in asking]
    try:
        yield tasks
    finally:
        for task in tasks:
            if not task.done():
                await asyncio.wait([task], timeout=60)
        hanging = [task for task in tasks if not task.done()]
        for task in hanging:
            task.cancel()
        assert hanging == [], "somebody was left waiting"
