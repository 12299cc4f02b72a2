"""The `bash` tool: run a shell command, in a process of our own or in a terminal of the editor."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.errors import ToolError
from weft.host.processes import (
    MARK,
    OnOutput,
    ProcessCommand,
    ProcessExit,
    ProcessOutput,
    end_marked,
    run_command,
)
from weft.host.tasks import run_to_completion
from weft.model.permission import CallRef
from weft.model.wire import to_plain
from weft.sandbox.policy import Sandbox
from weft.tool.contract import Job, ToolContext, ToolResult
from weft.tool.inputs import BashInput
from weft.tool.paths import ToolPath, resolve_path
from weft.tool.truncate import MAX_BYTES, format_truncation_note, truncate

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api.editor import EditorTerminal, TerminalEnd
    from weft.tool.shell.judgement import ShellRequest

POLL_SECONDS: Final = 0.1
MISSING_OUTPUT: Final = "\n[the editor did not keep all of the output: some of it is missing here]\n"


async def open_terminal(command: ProcessCommand, token: str, ctx: ToolContext) -> EditorTerminal | None:
    """Open a terminal of the editor that runs the command. Return None if the editor offers none.

    A terminal has the editor's environment with the keys in it, so the command is started with ours instead.
    """
    if ctx.resources.terminals is None:
        return None
    environment = {**command.environment, MARK: token}
    argv = ("env", "-i", *(f"{name}={value}" for name, value in environment.items()), *command.argv)
    call = CallRef(message_id=ctx.message_id, call_id=ctx.call_id)
    return await ctx.resources.terminals.open_terminal(ctx.session_id, call, argv, command.directory)


def new_token() -> str:
    """Return a token that marks every process of a command."""
    return secrets.token_hex(16)


async def run_in_terminal(
    terminal: EditorTerminal, token: str, command: ProcessCommand, hear: OnOutput
) -> ProcessExit:
    """Run a command to its end. On return, timeout or cancellation, every process that it started is ended."""
    previous, timed_out = "", False
    code: int | None = None
    waiting = asyncio.ensure_future(terminal.wait())
    try:
        try:
            async with asyncio.timeout(command.timeout):
                while not waiting.done():
                    await asyncio.wait([waiting], timeout=POLL_SECONDS)
                    previous = await _read_new(terminal, previous, hear)
        except TimeoutError:
            timed_out = True
            await terminal.kill()
        else:
            code = to_exit_code(waiting.result())
        await _read_new(terminal, previous, hear)
    finally:
        waiting.cancel()
        leftovers = await run_to_completion(_end_terminal(terminal, token))
    return ProcessExit(code=code, timed_out=timed_out, leftovers=0 if timed_out else leftovers)


async def _read_new(terminal: EditorTerminal, previous: str, hear: OnOutput) -> str:
    """Pass on new output. Return all output so far."""
    said = (await terminal.read()).replace("\r\n", "\n")
    piece = said[len(previous) :] if said.startswith(previous) else MISSING_OUTPUT + said
    if piece:
        await hear(piece.encode(errors="replace"))
    return said


async def _end_terminal(terminal: EditorTerminal, token: str) -> int:
    await terminal.kill()
    leftovers = await asyncio.to_thread(end_marked, token)
    await terminal.release()
    return leftovers


def to_exit_code(end: TerminalEnd) -> int | None:
    """Return the exit code as for our own processes: the negative signal number if a signal ended it."""
    if end.signal is None:
        return end.code
    name = end.signal if end.signal.startswith("SIG") else f"SIG{end.signal}"
    return -signal.Signals[name] if name in signal.Signals.__members__ else None


MAX_SHOWN: Final = 30_000
REPORT_SECONDS: Final = 0.25


async def run_reporting(
    command: ProcessCommand, output: ProcessOutput, description: str, ctx: ToolContext
) -> ProcessExit:
    """Run a command and report its output, at once and then at intervals."""
    news = asyncio.Event()

    async def hear(piece: bytes) -> None:
        await output.add(piece)
        news.set()

    async def tell() -> None:
        while True:
            await ctx.report(metadata=to_metadata(output, description))
            # OpenCode stores up to 30 KB again for every chunk of output.
            await ctx.clock.sleep(REPORT_SECONDS)
            await news.wait()
            news.clear()

    try:
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(tell())
            exit = await _run_command(command, hear, ctx)
            telling.cancel()
            return exit
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _run_command(command: ProcessCommand, hear: OnOutput, ctx: ToolContext) -> ProcessExit:
    """Run a command in a terminal of the editor if there is one, else as a process of our own."""
    token = new_token()
    terminal = await open_terminal(command, token, ctx)
    if terminal is None:
        return await run_command(command, hear)
    return await run_in_terminal(terminal, token, command, hear)


async def keep_output(output: ProcessOutput, ctx: ToolContext) -> tuple[str, str | None]:
    """Return the output for the model, and the path of the whole output if that was truncated."""
    text = output.head.decode(errors="replace")
    truncated = truncate(text)
    if output.path is not None:
        left = output.size - len(truncated.preview.encode())
        return f"{truncated.preview}\n\n{format_truncation_note(left, 'bytes', output.path)}", output.path
    if truncated.left:
        path = await ctx.resources.spill.store(text)
        return f"{truncated.preview}\n\n{format_truncation_note(truncated.left, truncated.unit, path)}", path
    return text, None


def list_notes(exit: ProcessExit, lost_bytes: int) -> list[str]:
    """Return notes on what the output does not say: how the command ended, and what is missing."""
    notes = []
    if lost_bytes:
        notes.append(f"the last {lost_bytes} bytes of output were not kept")
    # OpenCode hides the exit code from the model, which then takes a silent failure for success.
    if exit.code and not exit.timed_out:
        notes.append(f"exit code {exit.code}")
    if exit.leftovers:
        notes.append(f"{exit.leftovers} background process(es) still running were ended with the command")
    return notes


def to_metadata(output: ProcessOutput, description: str, more: str = "") -> dict[str, Any]:
    text = output.head.decode(errors="replace")
    shown = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "\n\n..."
    return {"output": shown + more, "description": description}


ASIDE_SUFFIX = ".set-aside"
REFUSAL_TEXTS = (b"Permission denied", b"Read-only file system", b"Operation not permitted")
SANDBOX_NOTE = (
    "this ran in a sandbox: it can write in the project and the temporary directory alone, not to git's hooks and settings,"
    " and cannot see the home directory"
)


def list_absent(sandbox: Sandbox) -> tuple[str, ...]:
    """Return the paths protected by the sandbox that do not exist yet."""
    return tuple(path for path in sandbox.protected if not os.path.lexists(path))


def explain_refusal(sandbox: Sandbox, said: bytes | bytearray) -> list[str]:
    """Return a note if the sandbox may have caused a failure that the output mentions."""
    if not sandbox.kind or not any(word in said for word in REFUSAL_TEXTS):
        return []
    return [SANDBOX_NOTE]


def move_aside(absent: Iterable[str]) -> list[str]:
    """Rename the files that a command created at protected paths. Return a note on each."""
    return [_move_aside(path) for path in absent if os.path.lexists(path)]


def _move_aside(path: str) -> str:
    names = (f"{path}{ASIDE_SUFFIX}{number or ''}" for number in count())
    free = next(name for name in names if not os.path.lexists(name))
    try:
        os.rename(path, free)
    except OSError as error:
        return f"{path} may not be made by a command, and could not be set aside: {error.strerror}"
    return f"{path} may not be made by a command: it was renamed to {free}"


DEFAULT_MS: Final = 120_000
MAX_MS: Final = 60 * 60 * 1000
SLACK_MS: Final = 100

# Shells whose syntax models do not write.
_UNSUITABLE_SHELLS: Final = frozenset({"fish", "nu"})


async def bash(wanted: BashInput, ctx: ToolContext) -> ToolResult:
    timeout = None if wanted.timeout is None else min(wanted.timeout, MAX_MS)
    if timeout is not None and timeout < 0:
        raise ToolError(f"Invalid timeout value: {timeout}. It has to be a positive number of milliseconds.")
    if ctx.resources.sandbox.refusal:
        raise ToolError(ctx.resources.sandbox.refusal)
    place = await resolve_path(wanted.workdir or ctx.directory, ctx, "directory")
    await _ask(wanted.command, place, ctx)
    if not place.is_directory:
        raise ToolError(f"There is no directory {place.path} to run it in.")
    command = ProcessCommand(
        argv=ctx.resources.sandbox.wrap((find_shell(ctx.resources.environment), "-c", wanted.command)),
        directory=place.real,
        environment=ctx.resources.environment,
        timeout=None if timeout is None else (timeout + SLACK_MS) / 1000,
    )
    if wanted.background:
        return await _start_background(wanted, command, ctx)
    ms = DEFAULT_MS if timeout is None else timeout
    return await _run_foreground(wanted, replace(command, timeout=(ms + SLACK_MS) / 1000), ms, ctx)


async def _ask(command: str, place: ToolPath, ctx: ToolContext) -> None:
    for request in await asyncio.to_thread(_list_requests, command, place, ctx):
        metadata: dict[str, Any] = {"why": list(request.why)} if request.why else {}
        if request.may_write:
            metadata["mayWrite"] = list(request.may_write)
        if request.perhaps:
            metadata["perhaps"] = list(request.perhaps)
        await ctx.ask(request.permission, *request.patterns, always=request.always, metadata=metadata)


async def _run_foreground(
    wanted: BashInput, command: ProcessCommand, ms: int, ctx: ToolContext
) -> ToolResult:
    output = ProcessOutput(ctx.resources.spill.new_path, memory=MAX_BYTES)
    absent, moved = list_absent(ctx.resources.sandbox), list[str]()
    try:
        # Only foreground commands are watched: a background job may run for hours, in which the person works, too.
        async with ctx.watch():
            try:
                exit = await run_reporting(command, output, wanted.description, ctx)
            finally:
                moved += move_aside(absent)
    except asyncio.CancelledError:
        # The stored part keeps the output so far, because nobody receives a result.
        await ctx.report(
            metadata=to_metadata(
                output, wanted.description, "\n\n" + _format_notes(["User aborted the command"])
            )
        )
        raise
    except OSError as error:
        raise ToolError(f"The command could not be run: {error}") from error
    finally:
        output.close()
    timeout_notes = (
        [f"bash tool terminated command after exceeding timeout {ms} ms"] if exit.timed_out else []
    )
    metadata = to_metadata(
        output, wanted.description, f"\n\n{_format_notes(timeout_notes)}" if timeout_notes else ""
    )
    text, path = await keep_output(output, ctx)
    metadata |= {"exit": None if timeout_notes else exit.code}
    metadata |= {"truncated": True, "outputPath": path} if path else {"truncated": False}
    notes = list_notes(exit, output.lost) + moved + timeout_notes
    notes += explain_refusal(ctx.resources.sandbox, output.head) if exit.code else []
    if notes:
        text += f"\n\n{_format_notes(notes)}"
    return ToolResult(title=wanted.description, output=text, metadata=metadata)


async def _start_background(wanted: BashInput, command: ProcessCommand, ctx: ToolContext) -> ToolResult:
    path = await asyncio.to_thread(ctx.resources.spill.new_path)
    job = Job(
        id=os.path.basename(path).replace("tool_", "job_", 1),
        session_id=ctx.session_id,
        command=wanted.command,
        description=wanted.description,
        output=path,
        started=ctx.clock.now(),
    )
    await ctx.resources.jobs.start(job, command)
    output = f"Started {job.id} in the background.\nIts output goes to {path}; `jobs` lists and stops it."
    metadata = {"output": "", "description": wanted.description, "job": to_plain(job), "truncated": False}
    return ToolResult(title=wanted.description, output=output, metadata=metadata)


def _list_requests(command: str, place: ToolPath, ctx: ToolContext) -> tuple[ShellRequest, ...]:
    """Return everything that must be permitted before the command runs, apart from its working directory."""

    from weft.tool.shell.judgement import judge_command  # noqa: PLC0415  only a shell command needs it
    from weft.tool.shell.places import locate_command  # noqa: PLC0415  only a shell command needs it

    where = locate_command(place.real, ctx.worktree, ctx.resources.environment, also=ctx.directory)
    return judge_command(command, where).requests


def find_shell(environment: Mapping[str, str]) -> str:
    """Return the person's own shell, unless models do not write for it."""
    own = environment.get("SHELL", "")
    if own and os.path.basename(own) not in _UNSUITABLE_SHELLS and os.access(own, os.X_OK):
        return own
    if sys.platform == "darwin":
        return "/bin/zsh"
    return shutil.which("bash", path=environment.get("PATH")) or "/bin/sh"


def _format_notes(notes: list[str]) -> str:
    return "\n".join(["<bash_metadata>", *notes, "</bash_metadata>"])
