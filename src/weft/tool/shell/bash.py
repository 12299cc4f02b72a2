"""The `bash` tool: run a shell command, here or in a terminal of the editor."""

import asyncio
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from weft.errors import ToolError
from weft.host.processes import MARK, Command, Exit, Hear, Output, end_marked, run
from weft.host.tasks import undivided
from weft.model.permission import CallRef
from weft.model.wire import to_plain
from weft.outlook import EditorTerminal, TerminalEnd
from weft.sandbox.policy import Sandbox
from weft.tool.contract import Job, Tool, ToolContext, ToolResult
from weft.tool.description import about
from weft.tool.paths import Place, enter
from weft.tool.shell.command import Request, judge
from weft.tool.shell.places import where_is
from weft.tool.truncate import MAX_BYTES, cut, note

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


SHOWN: Final = 30_000
REPORT_SECONDS: Final = 0.25


async def follow(command: Command, output: Output, description: str, ctx: ToolContext) -> Exit:
    """Run it, and tell how it is getting on: at once, and then not too often."""
    news = asyncio.Event()

    async def hear(piece: bytes) -> None:
        await output.hear(piece)
        news.set()

    async def tell() -> None:
        while True:
            await ctx.report(metadata=to_metadata(output, description))
            # OpenCode stores up to 30 KB anew for every chunk.
            await ctx.clock.sleep(REPORT_SECONDS)
            await news.wait()
            news.clear()

    try:
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(tell())
            exit = await _follow(command, hear, ctx)
            telling.cancel()
            return exit
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _follow(command: Command, hear: Hear, ctx: ToolContext) -> Exit:
    """In a terminal of the editor if it gives one, else as a process of our own."""
    token = new_token()
    terminal = await open_terminal(command, token, ctx)
    if terminal is None:
        return await run(command, hear)
    return await run_in(terminal, token, command, hear)


async def keep(output: Output, ctx: ToolContext) -> tuple[str, str | None]:
    """What the model reads, and where the whole is if that is not it."""
    text = output.head.decode(errors="replace")
    short = cut(text)
    if output.path is not None:
        left = output.size - len(short.preview.encode())
        return f"{short.preview}\n\n{note(left, 'bytes', output.path)}", output.path
    if short.left:
        path = await ctx.desk.spill.keep(text)
        return f"{short.preview}\n\n{note(short.left, short.unit, path)}", path
    return text, None


def list_notes(exit: Exit, lost: int) -> list[str]:
    """What its words do not tell: how it ended, and what is missing."""
    notes = []
    if lost:
        notes.append(f"the last {lost} bytes of output were not kept")
    # OpenCode keeps the exit code from the model, which then takes a silent failure for success.
    if exit.code and not exit.timed_out:
        notes.append(f"exit code {exit.code}")
    if exit.leftovers:
        notes.append(f"{exit.leftovers} background process(es) still running were ended with the command")
    return notes


def to_metadata(output: Output, description: str, more: str = "") -> dict[str, Any]:
    text = output.head.decode(errors="replace")
    shown = text if len(text) <= SHOWN else text[:SHOWN] + "\n\n..."
    return {"output": shown + more, "description": description}


ENDING = ".set-aside"
REFUSALS = (b"Permission denied", b"Read-only file system", b"Operation not permitted")
BEHIND = (
    "this ran in a sandbox: it can write in the project and the temporary directory alone, not to git's hooks and settings,"
    " and cannot see the home directory"
)


def list_absent(sandbox: Sandbox) -> tuple[str, ...]:
    """Those of the paths it keeps that are not there yet."""
    return tuple(path for path in sandbox.kept if not os.path.lexists(path))


def explain(sandbox: Sandbox, said: bytes | bytearray) -> list[str]:
    """What a model has to know to make sense of a failure: these words may be the wall's."""
    if not sandbox.kind or not any(word in said for word in REFUSALS):
        return []
    return [BEHIND]


def set_aside(absent: Iterable[str]) -> list[str]:
    """Move away what has come to be there meanwhile; gives a note on each."""
    return [_moved(path) for path in absent if os.path.lexists(path)]


def _moved(path: str) -> str:
    names = (f"{path}{ENDING}{number or ''}" for number in count())
    free = next(name for name in names if not os.path.lexists(name))
    try:
        os.rename(path, free)
    except OSError as error:
        return f"{path} may not be made by a command, and could not be set aside: {error.strerror}"
    return f"{path} may not be made by a command: it was renamed to {free}"


DEFAULT_MS: Final = 120_000
LONGEST_MS: Final = 60 * 60 * 1000
SLACK_MS: Final = 100

# Shells that do not read what models write.
_FOREIGN: Final = frozenset({"fish", "nu"})


class BashInput(Struct, frozen=True, kw_only=True):
    command: Annotated[str, Meta(description="The command, as typed into a shell.")]
    description: Annotated[
        str, Meta(description="What it does, in five to ten words, for the person watching.")
    ]
    timeout: Annotated[
        int | None, Meta(description="How long it may take, in milliseconds; 120000 if left out.")
    ] = None
    workdir: Annotated[
        str | None, Meta(description="Where to run it, instead of `cd`; the working directory if left out.")
    ] = None
    background: Annotated[
        bool, Meta(description="Start it and go on; its output goes to a file, and it ends with the session.")
    ] = False


