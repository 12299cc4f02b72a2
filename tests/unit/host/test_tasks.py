"""Work that cancellation does not interrupt."""

import asyncio

import pytest

from weft.host.tasks import run_to_completion


class HeldWork:
    """Waits until it is let go, then returns or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.let_go = asyncio.Event()
        self.began = asyncio.Event()
        self.ended = False
        self._error = error

    async def run(self) -> str:
        self.began.set()
        await self.let_go.wait()
        self.ended = True
        if self._error is not None:
            raise self._error
        return "done"


async def test_the_result_or_error_is_passed_on() -> None:
    good, bad = HeldWork(), HeldWork(ValueError("no"))
    good.let_go.set()
    bad.let_go.set()
    assert await run_to_completion(good.run()) == "done"
    with pytest.raises(ValueError, match="no"):
        await run_to_completion(bad.run())


@pytest.mark.parametrize("error", [None, ValueError("nobody sees it")])
async def test_a_cancelled_caller_waits_for_the_end_and_is_cancelled_then(error: Exception | None) -> None:
    work = HeldWork(error)
    caller = asyncio.ensure_future(run_to_completion(work.run()))
    await work.began.wait()
    caller.cancel()
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    work.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert work.ended


async def test_the_work_is_done_even_if_the_caller_was_cancelled_before_it_began() -> None:
    work = HeldWork()
    work.let_go.set()

    async def call() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await run_to_completion(work.run())

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(call())
    assert work.ended


async def test_a_timeout_takes_effect_after_the_work() -> None:
    work = HeldWork()

    async def call() -> None:
        async with asyncio.timeout(0):
            await run_to_completion(work.run())

    caller = asyncio.ensure_future(call())
    await work.began.wait()
    asyncio.get_running_loop().call_later(0.01, work.let_go.set)
    with pytest.raises(TimeoutError):
        await caller
    assert work.ended
