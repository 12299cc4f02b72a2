"""Runs on a store that fails at some writes and works again afterwards."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal

from given.engine import NOW, Engine, open_engine, text_prompt
from weft.errors import StoreError
from weft.model.event import Durable, MessageUpdated
from weft.model.failure import StorageFailure
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import StepFinishPart, StepStartPart
from weft.model.session import get_weft_data
from weft.model.transcript import Transcript
from weft.provider.chunk import Started, Usage
from weft.provider.scripted import End, Say, Wait
from weft.run.answer import PendingAnswer
from weft.run.decide import ModelStep
from weft.run.processor import CallStarted
from weft.store.contract import NO_LEASES
from weft.store.lease import LeaseToken
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock

SPENT = [Say(text="woven"), End(usage=Usage(input=1_000, output=100))]
COST = Decimal("0.0045")


class RefusingStore(MemoryStore):
    """Refuses some writes of messages. With `late`, it has done the first of them before it says so."""

    def __init__(self, refuses: Callable[[int], bool], *, late: bool = False) -> None:
        super().__init__()
        self._refuses = refuses
        self._late = late
        self._count = 0

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        if any(is_ended_answer(event) for event in events):
            self._count += 1
            if self._refuses(self._count):
                if self._late and self._count == 1:
                    await super().apply(*events, leases=leases)
                raise StoreError("no space left")
        await super().apply(*events, leases=leases)


def is_ended_answer(event: Durable) -> bool:
    return (
        isinstance(event, MessageUpdated)
        and isinstance(event.info, AssistantMessage)
        and event.info.time.completed is not None
    )


async def ask(engine: Engine) -> MessageWithParts:
    """Prompt a session, and return the answer as it is stored."""
    session = await engine.api.create_session(SessionInput(title="Cloth"))
    await engine.api.prompt(session.id, text_prompt("weave"))
    return (await engine.store.list_messages(session.id))[-1]


def add_steps(answer: MessageWithParts) -> Decimal:
    return sum((part.cost for part in answer.parts if isinstance(part, StepFinishPart)), Decimal(0))


async def test_an_answer_whose_end_is_refused_once_still_has_its_cost() -> None:
    async with open_engine(SPENT, store=RefusingStore(lambda number: number == 1)) as engine:
        answer = await ask(engine)
    assert isinstance(answer.info, AssistantMessage)
    assert (answer.info.cost, add_steps(answer)) == (COST, COST)


async def test_an_answer_stored_despite_a_reported_error_keeps_its_cost() -> None:
    async with open_engine(SPENT, store=RefusingStore(lambda number: number <= 2, late=True)) as engine:
        answer = await ask(engine)
    assert isinstance(answer.info, AssistantMessage)
    assert (answer.info.cost, add_steps(answer), answer.info.error) == (COST, COST, None)


async def test_the_ledger_counts_an_answer_once_it_is_complete() -> None:
    slow = [Wait(seconds=2), *SPENT]
    async with open_engine(
        slow, slow, store=RefusingStore(lambda number: number <= 2), skip_waits=True
    ) as engine:
        answer = await ask(engine)
        session = answer.info.session_id
        await engine.api.prompt(session, text_prompt("go on"))
        ledger = get_weft_data(await engine.api.get_session(session)).spent
        spending = await engine.api.get_spending(session)
        answers = [each.info for each in await engine.store.list_messages(session)]
    assert ledger is not None
    assert ledger.own == spending.own
    times = [each.time for each in answers if isinstance(each, AssistantMessage)]
    assert ledger.own.ms == sum((time.completed or 0) - time.created for time in times)


async def test_a_prompt_queued_behind_an_answer_that_could_not_be_stored_fails_too() -> None:
    clock, store = HandClock(NOW), RefusingStore(lambda number: number <= 2)
    async with open_engine([Wait(seconds=99), *SPENT], store=store, clock=clock) as engine:
        session = (await engine.api.create_session(SessionInput(title="Cloth"))).id
        first = asyncio.ensure_future(engine.api.prompt(session, text_prompt("first")))
        await clock.somebody_sleeps(99)
        second = asyncio.ensure_future(engine.api.prompt(session, text_prompt("second")))
        while len(await engine.store.list_messages(session)) < 3:  # noqa: ASYNC110  a turn of the loop each
            await asyncio.sleep(0)
        clock.turn(99_000)
        answers = [(await first).info, (await second).info]
    assert [isinstance(each, AssistantMessage) and type(each.error) for each in answers] == [
        StorageFailure,
        StorageFailure,
    ]


class SlowRefusingStore(MemoryStore):
    """Lets other tasks run while it writes, and refuses every answer."""

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        if any(
            isinstance(each, MessageUpdated) and isinstance(each.info, AssistantMessage) for each in events
        ):
            raise StoreError("no space left")
        await super().apply(*events, leases=leases)


async def test_every_caller_is_told_that_no_answer_could_be_stored() -> None:
    async with open_engine(SPENT, store=SlowRefusingStore()) as engine:
        session = (await engine.api.create_session(SessionInput(title="Cloth"))).id
        told = await asyncio.gather(*(ask_or_fail(engine, session, words) for words in ("first", "second")))
    assert told == ["no space left", "no space left"]


async def ask_or_fail(engine: Engine, session: SessionID, words: str) -> str:
    try:
        answer = await engine.api.prompt(session, text_prompt(words))
    except StoreError as error:
        return str(error)
    return answer.info.role


class FullStore(MemoryStore):
    """Refuses every write while it is `full`."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        await asyncio.sleep(0)
        if self.full:
            raise StoreError("no space left")
        await super().apply(*events, leases=leases)


async def test_events_held_for_the_next_commit_are_kept_if_two_commits_fail_at_once() -> None:
    store = FullStore()
    async with open_engine(store=store) as engine:
        session = await engine.api.create_session(SessionInput(title="Cloth"))
        prompt = await engine.api.prompt(session.id, text_prompt("weave", no_reply=True))
        assert isinstance(prompt.info, UserMessage)
        answer = PendingAnswer(engine.api.runtime, session, Transcript([prompt]), ModelStep(prompt.info))
        await answer.begin()
        answer.hold(answer.processor.feed(Started()))
        store.full = True
        calls = [CallStarted(call_id=id, tool="echo", input={}) for id in ("one", "two")]
        refused = await asyncio.gather(
            *(answer.commit(answer.processor.feed(call)) for call in calls), return_exceptions=True
        )
        store.full = False
        await answer.commit()
        stored = await store.find_message(session.id, answer.message.id)
    assert [type(error) for error in refused] == [StoreError, StoreError]
    assert stored is not None
    assert [type(part) for part in stored.parts] == [StepStartPart]


class UnreleasableStore(MemoryStore):
    """Cannot say that a lease is given back, as a store that can no longer be reached."""

    @asynccontextmanager
    async def lease(self, session: SessionID, owner: str) -> AsyncIterator[LeaseToken]:
        async with super().lease(session, owner) as token:
            yield token
        raise StoreError("the connection is lost")


async def test_a_run_ends_and_the_next_begins_if_the_lease_could_not_be_given_back() -> None:
    async with open_engine([Say(text="woven")], [Say(text="again")], store=UnreleasableStore()) as engine:
        session = (await engine.api.create_session(SessionInput(title="Cloth"))).id
        for _ in range(2):
            async with asyncio.timeout(5):
                answer = await engine.api.prompt(session, text_prompt("weave"))
            assert isinstance(answer.info, AssistantMessage)
            assert answer.info.error is None
