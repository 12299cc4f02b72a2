"""Sessions cut off at every event, as by a crash: every wire takes the next request all the same.

Each session is held over one wire, by its real adapter, with a server that signs and encrypts as the real one does and
knows its own again. What is left of it is then asked about over that wire and over every other one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from given.asked_models import GEMINI_3, GPT_5
from given.house import ECHO, House, open_house, say
from given.models import CLAUDE, GPT
from weft.model.agent import Agent
from weft.model.catalog import Limit, Model, ref
from weft.model.event import Event, PartGrew, PartUpdated
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.input import SessionInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import AnyPart, Moment, RunningState, TextPart, ToolPart
from weft.model.transcript import Transcript
from weft.provider.anthropic import AnthropicMessages
from weft.provider.body import to_bytes
from weft.provider.chat import request as openai_chat_request
from weft.provider.chunk import Usage
from weft.provider.claude import request as anthropic_request
from weft.provider.contract import ModelRequest
from weft.provider.gemini import Gemini
from weft.provider.google import request as gemini_request
from weft.provider.openai_chat import OpenAIChat
from weft.provider.openai_responses import OpenAIResponses
from weft.provider.responses import request as responses_request
from weft.provider.scripted import AnyMove, Call, End, Fail, Say, Think
from weft.run.decide import Step, newest_prompt
from weft.run.kit import Kit
from weft.run.request import build_request, summary_requests
from weft.session.settle import to_settle
from weft.testing.fake.anthropic import AnthropicDialect
from weft.testing.fake.gemini import GeminiDialect
from weft.testing.fake.openai import OpenAIChatDialect
from weft.testing.fake.responses import ResponsesDialect
from weft.testing.fake.server import Dialect, Received
from weft.testing.provider_stand import Make, ServerStand, open_stand
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult
from weft.tool.invalid import INVALID
from weft.window.environment import Environment
from weft.window.system import Basis

PATIENCE = 20
LATER = 1_800_000_000_000
THINKING = {"thinking": {"type": "enabled", "budgetTokens": 16_000}}
SMALL = Limit(context=100_000, output=8_000)
SUMMARISER = Agent(name="compaction", mode="primary", hidden=True, prompt="Sum it up.")
BASIS = Basis(environment=Environment(directory="/nowhere", git=False, platform="linux", today="a day"))


class Wire(Struct, frozen=True, kw_only=True):
    """How one API is spoken: by us, by its server, and with which model."""

    dialect: Callable[[], Dialect]
    make: Make
    to_body: Callable[[ModelRequest], dict[str, Any]]
    model: Model


WIRES = {
    "chat": Wire(dialect=OpenAIChatDialect, make=OpenAIChat, to_body=openai_chat_request.to_body, model=GPT),
    "anthropic": Wire(
        dialect=AnthropicDialect,
        make=AnthropicMessages,
        to_body=anthropic_request.to_body,
        model=replace(CLAUDE, options=THINKING),
    ),
    "responses": Wire(
        dialect=ResponsesDialect, make=OpenAIResponses, to_body=responses_request.to_body, model=GPT_5
    ),
    "gemini": Wire(dialect=GeminiDialect, make=Gemini, to_body=gemini_request.to_body, model=GEMINI_3),
}


class Nothing(Struct, frozen=True):
    pass


async def hold(_: Nothing, __: ToolContext) -> ToolResult:
    await asyncio.Event().wait()
    raise AssertionError("waited for nothing")


async def fall(_: Nothing, __: ToolContext) -> ToolResult:
    raise ValueError("it fell")


TOOLS: tuple[AnyTool, ...] = (
    ECHO,
    Tool(name="hold", about="Wait for ever.", takes=Nothing, run=hold),
    Tool(name="fall", about="Fail.", takes=Nothing, run=fall),
    INVALID,
)


# --- the sessions ---


class Held(Struct, frozen=True, kw_only=True):
    """A session at work over one wire."""

    house: House
    stand: ServerStand
    session: SessionID

    async def events(self) -> list[Event]:
        """All that was told, growth in as small pieces as it can have come."""
        return [
            event for told in await self.house.api.bus.listen(0).take() for event in _word_by_word(told.event)
        ]

    async def prompt(self, words: str, *answers: Sequence[AnyMove]) -> None:
        self.stand.play(*answers)
        await self.house.api.prompt(self.session, say(words))

    async def abort_when(self, seen: Callable[[Event], bool], words: str) -> None:
        """Ask, and break the answer off when something was seen."""
        listening = self.house.api.events()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.house.api.prompt(self.session, say(words)))
            async for told in listening:
                if seen(told.event):
                    break
            await self.house.api.abort(self.session)


@asynccontextmanager
async def open_held(name: str) -> AsyncIterator[Held]:
    wire = WIRES[name]
    model = replace(wire.model, limit=SMALL)
    async with (
        asyncio.timeout(PATIENCE),
        open_stand(wire.dialect(), wire.make, model) as stand,
        open_house(
            model=model, provider=stand.provider, tools=TOOLS, agents=(SUMMARISER,), quick=True
        ) as house,
    ):
        session = (await house.api.create_session(SessionInput(title="t"))).id
        yield Held(house=house, stand=stand, session=session)


def _word_by_word(event: Event) -> Iterator[Event]:
    """Growth that came in one piece, in pieces."""
    if not isinstance(event, PartGrew):
        yield event
        return
    at = event.offset
    for word in event.delta.replace(" ", " \0").split("\0"):
        yield replace(event, delta=word, offset=at)
        at += len(word)


async def work(held: Held, name: str) -> None:
    """Words, thoughts, calls at once, calls that fail, a second try, a call and an answer broken off."""
    # Gemini's arguments are an object by themselves: they cannot be broken.
    broken = (
        Call(tool="echo", input={"wrong": 1}) if name == "gemini" else Call(tool="echo", raw='{"words": "h')
    )
    echo = [Call(tool="echo", input={"words": word}) for word in ("one", "two")]
    await held.prompt(
        "go on then",
        [Think(text="hm, so it is"), Say(text="I call three."), *echo, Call(tool="fall")],
        [Think(text="and another"), broken, Call(tool="unheard-of", input={"a": 1})],
        [Say(text="All is done.")],
    )
    await held.prompt(
        "once more",
        [Think(text="half a thought"), Say(text="half an"), Fail(message="overloaded", retryable=True)],
        [Think(text="whole"), Say(text="A whole answer.")],
    )
    held.stand.play([Think(text="well"), Say(text="I hold."), *echo, Call(tool="hold")])
    await held.abort_when(_is_holding, "hold it")
    held.stand.server.hang(Think(text="so it"), Say(text="is as it"), pieces=5)
    await held.abort_when(_is_growing, "say it")
    await held.prompt("and the end?", [Say(text="The end.")])


def _is_holding(event: Event) -> bool:
    part = event.part if isinstance(event, PartUpdated) else None
    return isinstance(part, ToolPart) and part.tool == "hold" and isinstance(part.state, RunningState)


def _is_growing(event: Event) -> bool:
    return isinstance(event, PartGrew) or (isinstance(event, PartUpdated) and bool(event.delta))


async def compaction(held: Held, name: str) -> None:
    """A conversation that is summed up in its midst, and goes on."""
    full = End(usage=Usage(input=95_000, output=100), reason="tool-calls")
    await held.prompt(
        "mend the loom",
        [Think(text="how so?"), Call(tool="echo", input={"words": "x"}), full],
        [Think(text="in short"), Say(text="We did x."), End(usage=Usage(input=95_000, output=10))],
        [Call(tool="echo", input={"words": "y"})],
        [Say(text="It is mended.")],
    )
    await held.prompt("thanks", [Say(text="You are welcome.")])


COMMON = {"text", "reasoning", "tool completed", "step-start", "step-finish"}
# Each with all that is in it in the end: a session that went another way than it should proves nothing.
SESSIONS = {
    "work": (work, COMMON | {"tool error", "retry", "AbortedFailure"}),
    "compaction": (compaction, COMMON | {"compaction"}),
}


def kinds(events: Sequence[Event]) -> set[str]:
    """The kinds of parts and failures in a session."""
    transcript = Transcript()
    transcript.feed(*events)
    history = transcript.messages()
    failures = {type(error).__name__ for each in history if (error := getattr(each.info, "error", None))}
    return failures | {shape(part) for message in history for part in message.parts}


def shape(part: AnyPart) -> str:
    if isinstance(part, ToolPart):
        return f"tool {part.state.__struct_config__.tag}"
    return str(part.__struct_config__.tag)


# --- what is asked next ---


def histories(events: Sequence[Event]) -> Iterator[list[MessageWithParts]]:
    """All that was left at each event: as it was, settled, and settled with a new prompt behind it."""
    transcript = Transcript()
    before: list[MessageWithParts] = []
    for event in events:
        transcript.feed(event)
        left = transcript.messages()
        if left == before or newest_prompt(left) is None:
            continue  # nothing new to ask about
        before = left
        yield left
        settled = Transcript(left)
        settled.feed(*to_settle(left, LATER))
        yield settled.messages()
        yield [*settled.messages(), prompted(left)]


def prompted(history: Sequence[MessageWithParts]) -> MessageWithParts:
    session, id = history[0].info.session_id, MessageID("msg_next")
    info = UserMessage(
        id=id, session_id=session, time=Moment(created=LATER), agent="build", model=ref(CLAUDE)
    )
    words = TextPart(id=PartID("prt_next"), session_id=session, message_id=id, text="and now?")
    return MessageWithParts(info=info, parts=(words,))


def next_requests(
    kit: Kit, history: Sequence[MessageWithParts], model: Model
) -> Iterator[tuple[str, ModelRequest]]:
    """What may be asked of a model next: the next step, the last one, which has no tools, or a summary."""
    prompt = newest_prompt(history)
    assert prompt is not None
    yield "step", build_request(kit, history, Step(prompt), model, BASIS)
    yield "last step", build_request(kit, history, Step(prompt, last=True), model, BASIS)
    for request in summary_requests(history, prompt, model, SUMMARISER, most=kit.output_limit):
        yield "summary", request


class Reader:
    """A server that is only asked whether it would take a request; what it was asked before it is not asked again."""

    def __init__(self, wire: Wire, dialect: Dialect, like: Received) -> None:
        self._wire = wire
        self._dialect = dialect
        self._like = like
        self._seen: set[bytes] = set()

    def problem(self, request: ModelRequest) -> str | None:
        raw = to_bytes(self._wire.to_body(request))
        if raw in self._seen:
            return None
        self._seen.add(raw)
        return self._dialect.problem(replace(self._like, raw=raw))


async def greeting(wire: Wire) -> Received:
    """A request as the adapter sends it, for its address and headers."""
    async with (
        open_stand(wire.dialect(), wire.make, wire.model) as stand,
        open_house(model=wire.model, provider=stand.provider) as house,
    ):
        stand.play([Say(text="hello")])
        session = (await house.api.create_session(SessionInput(title="t"))).id
        await house.api.prompt(session, say("hello"))
        return stand.server.requests[0]


@pytest.mark.parametrize("session", SESSIONS)
@pytest.mark.parametrize("name", WIRES)
async def test_cut_anywhere_the_next_request_is_taken(name: str, session: str) -> None:
    hold_session, held_in_it = SESSIONS[session]
    async with open_held(name) as held:
        await hold_session(held, name)
        events = await held.events()
    assert kinds(events) == held_in_it
    own = held.stand.server.dialect
    readers = {
        other: (wire.model, Reader(wire, own if other == name else wire.dialect(), await greeting(wire)))
        for other, wire in WIRES.items()
    }
    refused = [
        (other, kind, problem)
        for history in histories(events)
        for other, (model, reader) in readers.items()
        for kind, request in next_requests(held.house.api.kit, history, model)
        if (problem := reader.problem(request)) is not None
    ]
    assert refused == []
