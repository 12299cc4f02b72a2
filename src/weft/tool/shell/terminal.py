"""Running a command in a terminal of an editor: the person sees it, and what it says is heard as from any other."""

import asyncio
import secrets
import signal
from typing import Final

from weft.host.kin import MARK, end_marked
from weft.host.process import Command, Exit, Hear
from weft.host.undivided import undivided
from weft.model.permission import CallRef
from weft.outlook import EditorTerminal, TerminalEnd
from weft.tool.contract import ToolContext

POLL_SECONDS: Final = 0.1
LEFT_OUT: Final = "\n[the editor did not keep all of the output: some of it is missing here]\n"


async def open_terminal(command: Command, token: str, ctx: ToolContext) -> EditorTerminal | None:
    """A terminal with the command in it; None if the editor has none to give.

    A terminal has the editor's own environment, with whatever keys are in it: the command gets ours instead.
    """
    if ctx.desk.terminals is None:
        return None
    environment = {**command.environment, MARK: token}
    argv = ("env", "-i", *(f"{name}={value}" for name, value in environment.items()), *command.argv)
    call = CallRef(message_id=ctx.message_id, call_id=ctx.call_id)
    return await ctx.desk.terminals.open_terminal(ctx.session_id, call, argv, command.directory)


def new_token() -> str:
    """By what all that a command starts is known."""
    return secrets.token_hex(16)


async def run_in(terminal: EditorTerminal, token: str, command: Command, hear: Hear) -> Exit:
    """Run to the end. On return, on a timeout and on cancelling, everything it started is ended."""
    heard, timed_out, end = "", False, TerminalEnd()
    waiting = asyncio.ensure_future(terminal.wait())
    try:
        try:
            async with asyncio.timeout(command.timeout):
                while not waiting.done():
                    await asyncio.wait([waiting], timeout=POLL_SECONDS)
                    heard = await _listen(terminal, heard, hear)
        except TimeoutError:
            timed_out = True
            await terminal.kill()
        else:
            end = waiting.result()
        await _listen(terminal, heard, hear)
    finally:
        waiting.cancel()
        leftovers = await undivided(_end(terminal, token))
    return Exit(code=to_code(end), timed_out=timed_out, leftovers=0 if timed_out else leftovers)


async def _listen(terminal: EditorTerminal, heard: str, hear: Hear) -> str:
    """Hear what is new. Return all that there is by now."""
    said = (await terminal.read()).replace("\r\n", "\n")
    piece = said[len(heard) :] if said.startswith(heard) else LEFT_OUT + said
    if piece:
        await hear(piece.encode(errors="replace"))
    return said


async def _end(terminal: EditorTerminal, token: str) -> int:
    await terminal.kill()
    leftovers = await asyncio.to_thread(end_marked, token)
    await terminal.release()
    return leftovers


def to_code(end: TerminalEnd) -> int | None:
    """As processes of our own have it: minus the number of the signal that killed it."""
    if end.signal is None:
        return end.code
    name = end.signal if end.signal.startswith("SIG") else f"SIG{end.signal}"
    return -signal.Signals[name] if name in signal.Signals.__members__ else None
