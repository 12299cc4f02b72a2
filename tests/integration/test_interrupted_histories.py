"""Sessions that are cut off at every event, as by a crash: every API accepts the next request.

Each session runs over one API, with its real adapter and a server that signs, encrypts and verifies as the real one does.
The rest of the session is then sent over that API and over every other one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec import Struct
from msgspec.structs import replace

from given.engine import ECHO, Engine, open_engine, text_prompt
from given.models import CLAUDE
from given.provider_wires import SUMMARISER, WIRES, RequestChecker, capture_request, next_requests
from weft.model.catalog import Limit, to_ref
from weft.model.event import Event, PartGrew, PartUpdated
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.input import SessionInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import AnyPart, Moment, RunningState, TextPart, ToolPart
from weft.model.transcript import Transcript
from weft.provider.chunk import Usage
from weft.provider.scripted import AnyMove, End, Fail, Say, Think, UseTool
from weft.run.decide import find_newest_prompt
from weft.session.settle import to_settling_events
from weft.testing.provider_harness import ServerProviderHarness, open_provider_harness
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult
from weft.tool.registry import INVALID

PATIENCE = 60
LATER = 1_800_000_000_000
SMALL = Limit(context=100_000, output=8_000)


class NoInput(Struct, frozen=True):
    pass


async def hold(_: NoInput, __: ToolContext) -> ToolResult:
    await asyncio.Event().wait()
    raise AssertionError("waited for nothing")


async def raise_error(_: NoInput, __: ToolContext) -> ToolResult:
    raise ValueError("it fell")


TOOLS: tuple[AnyTool, ...] = (
    ECHO,
    Tool(name="hold", about="Wait for ever.", takes=NoInput, run=hold),
    Tool(name="fall", about="Fail.", takes=NoInput, run=raise_error),
    INVALID,
)


# --- the sessions ---


class LiveSession(Struct, frozen=True, kw_only=True):
    """A running session over one API."""

    engine: Engine
    harness: ServerProviderHarness
    session: SessionID

    async def events(self) -> list[Event]:
        """Return all published events, with growth split into words."""
        return [
            event
            for published in await self.engine.api.bus.listen(0).take()
            for event in _split_growth(published.event)
        ]

    async def prompt(self, words: str, *answers: Sequence[AnyMove]) -> None:
        self.harness.play(*answers)
        await self.engine.api.prompt(self.session, text_prompt(words))

    async def abort_when(self, seen: Callable[[Event], bool], words: str) -> None:
        """Prompt, and abort the answer when a condition holds."""
        listening = self.engine.api.events()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.engine.api.prompt(self.session, text_prompt(words)))
            async for published in listening:
                if seen(published.event):
                    break
            await self.engine.api.abort(self.session)


@asynccontextmanager
async def open_live_session(name: str) -> AsyncIterator[LiveSession]:
    wire = WIRES[name]
    model = replace(wire.model, limit=SMALL)
    async with (
        asyncio.timeout(PATIENCE),
        open_provider_harness(wire.dialect(), wire.make, model) as harness,
        open_engine(
            model=model, provider=harness.provider, tools=TOOLS, agents=(SUMMARISER,), skip_waits=True
        ) as engine,
    ):
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        yield LiveSession(engine=engine, harness=harness, session=session)


def _split_growth(event: Event) -> Iterator[Event]:
    """Split growth into words."""
    if not isinstance(event, PartGrew):
        yield event
        return
    at = event.offset
    for word in event.delta.replace(" ", " \0").split("\0"):
        yield replace(event, delta=word, offset=at)
        at += len(word)


async def run_work(live: LiveSession, name: str) -> None:
    """Run a session with text, reasoning, parallel calls, failing calls, a retry, and an aborted call and answer."""
    # Gemini sends arguments as an object: they cannot be malformed.
    broken = (
        UseTool(tool="echo", input={"wrong": 1})
        if name == "gemini"
        else UseTool(tool="echo", raw='{"words": "h')
    )
    echo = [UseTool(tool="echo", input={"words": word}) for word in ("one", "two")]
    await live.prompt(
        "go on then",
        [Think(text="hm, so it is"), Say(text="I call three."), *echo, UseTool(tool="fall")],
        [Think(text="and another"), broken, UseTool(tool="unheard-of", input={"a": 1})],
        [Say(text="All is done.")],
    )
    await live.prompt(
        "once more",
        [Think(text="half a thought"), Say(text="half an"), Fail(message="overloaded", retryable=True)],
        [Think(text="whole"), Say(text="A whole answer.")],
    )
    live.harness.play([Think(text="well"), Say(text="I hold."), *echo, UseTool(tool="hold")])
    await live.abort_when(_is_holding, "hold it")
    live.harness.server.hang(Think(text="so it"), Say(text="is as it"), pieces=5)
    await live.abort_when(_is_growing, "say it")
    await live.prompt("and the end?", [Say(text="The end.")])


def _is_holding(event: Event) -> bool:
    part = event.part if isinstance(event, PartUpdated) else None
    return isinstance(part, ToolPart) and part.tool == "hold" and isinstance(part.state, RunningState)


def _is_growing(event: Event) -> bool:
    return isinstance(event, PartGrew) or (isinstance(event, PartUpdated) and bool(event.delta))


async def run_compaction(live: LiveSession, name: str) -> None:
    """Run a conversation that is compacted and continues."""
    full = End(usage=Usage(input=95_000, output=100), reason="tool-calls")
    await live.prompt(
        "mend the loom",
        [Think(text="how so?"), UseTool(tool="echo", input={"words": "x"}), full],
        [Think(text="in short"), Say(text="We did x."), End(usage=Usage(input=95_000, output=10))],
        [UseTool(tool="echo", input={"words": "y"})],
        [Say(text="It is mended.")],
    )
    await live.prompt("thanks", [Say(text="You are welcome.")])


COMMON = {"text", "reasoning", "tool completed", "step-start", "step-finish"}
# Each with the parts it must contain at the end: a session that took another course would prove nothing.
SESSIONS = {
    "work": (run_work, COMMON | {"tool error", "retry", "AbortedFailure"}),
    "compaction": (run_compaction, COMMON | {"compaction"}),
}


def kinds(events: Sequence[Event]) -> set[str]:
    """Return the kinds of parts and failures in a session."""
    transcript = Transcript()
    transcript.feed(*events)
    history = transcript.messages()
    failures = {type(error).__name__ for each in history if (error := getattr(each.info, "error", None))}
    return failures | {shape(part) for message in history for part in message.parts}


def shape(part: AnyPart) -> str:
    if isinstance(part, ToolPart):
        return f"tool {part.state.__struct_config__.tag}"
    return str(part.__struct_config__.tag)


# --- the next request ---


def histories(events: Sequence[Event]) -> Iterator[list[MessageWithParts]]:
    """Return the history at each event: as it was, settled, and settled with a new prompt."""
    transcript = Transcript()
    before: list[MessageWithParts] = []
    for event in events:
        transcript.feed(event)
        left = transcript.messages()
        if left == before or find_newest_prompt(left) is None:
            continue  # nothing new to ask about
        before = left
        yield left
        settled = Transcript(left)
        settled.feed(*to_settling_events(left))
        yield settled.messages()
        yield [*settled.messages(), make_next_prompt(left)]


def make_next_prompt(history: Sequence[MessageWithParts]) -> MessageWithParts:
    session, id = history[0].info.session_id, MessageID("msg_next")
    info = UserMessage(
        id=id, session_id=session, time=Moment(created=LATER), agent="build", model=to_ref(CLAUDE)
    )
    words = TextPart(id=PartID("prt_next"), session_id=session, message_id=id, text="and now?")
    return MessageWithParts(info=info, parts=(words,))


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("name", WIRES)
async def test_a_history_interrupted_anywhere_gives_a_valid_request(name: str, session: str) -> None:
    run, expected = SESSIONS[session]
    async with open_live_session(name) as live:
        await run(live, name)
        events = await live.events()
    assert kinds(events) == expected
    own = live.harness.server.dialect
    readers = {
        other: (
            wire.model,
            RequestChecker(wire, own if other == name else wire.dialect(), await capture_request(wire)),
        )
        for other, wire in WIRES.items()
    }
    refused = [
        (other, kind, problem)
        for history in histories(events)
        for other, (model, reader) in readers.items()
        for kind, request in next_requests(live.engine.api.runtime, history, model)
        if (problem := reader.problem(request)) is not None
    ]
    assert refused == []
