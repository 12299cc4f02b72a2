"""Plugins that raise, hang, return nonsense or try to exit the process: the turn continues."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from given.plugins import Project, list_calls, open_worker, prompt, text_of
from weft.errors import ConfigError
from weft.host.clock import SystemClock
from weft.model.ids import SessionID
from weft.plugin.chain import FaultCounter, HookChain, register_function
from weft.plugin.hooks import CHAT_PARAMS, TOOL_AFTER, CallHookInput, CallOutcome
from weft.plugin.loader import HookFunction
from weft.plugin.worker import CLOSED, Returned
from weft.provider.scripted import Say, UseTool
from weft.testing.clock import HandClock

SCRIPT = (
    [UseTool(tool="read", input={"filePath": "greet.py"})],
    [UseTool(tool="glob", input={"pattern": "*.py"})],
    [Say(text="Done.")],
)
TOLD = CallHookInput(tool="read", session_id=SessionID("ses_x"), call_id="call_x", args={})
NOW = CallOutcome(title="t", output="o", metadata={"a": [1]})


HOSTILE = """
    import asyncio, os, sys, time
    from weft.plugin.hooks import hook

    @hook("chat.params")
    def raises(told, now):
        now.options["half"] = "done"
        raise ValueError("no params today")

    @hook("chat.message")
    def exits(told, now):
        exit()

    @hook("experimental.chat.system.transform")
    async def exits_too(told, now):
        sys.exit(3)

    @hook("tool.execute.after")
    async def interrupts(told, now):
        raise KeyboardInterrupt
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project")
    made.write("greet.py", "print('hello')\n")
    return made


async def test_a_turn_completes_although_a_plugin_raises_and_exits(project: Project) -> None:
    project.plugin("hostile", HOSTILE)
    async with asyncio.timeout(60), project.open(*SCRIPT) as local:
        messages = await prompt(local)

    assert text_of(messages).endswith("Done.")
    assert [tool for tool, _ in list_calls(messages)] == ["read", "glob"]
    assert "half" not in project.provider.requests[0].parameters.options
    where = ".opencode/plugin/hostile.py"
    assert project.list_warnings() == [
        f"{where}:11: hook chat.message: SystemExit: None; that was fault 1 of 3",
        f"{where}:15: hook experimental.chat.system.transform: SystemExit: 3; that was fault 2 of 3",
        f"{where}:7: hook chat.params: ValueError: no params today; after 3 faults its hooks are no longer called",
    ]


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Path]:
    """The file that ends all hanging hooks."""
    path = tmp_path / "release"
    yield path
    path.touch()


async def wait_for_deadline(asking: asyncio.Future[CallOutcome], clock: HandClock) -> CallOutcome:
    """Return the result once the deadline has passed, however early the call began."""
    while not asking.done():
        clock.turn(10_000)
        await asyncio.wait([asking], timeout=0.01)
    return asking.result()


def release_hook(release: Path) -> None:
    release.touch()


HANGS = {
    "in a function": "def hangs(told, now):\n    while not os.path.exists(release):\n        time.sleep(0.01)",
    "in a coroutine": "async def hangs(told, now):\n    while not os.path.exists(release):\n        time.sleep(0.01)",
    "without a pause": "def hangs(told, now):\n    while not os.path.exists(release): pass",
    "awaiting": "async def hangs(told, now):\n    await asyncio.Event().wait()",
    "and will not be cancelled": (
        "async def hangs(told, now):\n    while not os.path.exists(release):\n        try:\n"
        "            await asyncio.sleep(0.05)\n        except asyncio.CancelledError:\n            pass"
    ),
}


@pytest.mark.parametrize("how", HANGS)
async def test_a_hook_that_hangs_delays_the_turn_by_one_deadline_and_does_not_end_it(
    project: Project, release: Path, how: str
) -> None:
    project.plugin(
        "slow",
        f"import asyncio, os, time\nfrom weft.plugin.hooks import hook\nrelease = {str(release)!r}\n"
        f'@hook("tool.execute.after")\n{HANGS[how]}\n',
    )
    clock = HandClock()
    async with asyncio.timeout(60), project.open(clock=clock) as local:
        asking = asyncio.ensure_future(local.runtime.hooks.ask(TOOL_AFTER, TOLD, NOW))
        assert await wait_for_deadline(asking, clock) is NOW
        release_hook(release)

    assert project.list_warnings() == [
        ".opencode/plugin/slow.py: hook tool.execute.after took longer than 10 seconds; that was fault 1 of 3"
    ]


