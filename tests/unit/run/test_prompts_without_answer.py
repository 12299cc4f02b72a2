"""Prompts that no model answers, and prompts that were answered before."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence

import pytest

from given.engine import NOW, Engine, open_engine, text_prompt
from weft.cli.follow import follow
from weft.cli.run_screen import JsonScreen
from weft.errors import StoreError
from weft.model.agent import Instruction
from weft.model.event import Durable, Event, MessageUpdated, SessionFailed, SessionIdled, StatusChanged
from weft.model.failure import AbortedFailure, UnknownFailure
from weft.model.ids import Mint, SessionID
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import TextPart
from weft.model.session import SessionInfo
from weft.provider.scripted import Say, UseTool, Wait
from weft.store.contract import NO_LEASES
from weft.store.lease import LeaseToken
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock

PATIENCE = 60


def fail_to_read(_: Mapping[str, str]) -> tuple[Instruction, ...]:
    raise RuntimeError("the instructions are on fire")


async def start(engine: Engine) -> SessionID:
    return (await engine.api.create_session(SessionInput())).id


def info(message: MessageWithParts) -> AssistantMessage:
    assert isinstance(message.info, AssistantMessage)
    return message.info


def text_of(message: MessageWithParts) -> str:
    return " ".join(part.text for part in message.parts if isinstance(part, TextPart))


async def test_a_run_that_fails_before_any_answer_stores_the_reason_as_the_answer() -> None:
    async with asyncio.timeout(PATIENCE), open_engine([Say(text="x")], instructions=fail_to_read) as engine:
        session, listening = await start(engine), engine.api.events()
        answer = await engine.api.prompt(session, text_prompt("go"))
        collected: list[Event] = []
        async for each in listening:
            collected.append(each.event)
            if isinstance(each.event, SessionIdled):
                break

        prompt, stored = await engine.api.list_messages(session)
        assert stored == answer
        assert info(answer).parent_id == prompt.info.id
        assert isinstance(info(answer).error, UnknownFailure)
        assert "on fire" in str(info(answer).error)
        assert info(answer).time.completed is not None
        assert [e.error for e in collected if isinstance(e, SessionFailed)] == [info(answer).error]
        assert engine.provider.requests == []


async def test_a_prompt_aborted_before_its_run_began_has_an_aborted_answer() -> None:
    async with asyncio.timeout(PATIENCE), open_engine([Say(text="never")], [Say(text="fresh")]) as engine:
        session = await start(engine)
        id = (await engine.api.submit(session, text_prompt("go"))).info.id
        listening = engine.api.events()
        await engine.api.abort(session)
        prompt, answer = await engine.api.list_messages(session)

        assert prompt.info.id == id
        assert isinstance(info(answer).error, AbortedFailure)
        async for published in listening:
            if isinstance(published.event, SessionIdled):
                break
        assert info(await engine.api.prompt(session, text_prompt("again"))).finish == "stop"


async def test_a_prompt_waiting_behind_an_aborted_answer_gets_a_failed_answer() -> None:
    clock = HandClock(NOW)
    script = ([Say(text="one"), Wait(seconds=99)], [Say(text="fresh")])
    async with asyncio.timeout(PATIENCE), open_engine(*script, clock=clock) as engine:
        session = await start(engine)
        first = asyncio.ensure_future(engine.api.prompt(session, text_prompt("first")))
        await clock.somebody_sleeps(99)
        second = asyncio.ensure_future(engine.api.prompt(session, text_prompt("second")))
        while len(await engine.api.list_messages(session)) < 3:  # noqa: ASYNC110  a turn of the loop each
            await asyncio.sleep(0)
        await engine.api.abort(session)

        both = info(await first), info(await second)
        assert all(isinstance(each.error, AbortedFailure) for each in both)
        asked = [
            each.info.id for each in await engine.api.list_messages(session) if text_of(each) == "second"
        ]
        assert [both[1].parent_id] == asked


class FullDiskStore(MemoryStore):
    """A store whose disk is full when an answer is stored."""

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        if any(isinstance(e, MessageUpdated) and isinstance(e.info, AssistantMessage) for e in events):
            raise StoreError("no space left")
        await super().apply(*events, leases=leases)


async def test_a_failure_that_cannot_be_stored_is_raised_and_the_session_becomes_idle() -> None:
    async with asyncio.timeout(PATIENCE), open_engine([Say(text="x")], store=FullDiskStore()) as engine:
        session, listening = await start(engine), engine.api.events()
        with pytest.raises(StoreError, match="no space left"):
            await engine.api.prompt(session, text_prompt("go"))
        async for published in listening:
            if isinstance(published.event, SessionIdled):
                break

        assert len(await engine.api.list_messages(session)) == 1
        assert await engine.api.list_status() == {}


async def test_the_json_result_is_printed_even_if_nothing_can_be_stored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with asyncio.timeout(PATIENCE), open_engine([Say(text="x")], store=FullDiskStore()) as engine:
        session = await start(engine)
        screen = JsonScreen(session, HandClock(NOW))
        code = await follow(engine.api, await engine.api.get_session(session), text_prompt("go"), screen)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])

    assert (code, last["type"], last["status"]) == (1, "result", "failed")
    assert "no space left" in str(last["error"])


async def test_an_answered_prompt_sent_again_returns_its_answer_and_starts_nothing() -> None:
    async with asyncio.timeout(PATIENCE), open_engine([Say(text="one")], [Say(text="two")]) as engine:
        session, mint = await start(engine), Mint(lambda: NOW, bytes)
        first = text_prompt("go", message_id=mint.message())
        answer = await engine.api.prompt(session, first)
        later = await engine.api.prompt(session, text_prompt("and then"))
        before, listening = await engine.api.list_messages(session), engine.api.events()

        assert await engine.api.prompt(session, first) == answer
        assert (await engine.api.submit(session, first)).info.id == first.message_id
        assert await engine.api.list_messages(session) == before
        assert text_of(later) == "two"
        await engine.api.rename_session(session, "seen")
        async for published in listening:
            assert not isinstance(published.event, StatusChanged)
            if published.event.type == "session.updated":
                break


async def test_a_prompt_left_unanswered_by_a_crash_is_answered_when_sent_again() -> None:
    store, asked = MemoryStore(), text_prompt("go", message_id=Mint(lambda: NOW, bytes).message())
    async with open_engine(store=store) as engine:
        session = await start(engine)
        kept = await engine.api.prompt(session, text_prompt("go", message_id=asked.message_id, no_reply=True))
    async with asyncio.timeout(PATIENCE), open_engine([Say(text="here")], store=store, seed=2) as engine:
        answer = await engine.api.prompt(session, asked)

        assert info(answer).parent_id == kept.info.id
        assert text_of(answer) == "here"
        assert len(await engine.api.list_messages(session)) == 2


class FailingEditStore(MemoryStore):
    """A store that cannot store what a step spent."""

    async def edit(
        self,
        id: SessionID,
        editor: Callable[[SessionInfo], SessionInfo],
        *events: Durable,
        leases: Sequence[LeaseToken] = NO_LEASES,
    ) -> SessionInfo:
        has_answer = any(isinstance(each.info, AssistantMessage) for each in await self.list_messages(id))
        if has_answer and not events:
            raise StoreError("a book is missing")
        return await super().edit(id, editor, *events, leases=leases)


async def test_a_run_that_fails_between_two_steps_ends_with_the_reason() -> None:
    script = ([UseTool(tool="echo", input={"words": "x"})], [Say(text="never")])
    async with asyncio.timeout(PATIENCE), open_engine(*script, store=FailingEditStore()) as engine:
        session = await start(engine)
        answer = await engine.api.prompt(session, text_prompt("go"))

        assert "a book is missing" in str(info(answer).error)
        assert (await engine.api.list_messages(session))[-1] == answer


@pytest.mark.parametrize("turns", range(0, 90, 3))
async def test_an_abort_at_any_moment_leaves_no_prompt_without_an_answer(turns: int) -> None:
    script = [[UseTool(tool="echo", input={"words": "x"})], *([Say(text="fine")] for _ in range(6))]
    async with asyncio.timeout(PATIENCE), open_engine(*script) as engine:
        session = await start(engine)
        first = asyncio.ensure_future(engine.api.prompt(session, text_prompt("one")))
        for _ in range(turns):
            await asyncio.sleep(0)
        second = asyncio.ensure_future(engine.api.prompt(session, text_prompt("two")))
        for _ in range(turns % 7):
            await asyncio.sleep(0)
        await engine.api.abort(session)
        third = info(await engine.api.prompt(session, text_prompt("three")))
        early = info(await first), info(await second)
        stored = await engine.api.list_messages(session)

    assert (third.finish, third.error) == ("stop", None)
    assert all(isinstance(each.error, AbortedFailure) or each.finish == "stop" for each in early)
    answers = [each.info for each in stored if isinstance(each.info, AssistantMessage)]
    assert all(each.time.completed is not None for each in answers)
