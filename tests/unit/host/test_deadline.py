"""Deadlines; time spent waiting for a person does not count."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from weft.errors import DeadlineError
from weft.host.tasks import STEP_SECONDS, Deadline, pause_deadlines
from weft.testing.clock import HandClock


async def forever() -> None:
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


async def within(deadline: Deadline, work: Callable[[], Awaitable[None]]) -> None:
    async with deadline.running():
        await work()


async def test_what_takes_too_long_is_cancelled_and_says_whose_deadline_it_was() -> None:
    clock, cancelled = HandClock(), []

    async def work() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            cancelled.append("yes")
            raise

    async with asyncio.timeout(60):
        running = asyncio.ensure_future(within(Deadline("turn", 25, clock), work))
        await turn(clock, 24)
        assert not running.done()
        await turn(clock, 1)
        with pytest.raises(DeadlineError, match="the turn took longer than 25 seconds") as raised:
            await running

    assert (raised.value.limit, raised.value.seconds, cancelled) == ("turn", 25, ["yes"])


async def test_what_is_done_in_time_gives_what_it_gives() -> None:
    async with asyncio.timeout(60), Deadline("turn", 5, HandClock()).running():
        await asyncio.sleep(0)


async def test_without_a_limit_nothing_is_counted() -> None:
    async with asyncio.timeout(60), Deadline("turn", None, HandClock()).running():
        await asyncio.sleep(0)


async def test_an_error_in_it_comes_out_as_it_is_and_somebody_elses_timeout_too() -> None:
    async with asyncio.timeout(60):
        for error in (KeyError("x"), TimeoutError("the tool's own")):
            with pytest.raises(type(error)):
                async with Deadline("turn", 5, HandClock()).running():
                    raise error


async def test_cancelling_from_without_is_no_deadline() -> None:
    async with asyncio.timeout(60):
        running = asyncio.ensure_future(within(Deadline("turn", 5, HandClock()), forever))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_several_goes_draw_from_the_same_time() -> None:
    clock = HandClock()
    deadline = Deadline("turn", 30, clock)

    async def nap() -> None:
        await clock.sleep(20)

    async with asyncio.timeout(60):
        first = asyncio.ensure_future(within(deadline, nap))
        await turn(clock, 20)
        await first
        second = asyncio.ensure_future(within(deadline, nap))
        await turn(clock, 10)
        with pytest.raises(DeadlineError):
            await second


async def test_while_a_person_is_waited_for_no_deadline_around_runs() -> None:
    clock, answered = HandClock(), asyncio.Event()
    outer, inner = Deadline("turn", 30, clock), Deadline("tool", 20, clock)

    async def ask() -> None:
        with pause_deadlines():
            await answered.wait()
        await forever()

    async def both() -> None:
        async with outer.running():
            await within(inner, ask)

    async with asyncio.timeout(60):
        running = asyncio.ensure_future(both())
        await turn(clock, 500)
        assert not running.done()
        answered.set()
        await turn(clock, 20)
        with pytest.raises(DeadlineError, match="the tool"):
            await running


async def test_a_task_that_was_begun_within_holds_the_deadline_it_was_begun_in() -> None:
    clock, answered = HandClock(), asyncio.Event()

    async def ask() -> None:
        with pause_deadlines():
            await answered.wait()

    async def hand_on() -> None:
        await asyncio.ensure_future(ask())

    async with asyncio.timeout(60):
        running = asyncio.ensure_future(within(Deadline("turn", 10, clock), hand_on))
        await turn(clock, 100)
        answered.set()
        await running


async def test_waiting_for_a_person_outside_of_any_deadline_is_just_waiting() -> None:
    with pause_deadlines():
        await asyncio.sleep(0)