async def test_a_stuck_plugin_is_not_waited_for_again(project: Project, release: Path) -> None:
    project.plugin(
        "slow",
        f"import os, time\nfrom weft.plugin.hooks import hook\nrelease = {str(release)!r}\n"
        f'@hook("tool.execute.after")\n{HANGS["in a function"]}\n',
    )
    clock = HandClock()
    async with asyncio.timeout(60), project.open(clock=clock) as local:
        hooks = local.runtime.hooks
        asking = asyncio.ensure_future(hooks.ask(TOOL_AFTER, TOLD, NOW))
        assert await wait_for_deadline(asking, clock) is NOW
        assert hooks.any(TOOL_AFTER)
        assert [await hooks.ask(TOOL_AFTER, TOLD, NOW) for _ in range(3)] == [NOW] * 3
        assert not hooks.any(TOOL_AFTER)

    assert [line.rpartition("; ")[2] for line in project.list_warnings()] == [
        "that was fault 1 of 3",
        "that was fault 2 of 3",
        "after 3 faults its hooks are no longer called",
    ]


async def test_an_aborted_run_does_not_wait_for_a_hook() -> None:
    begun, release, outside = asyncio.Event(), threading.Event(), asyncio.get_running_loop()
    said: list[ConfigError] = []

    def wait_for_release(told: CallHookInput, now: CallOutcome) -> None:
        outside.call_soon_threadsafe(begun.set)
        release.wait()

    async with asyncio.timeout(60), open_worker("slow") as worker:
        voice = register_function(
            worker, HookFunction("tool.execute.after", wait_for_release), plugin="slow.py", seconds=10
        )
        asking = asyncio.ensure_future(
            HookChain([voice], FaultCounter(said.append), SystemClock()).ask(TOOL_AFTER, TOLD, NOW)
        )
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        release.set()
    assert said == []


async def test_a_hook_that_awaits_is_cancelled_with_the_run() -> None:
    begun, ended, outside = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

    async def wait_forever(told: CallHookInput, now: CallOutcome) -> None:
        outside.call_soon_threadsafe(begun.set)
        try:
            await asyncio.Event().wait()
        finally:
            outside.call_soon_threadsafe(ended.set)

    async with asyncio.timeout(60), open_worker("waits") as worker:
        voice = register_function(
            worker, HookFunction("tool.execute.after", wait_forever), plugin="waits.py", seconds=10
        )
        chain = HookChain([voice], FaultCounter(lambda _: None), SystemClock())
        asking = asyncio.ensure_future(chain.ask(TOOL_AFTER, TOLD, NOW))
        await begun.wait()
        asking.cancel()
        await ended.wait()
        again = asyncio.ensure_future(chain.ask(TOOL_AFTER, TOLD, NOW))  # the worker can be used again
        begun.clear()
        await begun.wait()
        again.cancel()


async def test_an_exit_in_a_task_of_a_plugin_ends_nothing_else(project: Project) -> None:
    project.plugin(
        "stray",
        """
        import asyncio, sys
        from weft.plugin.hooks import hook

        async def leave():
            sys.exit(1)

        @hook("chat.params")
        async def start(told, now):
            kept.append(asyncio.get_running_loop().create_task(leave()))

        @hook("tool.execute.after")
        async def still_here(told, now):
            return now.but(title="still here")

        kept = []
        """,
    )
    async with asyncio.timeout(60), project.open(*SCRIPT) as local:
        messages = await prompt(local)
        outcome = await local.runtime.hooks.ask(TOOL_AFTER, TOLD, NOW)

    assert text_of(messages).endswith("Done.")
    assert outcome in (NOW, NOW.but(title="still here"))  # it may have had its three faults by then
    assert "a task of its own: SystemExit: 1" in project.list_warnings()[0]
    assert not local.runtime.hooks.any(CHAT_PARAMS)


async def test_a_worker_that_is_closed_during_a_call_answers_that_call() -> None:
    async with open_worker("slow") as worker:
        late = asyncio.create_task(worker.do(lambda: asyncio.sleep(60)))
        await asyncio.sleep(0.01)
        late.cancel()
        await asyncio.wait([late])
        asked = asyncio.create_task(worker.do(lambda: 1))
        await asyncio.sleep(0)
        await worker.close()
        async with asyncio.timeout(10):
            assert await asked in (CLOSED, Returned(1))
        await worker.close()
