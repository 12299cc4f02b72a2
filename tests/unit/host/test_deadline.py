"""Deadlines; time spent waiting for a person does not count."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from weft.errors import DeadlineError
from weft.host.tasks import STEP_SECONDS, Deadline, pause_deadlines
from weft.testing.clock import HandClock


async def wait_forever() -> None:
    await asyncio.Event().wait()


async def turn(clock: HandClock, seconds: float) -> None:
    """Advance the time in the steps in which a deadline counts it."""
    while seconds > 0:
        await clock.somebody_sleeps(0.001)
        piece = min(seconds, STEP_SECONDS)
        clock.turn(round(piece * 1000))
        seconds -= piece
        for _ in range(5):
            await asyncio.sleep(0)


async def run_within(deadline: Deadline, work: Callable[[], Awaitable[object]]) -> None:
    async with deadline.running():
        await work()


async def test_an_operation_that_takes_too_long_is_cancelled_and_the_error_names_the_deadline() -> None:
    clock, cancelled = HandClock(), []

    async def work() -> None:
        try:
            await wait_forever()
        except asyncio.CancelledError:
            cancelled.append("yes")
            raise

    async with asyncio.timeout(60):
        running = asyncio.ensure_future(run_within(Deadline("turn", 25, clock), work))
        await turn(clock, 24)
        assert not running.done()
        await turn(clock, 1)
        with pytest.raises(DeadlineError, match="the turn took longer than 25 seconds") as raised:
            await running

    assert (raised.value.limit, raised.value.seconds, cancelled) == ("turn", 25, ["yes"])


async def test_an_operation_that_ends_in_time_is_not_disturbed() -> None:
    clock, done = HandClock(), asyncio.Event()
    async with asyncio.timeout(60):
        running = asyncio.ensure_future(run_within(Deadline("turn", 5, clock), done.wait))
        await turn(clock, 4)
        done.set()
        await running


async def test_there_is_no_deadline_without_a_limit() -> None:
    clock, done = HandClock(), asyncio.Event()
    async with asyncio.timeout(60):
        running = asyncio.ensure_future(run_within(Deadline("turn", None, clock), done.wait))
        for _ in range(10):
            clock.turn(1_000_000)
            await asyncio.sleep(0)
        assert not running.done()
        done.set()
        await running


async def test_errors_and_other_timeouts_pass_through_unchanged() -> None:
    async with asyncio.timeout(60):
        for error in (KeyError("x"), TimeoutError("the tool's own")):
            with pytest.raises(type(error)):
                async with Deadline("turn", 5, HandClock()).running():
                    raise error


async def test_cancellation_from_outside_is_not_a_deadline() -> None:
    async with asyncio.timeout(60):
        running = asyncio.ensure_future(run_within(Deadline("turn", 5, HandClock()), wait_forever))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_several_operations_share_the_time_of_one_deadline() -> None:
    clock = HandClock()
    deadline = Deadline("turn", 30, clock)

    async def nap() -> None:
        await clock.sleep(20)

    async with asyncio.timeout(60):
        first = asyncio.ensure_future(run_within(deadline, nap))
        await turn(clock, 20)
        await first
        second = asyncio.ensure_future(run_within(deadline, nap))
        await turn(clock, 10)
        with pytest.raises(DeadlineError):
            await second


async def test_no_enclosing_deadline_runs_while_a_person_is_asked() -> None:
    clock, answered = HandClock(), asyncio.Event()
    outer, inner = Deadline("turn", 30, clock), Deadline("tool", 20, clock)

    async def ask() -> None:
        with pause_deadlines():
            await answered.wait()
        await wait_forever()

    async def ask_within_both() -> None:
        async with outer.running():
            await run_within(inner, ask)

    async with asyncio.timeout(60):
        running = asyncio.ensure_future(ask_within_both())
        await turn(clock, 500)
        assert not running.done()
        answered.set()
        await turn(clock, 20)
        with pytest.raises(DeadlineError, match="the tool"):
            await running


async def test_a_task_pauses_the_deadline_that_it_was_started_in() -> None:
    clock, answered = HandClock(), asyncio.Event()

    async def ask() -> None:
        with pause_deadlines():
            await answered.wait()

    async def ask_in_a_task() -> None:
        await asyncio.ensure_future(ask())

    async with asyncio.timeout(60):
        running = asyncio.ensure_future(run_within(Deadline("turn", 10, clock), ask_in_a_task))
        await turn(clock, 100)
        answered.set()
        await running


async def test_waiting_for_a_person_outside_of_any_deadline_is_allowed() -> None:
    with pause_deadlines():
        await asyncio.sleep(0)
