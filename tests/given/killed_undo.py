"""Runs and undos that kill their own process, through the whole engine: `python killed_undo.py ROOT HOW [SESSION PROMPT]`.

`tool`, `command` and `child` die while a call changes files; `before` and `after` die around storing an undo; `slow` undoes
without dying, so that the test can kill it, and `run` runs the command SESSION for the same reason.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from msgspec.structs import replace

from given.undo_harness import ToolUse, UndoHarness, call_bash, call_write, open_undo_harness
from weft.bus import Bus
from weft.journal import Journal
from weft.model.event import Durable
from weft.model.ids import MessageID, SessionID
from weft.model.session import SessionInfo
from weft.model.transcript import Transcript
from weft.store.contract import SessionEditor, Store
from weft.undo.revert import revert


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KillingJournal(Journal):
    """Kills the process when a session is changed: before that is stored, or right after."""

    def __init__(self, store: Store, *, before: bool) -> None:
        super().__init__(store, Bus(), directory="/")
        self._before = before

    async def edit(
        self, session: SessionID, editor: SessionEditor, *events: Durable, into: Transcript | None = None
    ) -> SessionInfo:
        if not self._before:
            await super().edit(session, editor, *events, into=into)
        die()
        return await super().edit(session, editor, *events, into=into)


async def work(harness: UndoHarness, how: str) -> None:
    await harness.create_session()
    print(harness.session, flush=True)
    await harness.run_step(call_bash("echo first > first.txt"))
    # A change within the tick of the clock in which the process dies may be somebody else's.
    ending = f"sleep 0.1; kill -9 {os.getpid()}"
    if how == "child":
        task = {"description": "Weave on", "prompt": "Go.", "subagent_type": "general"}
        await harness.run_turn(
            [ToolUse(tool="task", input=task)], [call_bash(f"echo child > a.txt; {ending}")]
        )
    if how == "command":
        await harness.run_step(call_bash(f"echo agent > a.txt; {ending}"))
    else:
        written = "until [ -e new.txt ]; do sleep 0.01; done"
        await harness.run_step(
            call_write(harness.root / "new.txt", "agent\n"),
            call_bash(f"{written}; echo more > b.txt; {ending}"),
        )


async def take_back(harness: UndoHarness, how: str) -> None:
    undo_context = harness.api.runtime.undo_context
    if how != "slow":
        undo_context = replace(
            undo_context, journal=KillingJournal(undo_context.store, before=how == "before")
        )
    session, to = await harness.api.get_session(harness.session), MessageID(sys.argv[4])
    await revert(undo_context, session, await harness.history(), (to, None))


async def main(root: Path, how: str) -> None:
    async with open_undo_harness(root) as harness:
        if how in ("tool", "command", "child"):
            await work(harness, how)
        elif how == "run":
            print(await harness.create_session(), flush=True)
            await harness.run_step(call_bash(sys.argv[3]))
        else:
            harness.session = SessionID(sys.argv[3])
            await take_back(harness, how)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
