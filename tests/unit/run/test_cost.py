"""The cost of answers, also of those that broke off or were aborted."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal

from msgspec.structs import replace

from given.engine import NOW, EchoInput, Engine, InstantClock, open_engine, text_prompt
from weft.errors import ProviderError
from weft.model.agent import AgentInfo
from weft.model.catalog import Cost, Limit
from weft.model.event import PartUpdated
from weft.model.failure import AbortedFailure
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import (
    ModelRef,
    ReasoningPart,
    RetryPart,
    StepFinishPart,
    StepStartPart,
    TextPart,
    Tokens,
    WeftStepData,
)
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.chunk import (
    AnyChunk,
    Finished,
    ReasoningDelta,
    ReasoningStart,
    Started,
    TextDelta,
    TextStart,
    ToolCall,
    ToolInputStart,
    Usage,
)
from weft.provider.contract import ModelRequest, UserModelMessage
from weft.provider.registry import ServedModel
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult

MILLION = Usage(input=1_000_000, raw={"input_tokens": 1_000_000})
WORDS = (TextStart(id="t"), TextDelta(id="t", text="half an ans"))
WHOLE = Finished(reason="stop", usage=Usage(input=2_000_000, output=10, raw={"input_tokens": 2_000_000}))
OVERLOADED = ProviderError("overloaded", status=529, retryable=True)

Answer = tuple[AnyChunk | ProviderError, ...]


class MeteredProvider:
    """Gives these answers, one for each request. An answer that neither ends nor fails hangs."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self.requests.append(request)
        for chunk in self._answers.pop(0):
            if isinstance(chunk, ProviderError):
                raise chunk
            yield chunk
            if isinstance(chunk, Finished):
                return
        await asyncio.Event().wait()


@asynccontextmanager
async def open_metered(meter: MeteredProvider, *tools: AnyTool) -> AsyncIterator[tuple[Engine, SessionID]]:
    """Open an engine whose model costs three dollars per million tokens, in or out, and create a session."""
    model = replace(
        make_scripted_model("metered"),
        cost=Cost(input=Decimal(3), output=Decimal(3)),
        limit=Limit(context=10_000_000, output=8_000),
    )
    agent = AgentInfo(
        name="build", mode="primary", model=ModelRef(provider_id="scripted", model_id="metered")
    )
    async with (
        asyncio.timeout(20),
        open_engine(
            agents=(agent,), more_models=(ServedModel(model, meter),), tools=tools, clock=InstantClock(NOW)
        ) as engine,
    ):
        yield engine, (await engine.api.create_session(SessionInput(title="t"))).id


async def prompt_and_abort(engine: Engine, session: SessionID) -> MessageWithParts:
    """Prompt, and abort the answer after its first text."""
    events = engine.api.events()
    asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
    async for published in events:
        part = published.event.part if isinstance(published.event, PartUpdated) else None
        if isinstance(part, ReasoningPart) or (isinstance(part, TextPart) and part.text == "half an ans"):
            break
    await engine.api.abort(session)
    return await asking


def info(message: MessageWithParts) -> AssistantMessage:
    assert isinstance(message.info, AssistantMessage)
    return message.info


def list_charges(message: MessageWithParts) -> list[tuple[str, Decimal, bool]]:
    return [
        (part.reason, part.cost, part.priced) for part in message.parts if isinstance(part, StepFinishPart)
    ]


async def test_an_interrupted_attempt_is_charged_in_addition_to_the_answer() -> None:
    broken: Answer = (Started(usage=MILLION), *WORDS, OVERLOADED)
    async with open_metered(MeteredProvider(broken, (Started(), WHOLE))) as (engine, session):
        answer = await engine.api.prompt(session, text_prompt("go"))
        spent = (await engine.api.get_spending(session)).own

    assert list_charges(answer) == [("error", Decimal(3), False), ("stop", Decimal("6.00003"), True)]
    assert (info(answer).cost, info(answer).priced) == (Decimal("9.00003"), False)
    assert (spent.cost, spent.priced) == (Decimal("9.00003"), False)
    # The next request is estimated from the counts of the complete answer.
    assert info(answer).tokens == Tokens(input=2_000_000, output=10)


async def test_an_aborted_answer_is_charged_as_far_as_known() -> None:
    meter = MeteredProvider((Started(usage=MILLION), *WORDS))
    async with open_metered(meter) as (engine, session):
        answer = await prompt_and_abort(engine, session)
        spent = (await engine.api.get_spending(session)).own

    assert isinstance(info(answer).error, AbortedFailure)
    assert list_charges(answer) == [("error", Decimal(3), False)]
    assert (info(answer).cost, info(answer).tokens) == (Decimal(3), Tokens(input=1_000_000))
    assert (spent.cost, spent.input, spent.priced) == (Decimal(3), 1_000_000, False)