async def bash(wanted: BashInput, ctx: ToolContext) -> ToolResult:
    timeout = None if wanted.timeout is None else min(wanted.timeout, LONGEST_MS)
    if timeout is not None and timeout < 0:
        raise ToolError(f"Invalid timeout value: {timeout}. It has to be a positive number of milliseconds.")
    if ctx.desk.sandbox.refusal:
        raise ToolError(ctx.desk.sandbox.refusal)
    place = await enter(wanted.workdir or ctx.directory, ctx, "directory")
    await _ask(wanted.command, place, ctx)
    if not place.is_directory:
        raise ToolError(f"There is no directory {place.path} to run it in.")
    command = Command(
        argv=ctx.desk.sandbox.around((shell_of(ctx.desk.environment), "-c", wanted.command)),
        directory=place.real,
        environment=ctx.desk.environment,
        timeout=None if timeout is None else (timeout + SLACK_MS) / 1000,
    )
    if wanted.background:
        return await _leave_running(wanted, command, ctx)
    ms = DEFAULT_MS if timeout is None else timeout
    return await _run(wanted, replace(command, timeout=(ms + SLACK_MS) / 1000), ms, ctx)


async def _ask(command: str, place: Place, ctx: ToolContext) -> None:
    for request in await asyncio.to_thread(_requests, command, place, ctx):
        metadata: dict[str, Any] = {"why": list(request.why)} if request.why else {}
        if request.may_write:
            metadata["mayWrite"] = list(request.may_write)
        if request.perhaps:
            metadata["perhaps"] = list(request.perhaps)
        await ctx.ask(request.permission, *request.patterns, always=request.always, metadata=metadata)


async def _run(wanted: BashInput, command: Command, ms: int, ctx: ToolContext) -> ToolResult:
    output = Output(ctx.desk.spill.new_path, memory=MAX_BYTES)
    absent, moved = list_absent(ctx.desk.sandbox), list[str]()
    try:
        # Not a job in the background: it may run for hours, in which a person works, too.
        async with ctx.watch():
            try:
                exit = await follow(command, output, wanted.description, ctx)
            finally:
                moved += set_aside(absent)
    except asyncio.CancelledError:
        # The part keeps what was said so far; nobody waits for a result any more.
        await ctx.report(
            metadata=to_metadata(output, wanted.description, "\n\n" + _block(["User aborted the command"]))
        )
        raise
    except OSError as error:
        raise ToolError(f"The command could not be run: {error}") from error
    finally:
        output.close()
    late = [f"bash tool terminated command after exceeding timeout {ms} ms"] if exit.timed_out else []
    metadata = to_metadata(output, wanted.description, f"\n\n{_block(late)}" if late else "")
    text, path = await keep(output, ctx)
    metadata |= {"exit": None if late else exit.code}
    metadata |= {"truncated": True, "outputPath": path} if path else {"truncated": False}
    notes = list_notes(exit, output.lost) + moved + late
    notes += explain(ctx.desk.sandbox, output.head) if exit.code else []
    if notes:
        text += f"\n\n{_block(notes)}"
    return ToolResult(title=wanted.description, output=text, metadata=metadata)


async def _leave_running(wanted: BashInput, command: Command, ctx: ToolContext) -> ToolResult:
    path = await asyncio.to_thread(ctx.desk.spill.new_path)
    job = Job(
        id=os.path.basename(path).replace("tool_", "job_", 1),
        session_id=ctx.session_id,
        command=wanted.command,
        description=wanted.description,
        output=path,
        started=ctx.clock.now(),
    )
    await ctx.desk.jobs.start(job, command)
    told = f"Started {job.id} in the background.\nIts output goes to {path}; `jobs` lists and stops it."
    metadata = {"output": "", "description": wanted.description, "job": to_plain(job), "truncated": False}
    return ToolResult(title=wanted.description, output=told, metadata=metadata)


def _requests(command: str, place: Place, ctx: ToolContext) -> tuple[Request, ...]:
    """All that has to be asked before this is run. Where it is to run has been asked for."""
    where = where_is(place.real, ctx.worktree, ctx.desk.environment, also=ctx.directory)
    return judge(command, where).requests


def shell_of(environment: Mapping[str, str]) -> str:
    """The person's own shell, unless it is one that models do not write for."""
    own = environment.get("SHELL", "")
    if own and os.path.basename(own) not in _FOREIGN and os.access(own, os.X_OK):
        return own
    if sys.platform == "darwin":
        return "/bin/zsh"
    return shutil.which("bash", path=environment.get("PATH")) or "/bin/sh"


def _block(notes: list[str]) -> str:
    return "\n".join(["<bash_metadata>", *notes, "</bash_metadata>"])


BASH = Tool(name="bash", about=about("bash"), takes=BashInput, run=bash, announces=True)
