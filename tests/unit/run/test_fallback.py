"""A chain of models: if one fails for good, the next is asked, and the message names the model that answered."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from given.engine import ALLOW, NOW, Engine, InstantClock, open_engine, text_prompt
from weft.errors import FaultKind, ModelNotFoundError, ProviderAuthError
from weft.model.agent import AgentInfo
from weft.model.catalog import Cost, Limit, Model
from weft.model.event import PublishedEvent, StatusChanged
from weft.model.failure import ApiFailure, AuthData, AuthFailure
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import ModelRef, RetryPart, TextPart
from weft.model.session import Retry
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.chunk import AnyChunk, Usage
from weft.provider.contract import ModelRequest
from weft.provider.registry import COOL_DOWN_MS, LONG_COOL_DOWN_MS, ServedModel
from weft.provider.scripted import AnyMove, End, Fail, Say, ScriptedProvider, UseTool
from weft.run.retry import MAX_RETRIES
from weft.testing.clock import HandClock

Script = Sequence[Sequence[AnyMove]]
BUSY = Fail(message="overloaded", status=529, kind="overload", retryable=True)


class ModelChain(Struct, frozen=True):
    """An engine whose agent has the chain a, b, c; each model plays its own script."""

    engine: Engine
    clock: HandClock
    models: dict[str, ScriptedProvider]

    def count_requests(self) -> dict[str, int]:
        return {name: len(provider.requests) for name, provider in self.models.items() if provider.requests}


def ref(name: str) -> ModelRef:
    return ModelRef(provider_id="scripted", model_id=name)


def make_model(name: str, **more: object) -> Model:
    return replace(make_scripted_model(name), **more)


@asynccontextmanager
async def open_chain(
    a: Script, b: Script = (), c: Script = (), *, clock: HandClock | None = None, **more: Any
) -> AsyncIterator[ModelChain]:
    clock = clock or InstantClock(NOW)
    models = {name: ScriptedProvider(script, clock) for name, script in (("a", a), ("b", b), ("c", c))}
    own: Any = more.pop("models", {})
    others: Any = more.pop("others", ())
    served = tuple(
        ServedModel(own.get(name, make_model(name)), provider) for name, provider in models.items()
    )
    agent = AgentInfo(
        name="build",
        mode="primary",
        permission=ALLOW,
        model=ref("a"),
        fallback=(ref("b"), ref("c")),
    )
    async with (
        asyncio.timeout(60),
        open_engine(agents=(agent, *others), more_models=served, clock=clock, **more) as engine,
    ):
        yield ModelChain(engine, clock, models)


async def start(chain: ModelChain) -> SessionID:
    return (await chain.engine.api.create_session(SessionInput(title="t"))).id


def info(message: MessageWithParts) -> AssistantMessage:
    assert isinstance(message.info, AssistantMessage)
    return message.info


def text_of(message: MessageWithParts) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, TextPart) and not part.ignored)


def list_failed_attempts(message: MessageWithParts) -> list[tuple[int, str]]:
    """Return which attempts failed, and of which model."""
    found = []
    for part in message.parts:
        if isinstance(part, RetryPart):
            data = part.error.data if isinstance(part.error, ApiFailure) else None
            found.append((part.attempt, (data.metadata or {}).get("modelID", "") if data else "?"))
    return found


async def statuses(events: AsyncIterator[PublishedEvent]) -> list[Retry]:
    seen = []
    async for each in events:
        if isinstance(each.event, StatusChanged) and isinstance(each.event.status, Retry):
            seen.append(each.event.status)
        if each.event.type == "session.idle":
            break
    return seen


async def test_the_next_model_answers_in_the_same_step() -> None:
    half: list[AnyMove] = [Say(text="half an ans"), BUSY]
    price = Cost(input=Decimal(7), output=Decimal(0))
    async with open_chain(
        [half] * 9,
        [[Say(text="whole"), End(usage=Usage(input=1_000_000))]],
        models={"b": make_model("b", cost=price)},
    ) as chain:
        session, events = await start(chain), chain.engine.api.events()
        answer = await chain.engine.api.prompt(session, text_prompt("go"))

        assert (info(answer).provider_id, info(answer).model_id) == ("scripted", "b")
        assert (info(answer).error, info(answer).finish, info(answer).cost) == (None, "stop", Decimal(7))
        assert text_of(answer) == "whole"
        assert list_failed_attempts(answer) == [(1, "a"), (2, "a"), (3, "a")]
        assert chain.count_requests() == {"a": 3, "b": 1}
        assert [status.message for status in await statuses(events)] == [
            "overloaded",
            "overloaded",
            "overloaded; asking scripted/b instead",
        ]
        stored = (await chain.engine.api.list_messages(session))[-1]
        assert stored == answer
        half_texts = [part.ignored for part in answer.parts if isinstance(part, TextPart)]
        assert half_texts == [True, True, True, False]


async def test_the_partial_answer_of_a_failed_model_is_not_shown_to_the_next() -> None:
    quits: list[AnyMove] = [Say(text="half"), Fail(message="key", kind="auth")]
    async with open_chain([quits], [[Say(text="one")], [Say(text="two")]]) as chain:
        session = await start(chain)
        await chain.engine.api.prompt(session, text_prompt("go"))
        await chain.engine.api.prompt(session, text_prompt("again"))

        assert "half" not in str(chain.models["b"].requests)


@pytest.mark.parametrize("kind", ["auth", "quota", "not-found", "output-length"])
async def test_an_error_that_waiting_does_not_fix_goes_to_the_next_model_at_once(kind: FaultKind) -> None:
    async with open_chain([[Fail(message="no", kind=kind)]], [[Say(text="here")]]) as chain:
        answer = await chain.engine.api.prompt(await start(chain), text_prompt("go"))

        assert (text_of(answer), chain.count_requests(), chain.clock.now()) == ("here", {"a": 1, "b": 1}, NOW)


async def test_a_long_wait_is_skipped_if_another_model_is_available() -> None:
    limited = Fail(message="slow down", status=429, kind="rate-limit", retryable=True, wait_ms=300_000)
    async with open_chain([[limited]], [[Say(text="here")]]) as chain:
        answer = await chain.engine.api.prompt(await start(chain), text_prompt("go"))

        assert (text_of(answer), chain.count_requests(), chain.clock.now()) == ("here", {"a": 1, "b": 1}, NOW)


@pytest.mark.parametrize("kind", ["bad-request", "content-filter"])
async def test_an_error_that_another_model_would_repeat_is_not_retried_there(kind: FaultKind) -> None:
    async with open_chain([[Fail(message="no", status=400, kind=kind)]], [[Say(text="here")]]) as chain:
        answer = await chain.engine.api.prompt(await start(chain), text_prompt("go"))

        assert isinstance(info(answer).error, ApiFailure)
        assert (info(answer).model_id, chain.count_requests()) == ("a", {"a": 1})


async def test_a_too_long_history_is_compacted_and_not_sent_to_another_model() -> None:
    async with open_chain([[Fail(message="too long", kind="overflow")]], auto=False) as chain:
        answer = await chain.engine.api.prompt(await start(chain), text_prompt("go"))

        assert (info(answer).model_id, chain.count_requests()) == ("a", {"a": 1})


async def test_if_the_whole_chain_fails_the_last_failure_is_stored() -> None:
    quits = [[Fail(message=f"no {name}", kind="auth")] for name in "abc"]
    async with open_chain([quits[0]], [quits[1]], [quits[2]]) as chain:
        answer = await chain.engine.api.prompt(await start(chain), text_prompt("go"))
        error = info(answer).error

        assert isinstance(error, ApiFailure)
        assert (error.data.message, info(answer).model_id) == ("no c", "c")
        assert list_failed_attempts(answer) == [(1, "a"), (2, "b")]
        assert info(answer).time.completed is not None


async def test_only_the_last_model_of_a_chain_gets_all_retries() -> None:
    quits = [Fail(message="no", kind="auth")]
    async with open_chain([quits], [quits], [[BUSY]] * MAX_RETRIES + [[Say(text="at last")]]) as chain:
        answer = await chain.engine.api.prompt(await start(chain), text_prompt("go"))

        assert (text_of(answer), chain.count_requests()) == (
            "at last",
            {"a": 1, "b": 1, "c": MAX_RETRIES + 1},
        )


async def test_the_next_steps_use_a_healthy_model_and_return_after_the_cooldown() -> None:
    script: Script = [
        [UseTool(tool="echo", input={"words": "x"})],
        [Say(text="b again")],
        [Say(text="still b")],
    ]
    a: Script = [[Fail(message="no", kind="server")], [Say(text="a is back")]]
    async with open_chain(a, script) as chain:
        session = await start(chain)
        await chain.engine.api.prompt(session, text_prompt("go"))
        second = await chain.engine.api.prompt(session, text_prompt("more"))
        chain.clock.turn(COOL_DOWN_MS)
        third = await chain.engine.api.prompt(session, text_prompt("and more"))

        answers = [
            m for m in await chain.engine.api.list_messages(session) if not isinstance(m.info, UserMessage)
        ]
        assert [(info(each).model_id, list_failed_attempts(each)) for each in answers] == [
            ("b", [(1, "a")]),
            ("b", []),
            ("b", []),
            ("a", []),
        ]
        assert (text_of(second), text_of(third)) == ("still b", "a is back")


async def test_a_rate_limit_with_an_end_is_respected() -> None:
    limited = Fail(message="slow down", kind="rate-limit", retryable=True, wait_ms=3 * COOL_DOWN_MS)
    async with open_chain([[limited], [Say(text="back")]], [[Say(text="one")], [Say(text="two")]]) as chain:
        session = await start(chain)
        asked = []
        for wait in (0, 2 * COOL_DOWN_MS, COOL_DOWN_MS):
            chain.clock.turn(wait)
            asked.append(text_of(await chain.engine.api.prompt(session, text_prompt("go"))))

        assert asked == ["one", "two", "back"]


async def test_a_model_with_an_invalid_key_has_a_longer_cooldown() -> None:
    async with open_chain(
        [[Fail(message="no", kind="auth")], [Say(text="back")]], [[Say(text="one")], [Say(text="two")]]
    ) as chain:
        session = await start(chain)
        asked = []
        for wait in (0, COOL_DOWN_MS, LONG_COOL_DOWN_MS - COOL_DOWN_MS):
            chain.clock.turn(wait)
            asked.append(text_of(await chain.engine.api.prompt(session, text_prompt("go"))))

        assert asked == ["one", "two", "back"]


async def test_a_model_chosen_by_hand_has_no_fallback() -> None:
    async with open_chain([[Fail(message="no", kind="auth")]], [[Say(text="here")]]) as chain:
        answer = await chain.engine.api.prompt(await start(chain), text_prompt("go", model=ref("a")))

        assert isinstance(info(answer).error, ApiFailure)
        assert chain.count_requests() == {"a": 1}


async def test_a_chain_with_an_unknown_model_is_refused_before_anything_is_stored() -> None:
    agent = AgentInfo(name="build", mode="primary", model=ref("test"), fallback=(ref("tset"),))
    async with open_engine([Say(text="x")], agents=(agent,)) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        with pytest.raises(ModelNotFoundError, match="scripted/tset"):
            await engine.api.prompt(session, text_prompt("go"))

        assert await engine.api.list_messages(session) == []


async def test_a_variant_that_only_the_first_model_has_does_not_stop_the_next() -> None:
    clever = make_model("a", variants={"high": {"effort": "high"}})
    async with open_chain(
        [[Fail(message="no", kind="auth")]], [[Say(text="here")]], models={"a": clever}
    ) as chain:
        answer = await chain.engine.api.prompt(await start(chain), text_prompt("go", variant="high"))

        assert text_of(answer) == "here"
        assert chain.models["a"].requests[0].parameters.options == {"effort": "high"}
        assert chain.models["b"].requests[0].parameters.options == {}


async def test_the_context_limit_is_that_of_the_model_that_answers() -> None:
    small = make_model("b", limit=Limit(context=2_000, output=500))
    long = "many words " * 2_000
    async with open_chain(
        [[Fail(message="no", kind="auth")]],
        [[Say(text="short")], [Say(text="a summary")], [Say(text="on it")]],
        models={"b": small},
        others=(AgentInfo(name="compaction", mode="primary", prompt="Sum it up.", hidden=True),),
    ) as chain:
        session = await start(chain)
        await chain.engine.api.prompt(session, text_prompt("go"))
        await chain.engine.api.prompt(session, text_prompt(long))

        summaries = [
            info(m).model_id
            for m in await chain.engine.api.list_messages(session)
            if isinstance(m.info, AssistantMessage) and m.info.summary
        ]
        assert summaries == ["b"]


async def test_a_switch_of_models_can_be_aborted() -> None:
    clock = HandClock(NOW)
    async with open_chain([[BUSY]] * 3, [[Say(text="never")]], clock=clock) as chain:
        session = await start(chain)
        asking = asyncio.ensure_future(chain.engine.api.prompt(session, text_prompt("go")))
        await clock.somebody_sleeps(2)
        await chain.engine.api.abort(session)

        assert info(await asking).error is not None
        assert chain.count_requests() == {"a": 1}


async def test_a_model_without_its_key_is_skipped_with_a_hint() -> None:
    class KeylessProvider:
        """A model without a key: it fails before there is a stream."""

        def stream(self, _: ModelRequest) -> AsyncGenerator[AnyChunk]:
            raise ProviderAuthError("mill", "there is no key: set MILL_API_KEY")

    agent = AgentInfo(name="build", mode="primary", model=ref("locked"), fallback=(ref("test"),))
    locked = ServedModel(make_model("locked"), KeylessProvider())
    async with open_engine([Say(text="here")], agents=(agent,), more_models=(locked,)) as engine:
        session = (await engine.api.create_session(SessionInput())).id
        answer = await engine.api.prompt(session, text_prompt("go"))

        (setback,) = (part for part in answer.parts if isinstance(part, RetryPart))
        missing = AuthData(provider_id="mill", message="there is no key: set MILL_API_KEY")
        assert setback.error == AuthFailure(data=missing)
        assert (text_of(answer), info(answer).model_id) == ("here", "test")