async def test_an_aborted_answer_with_only_a_thought_is_charged_and_not_shown_again() -> None:
    thought = (ReasoningStart(id="r"), ReasoningDelta(id="r", text="hm"))
    meter = MeteredProvider((Started(usage=MILLION), *thought), (Started(), WHOLE))
    async with open_metered(meter) as (engine, session):
        answer = await prompt_and_abort(engine, session)
        await engine.api.prompt(session, text_prompt("on"))

    # OpenCode shows a model every message with more than a thought, and the end of a step would be more.
    assert [type(part) for part in answer.parts] == [StepStartPart, ReasoningPart]
    assert (info(answer).cost, info(answer).tokens) == (Decimal(3), Tokens(input=1_000_000))
    assert [type(turn) for turn in meter.requests[-1].messages] == [UserModelMessage, UserModelMessage]


async def test_an_answer_whose_call_is_aborted_costs_what_the_provider_reported() -> None:
    is_counted = asyncio.Event()

    async def hang(_: EchoInput, __: ToolContext) -> ToolResult:
        for _turn in range(100):  # until the end of the stream is taken
            await asyncio.sleep(0)
        is_counted.set()
        await asyncio.Event().wait()
        raise AssertionError("never")

    tool: AnyTool = Tool(name="hang", about="Never return.", takes=EchoInput, run=hang)
    meter = MeteredProvider((Started(), ToolCall(call_id="c", tool="hang", raw='{"words": ""}'), WHOLE))
    async with open_metered(meter, tool) as (engine, session):
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        await is_counted.wait()
        await engine.api.abort(session)
        answer = await asking

    assert isinstance(info(answer).error, AbortedFailure)
    assert list_charges(answer) == [("error", Decimal("6.00003"), True)]
    assert (info(answer).cost, info(answer).priced, info(answer).counted) == (Decimal("6.00003"), True, True)


async def test_an_answer_that_fails_after_it_began_is_charged() -> None:
    refused = ProviderError("no", status=400)
    async with open_metered(MeteredProvider((Started(usage=MILLION), refused))) as (engine, session):
        answer = await engine.api.prompt(session, text_prompt("go"))

    assert info(answer).error is not None
    assert (info(answer).cost, list_charges(answer)) == (Decimal(3), [("error", Decimal(3), False)])


async def test_text_without_reported_usage_has_an_unknown_cost() -> None:
    async with open_metered(MeteredProvider((Started(), *WORDS, OVERLOADED), (Started(), WHOLE))) as (
        engine,
        session,
    ):
        answer = await engine.api.prompt(session, text_prompt("go"))

    assert list_charges(answer) == [("stop", Decimal("6.00003"), True)]
    assert (info(answer).cost, info(answer).priced) == (Decimal("6.00003"), False)


async def test_a_call_that_broke_off_without_reported_usage_has_an_unknown_cost() -> None:
    broken: Answer = (Started(), ToolInputStart(call_id="c", tool="write"), OVERLOADED)
    async with open_metered(MeteredProvider(broken, (Started(), WHOLE))) as (engine, session):
        answer = await engine.api.prompt(session, text_prompt("go"))

    assert (info(answer).cost, info(answer).priced, info(answer).counted) == (
        Decimal("6.00003"),
        False,
        False,
    )


async def test_the_cost_of_a_failed_attempt_is_stored_before_the_next_one() -> None:
    broken: Answer = (Started(usage=MILLION), *WORDS, OVERLOADED)
    async with open_metered(MeteredProvider(broken, (Started(),))) as (engine, session):
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        async for published in engine.api.events(after=0):
            if isinstance(published.event, PartUpdated) and isinstance(published.event.part, RetryPart):
                break
        stored = (await engine.store.list_messages(session))[-1]
        await engine.api.abort(session)
        await asking

    assert (info(stored).cost, list_charges(stored)) == (Decimal(3), [("error", Decimal(3), False)])


async def test_a_request_refused_before_any_output_is_free() -> None:
    async with open_metered(MeteredProvider((OVERLOADED,), (Started(), OVERLOADED), (Started(), WHOLE))) as (
        engine,
        session,
    ):
        answer = await engine.api.prompt(session, text_prompt("go"))

    assert (info(answer).cost, info(answer).priced) == (Decimal("6.00003"), True)


async def test_the_raw_usage_of_the_provider_is_kept() -> None:
    async with open_metered(MeteredProvider((Started(), WHOLE))) as (engine, session):
        answer = await engine.api.prompt(session, text_prompt("go"))
        (stored,) = [
            part
            for part in (await engine.api.list_messages(session))[-1].parts
            if isinstance(part, StepFinishPart)
        ]

    assert stored in answer.parts
    assert stored.weft == WeftStepData(usage={"input_tokens": 2_000_000})
