"""Waits between attempts: how long they are, who sees them, and how they end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from given.engine import NOW, Engine, InstantClock, open_engine, text_prompt
from weft.model.event import PublishedEvent, StatusChanged
from weft.model.failure import AbortedFailure, ApiFailure
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import ReasoningPart, RetryPart, TextPart, ToolPart
from weft.model.session import AnyStatus, Busy, Idle, Retry
from weft.provider.chunk import AnyChunk, Finished, Started, TextDelta, ToolInputStart, Usage
from weft.provider.contract import ModelRequest
from weft.provider.faults import make_error
from weft.provider.scripted import Fail, Say, Think
from weft.run.retry import MAX_RETRIES
from weft.run.runtime import RunDeadlines
from weft.testing.clock import HandClock


def rate_limit(wait_ms: int | None = None) -> Fail:
    return Fail(message="slow down", status=429, kind="rate-limit", retryable=True, wait_ms=wait_ms)


async def start(engine: Engine) -> SessionID:
    return (await engine.api.create_session(SessionInput(title="t"))).id


def info(message: MessageWithParts) -> AssistantMessage:
    assert isinstance(message.info, AssistantMessage)
    return message.info


async def statuses(events: AsyncIterator[PublishedEvent]) -> list[AnyStatus]:
    seen = []
    async for each in events:
        if isinstance(each.event, StatusChanged):
            seen.append(each.event.status)
        if each.event.type == "session.idle":
            break
    return seen


async def test_the_wait_requested_by_the_provider_is_kept_to_the_millisecond_and_reported() -> None:
    async with (
        asyncio.timeout(60),
        open_engine([rate_limit(12_345)], [Say(text="ok")], skip_waits=True) as engine,
    ):
        session, events = await start(engine), engine.api.events()
        answer = await engine.api.prompt(session, text_prompt("go"))

        assert info(answer).error is None
        assert await statuses(events) == [
            Busy(),
            Retry(attempt=1, message="slow down", next=NOW + 12_345),
            Busy(),
            Idle(),
        ]


async def test_a_wait_beyond_the_deadline_fails_at_once_and_names_the_requested_wait() -> None:
    deadlines = RunDeadlines(turn=1800)
    async with asyncio.timeout(60), open_engine([rate_limit(3_600_000)], deadlines=deadlines) as engine:
        answer = await engine.api.prompt(await start(engine), text_prompt("go"))
        error = info(answer).error

        assert isinstance(error, ApiFailure)
        assert (error.data.status_code, error.data.is_retryable) == (429, True)
        assert error.data.message == "slow down (it asks you to wait 60 minutes)"
        assert len(engine.provider.requests) == 1


async def test_long_waits_end_with_the_last_retry() -> None:
    clock = InstantClock(NOW)
    async with asyncio.timeout(60), open_engine(*[[rate_limit(400_000)]] * 9, clock=clock) as engine:
        answer = await engine.api.prompt(await start(engine), text_prompt("go"))

        assert isinstance(info(answer).error, ApiFailure)
        assert clock.now() - NOW == MAX_RETRIES * 400_000
        assert len(engine.provider.requests) == MAX_RETRIES + 1


async def test_retries_are_counted_however_short_their_waits() -> None:
    async with asyncio.timeout(60), open_engine(*[[rate_limit(0)]] * 20, skip_waits=True) as engine:
        await engine.api.prompt(await start(engine), text_prompt("go"))

        assert len(engine.provider.requests) == MAX_RETRIES + 1


async def test_a_long_wait_ends_at_once_when_aborted() -> None:
    clock = HandClock(NOW)
    async with (
        asyncio.timeout(60),
        open_engine([rate_limit(800_000)], [Say(text="x")], clock=clock) as engine,
    ):
        session = await start(engine)
        asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
        await clock.somebody_sleeps(800)
        await engine.api.abort(session)

        assert isinstance(info(await asking).error, AbortedFailure)
        assert (clock.now(), len(engine.provider.requests)) == (NOW, 1)


async def test_parts_of_a_failed_attempt_are_kept_but_ignored_and_its_incomplete_call_is_removed() -> None:
    class InterruptedProvider:
        """Thinks, speaks, begins to write a call, and breaks off; the second time it is whole."""

        def __init__(self) -> None:
            self.requests: list[ModelRequest] = []

        async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
            self.requests.append(request)
            yield Started()
            if len(self.requests) == 1:
                yield TextDelta(id="1", text="half")
                yield ToolInputStart(call_id="c", tool="echo")
                raise make_error("network", "reset")
            yield TextDelta(id="1", text="whole")
            yield Finished(reason="stop", usage=Usage())

    provider = InterruptedProvider()
    async with asyncio.timeout(60), open_engine(provider=provider, skip_waits=True) as engine:
        session = await start(engine)
        answer = await engine.api.prompt(session, text_prompt("go"))
        await engine.api.prompt(session, text_prompt("more"))

        texts = [(part.text, part.ignored) for part in answer.parts if isinstance(part, TextPart)]
        assert texts == [("half", True), ("whole", False)]
        assert not any(isinstance(part, ToolPart) for part in answer.parts)
        assert "half" not in str(provider.requests[-1].messages)
        assert answer == (await engine.store.list_messages(session))[1]


async def test_thoughts_of_a_failed_attempt_are_ignored_too() -> None:
    script = ([Think(text="hm"), rate_limit(1)], [Say(text="ok")])
    async with asyncio.timeout(60), open_engine(*script, skip_waits=True) as engine:
        answer = await engine.api.prompt(await start(engine), text_prompt("go"))

        assert [part.ignored for part in answer.parts if isinstance(part, ReasoningPart)] == [True]
        (setback,) = (part for part in answer.parts if isinstance(part, RetryPart))
        assert isinstance(setback.error, ApiFailure)
        assert setback.error.data.metadata == {
            "kind": "rate-limit",
            "providerID": "scripted",
            "modelID": "test",
        }
