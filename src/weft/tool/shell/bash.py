"""The `bash` tool: run a shell command, in a process of our own or in a terminal of the editor."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.errors import ToolError
from weft.host.process_family import MARK, end_marked
from weft.host.processes import (
    SIGNAL_CODE,
    OnOutput,
    ProcessCommand,
    ProcessExit,
    ProcessOutput,
    new_token,
    run_command,
)
from weft.host.tasks import run_to_completion
from weft.model.permission import CallRef
from weft.model.verdict import CallEvidence, CallResult, CommandTrace
from weft.model.wire import to_plain
from weft.sandbox.policy import Sandbox
from weft.tool.contract import Job, ToolContext, ToolResult, note_nothing
from weft.tool.inputs import DEFAULT_COMMAND_TIMEOUT_MS, BashInput
from weft.tool.paths import ToolPath, resolve_path
from weft.tool.truncate import MAX_BYTES, format_truncation_note, truncate

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api.editor import EditorTerminal, TerminalEnd
    from weft.tool.shell.judgement import ShellRequest

POLL_INTERVAL_SECONDS: Final = 0.1
MISSING_OUTPUT_NOTE: Final = "\n[the editor did not keep all of the output: some of it is missing here]\n"


async def open_terminal(command: ProcessCommand, token: str, ctx: ToolContext) -> EditorTerminal | None:
    """Open a terminal of the editor that runs the command. Return None if the editor offers none.

    The environment of the editor may contain keys, so the command gets ours instead.
    """
    if ctx.resources.terminals is None:
        return None
    environment = {**command.environment, MARK: token}
    argv = ("env", "-i", *(f"{name}={value}" for name, value in environment.items()), *command.argv)
    call = CallRef(message_id=ctx.message_id, call_id=ctx.call_id)
    return await ctx.resources.terminals.open_terminal(ctx.session_id, call, argv, command.directory)


async def run_in_terminal(
    terminal: EditorTerminal, token: str, command: ProcessCommand, on_output: OnOutput
) -> ProcessExit:
    """Run a command to its end. On return, timeout or cancellation, every process that it started is ended."""
    previous, timed_out = "", False
    code: int | None = None
    waiter = asyncio.ensure_future(terminal.wait())
    try:
        try:
            async with asyncio.timeout(command.timeout):
                while not waiter.done():
                    await asyncio.wait([waiter], timeout=POLL_INTERVAL_SECONDS)
                    previous = await _read_new(terminal, previous, on_output)
        except TimeoutError:
            timed_out = True
            await terminal.kill()
        else:
            code = to_exit_code(waiter.result())
        await _read_new(terminal, previous, on_output)
    finally:
        waiter.cancel()
        leftovers = await run_to_completion(_end_terminal(terminal, token))
    return ProcessExit(code=code, timed_out=timed_out, leftovers=0 if timed_out else leftovers)


async def _read_new(terminal: EditorTerminal, previous: str, on_output: OnOutput) -> str:
    """Pass the output since `previous` to `on_output`. Return all output so far."""
    output = (await terminal.read()).replace("\r\n", "\n")
    piece = output[len(previous) :] if output.startswith(previous) else MISSING_OUTPUT_NOTE + output
    if piece:
        await on_output(piece.encode(errors="replace"))
    return output


async def _end_terminal(terminal: EditorTerminal, token: str) -> int:
    await terminal.kill()
    leftovers = await asyncio.to_thread(end_marked, token)
    await terminal.release()
    return leftovers


def to_exit_code(end: TerminalEnd) -> int | None:
    """Return the exit code as of our own processes: 128 and the number of the signal if a signal ended it."""
    if end.signal is None:
        return end.code
    name = end.signal if end.signal.startswith("SIG") else f"SIG{end.signal}"
    return SIGNAL_CODE + signal.Signals[name] if name in signal.Signals.__members__ else None


MAX_METADATA_CHARACTERS: Final = 30_000
# A crash may lose this much of a command's output, as docs/guides/after-a-crash.md says.
REPORT_INTERVAL_SECONDS: Final = 0.25


async def run_reporting(
    command: ProcessCommand, output: ProcessOutput, description: str, ctx: ToolContext
) -> ProcessExit:
    """Run a command, and report its output at the start and then at intervals."""
    changed = asyncio.Event()

    async def on_output(piece: bytes) -> None:
        await output.add(piece)
        changed.set()

    async def report() -> None:
        while True:
            await ctx.report(metadata=to_metadata(output, description))
            # OpenCode stores up to 30 KB again for every chunk of output.
            await ctx.clock.sleep(REPORT_INTERVAL_SECONDS)
            await changed.wait()
            changed.clear()

    try:
        async with asyncio.TaskGroup() as tasks:
            reporter = tasks.create_task(report())
            exit = await _run_command(command, on_output, ctx)
            reporter.cancel()
            return exit
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _run_command(command: ProcessCommand, on_output: OnOutput, ctx: ToolContext) -> ProcessExit:
    """Run a command in a terminal of the editor if there is one, else as a process of our own."""
    token = command.token or new_token()
    terminal = await open_terminal(command, token, ctx)
    if terminal is None:
        return await run_command(command, on_output)
    return await run_in_terminal(terminal, token, command, on_output)


async def truncate_output(output: ProcessOutput, ctx: ToolContext) -> tuple[str, str | None]:
    """Return the output for the model, and the path of the whole output if that was truncated."""
    text = output.head.decode(errors="replace")
    truncated = truncate(text)
    if output.path is not None:
        removed = output.size - len(truncated.preview.encode())
        return f"{truncated.preview}\n\n{format_truncation_note(removed, 'bytes', output.path)}", output.path
    if truncated.removed:
        path = await ctx.resources.spill.store(text)
        return (
            f"{truncated.preview}\n\n{format_truncation_note(truncated.removed, truncated.unit, path)}",
            path,
        )
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
    """Return the metadata of a call: the start of the output followed by `more`, and the description."""
    text = output.head.decode(errors="replace")
    shown = text if len(text) <= MAX_METADATA_CHARACTERS else text[:MAX_METADATA_CHARACTERS] + "\n\n..."
    return {"output": shown + more, "description": description}


ASIDE_SUFFIX = ".set-aside"
REFUSAL_MESSAGES = (b"Permission denied", b"Read-only file system", b"Operation not permitted")
SANDBOX_NOTE = (
    "this ran in a sandbox: it can write in the project and the temporary directory alone, not to git's hooks and settings,"
    " and cannot see the home directory"
)


def list_absent(sandbox: Sandbox) -> tuple[str, ...]:
    """Return the paths protected by the sandbox that do not exist yet."""
    return tuple(path for path in sandbox.protected if not os.path.lexists(path))


def explain_refusal(sandbox: Sandbox, output: bytes | bytearray) -> list[str]:
    """Return a note if the sandbox may have caused a failure that the output mentions."""
    if not sandbox.kind or not any(message in output for message in REFUSAL_MESSAGES):
        return []
    return [SANDBOX_NOTE]


def move_aside(absent: Iterable[str]) -> list[str]:
    """Rename the files that a command created at protected paths. Return a note on each."""
    return [_move_aside(path) for path in absent if os.path.lexists(path)]


def _move_aside(path: str) -> str:
    names = (f"{path}{ASIDE_SUFFIX}{number or ''}" for number in count())
    new_path = next(name for name in names if not os.path.lexists(name))
    try:
        os.rename(path, new_path)
    except OSError as error:
        return f"{path} may not be made by a command, and could not be set aside: {error.strerror}"
    return f"{path} may not be made by a command: it was renamed to {new_path}"


RECORD_SUFFIX: Final = ".exit"
MAX_TIMEOUT_MS: Final = 60 * 60 * 1000
# A command that ends just in time is not killed.
TIMEOUT_SLACK_MS: Final = 100

# Models rarely write the syntax of these shells.
_UNSUITABLE_SHELLS: Final = frozenset({"fish", "nu"})


async def bash(
    arguments: BashInput, ctx: ToolContext, *, default_ms: int = DEFAULT_COMMAND_TIMEOUT_MS
) -> ToolResult:
    """Run a command, for `default_ms` at most if the model does not say how long."""
    timeout = None if arguments.timeout is None else min(arguments.timeout, MAX_TIMEOUT_MS)
    if timeout is not None and timeout < 0:
        raise ToolError(f"Invalid timeout value: {timeout}. It has to be a positive number of milliseconds.")
    if ctx.resources.sandbox.refusal:
        raise ToolError(ctx.resources.sandbox.refusal)
    place = await resolve_path(arguments.workdir or ctx.directory, ctx, "directory")
    await _ask_permission(arguments.command, place, ctx)
    if not place.is_directory:
        raise ToolError(f"There is no directory {place.path} to run it in.")
    command = ProcessCommand(
        argv=ctx.resources.sandbox.wrap((choose_shell(ctx.resources.environment), "-c", arguments.command)),
        directory=place.real,
        environment=ctx.resources.environment,
        timeout=None if timeout is None else (timeout + TIMEOUT_SLACK_MS) / 1000,
    )
    if arguments.background:
        return await _start_background(arguments, command, ctx)
    timeout_ms = default_ms if timeout is None else timeout
    return await _run_foreground(
        arguments, replace(command, timeout=(timeout_ms + TIMEOUT_SLACK_MS) / 1000), timeout_ms, ctx
    )


async def _ask_permission(command: str, place: ToolPath, ctx: ToolContext) -> None:
    for request in await asyncio.to_thread(_list_requests, command, place, ctx):
        metadata: dict[str, Any] = {"why": list(request.why)} if request.why else {}
        if request.permission != "bash":  # else the patterns are the command, part by part
            metadata["command"] = command
        if request.may_write:
            metadata["mayWrite"] = list(request.may_write)
        if request.perhaps:
            metadata["perhaps"] = list(request.perhaps)
        await ctx.ask(request.permission, *request.patterns, always=request.always, metadata=metadata)


async def _run_foreground(
    arguments: BashInput, command: ProcessCommand, timeout_ms: int, ctx: ToolContext
) -> ToolResult:
    output = ProcessOutput(ctx.resources.spill.new_path, memory=MAX_BYTES)
    absent, moved_notes = list_absent(ctx.resources.sandbox), list[str]()
    trace = await _make_trace(ctx)
    command = replace(command, token=trace.token, record=trace.record)
    try:
        # Only foreground commands are watched: a background job may run for hours, in which the person works, too.
        async with ctx.watch():
            await ctx.note(CallEvidence(command=trace))
            try:
                exit = await run_reporting(command, output, arguments.description, ctx)
            finally:
                moved_notes += move_aside(absent)
            result = await _to_result(arguments, exit, output, moved_notes, timeout_ms, ctx)
            # Looking for changed files may take a while. If we die meanwhile, the result is known.
            await ctx.note(CallEvidence(command=trace, result=_to_noted(result)))
            return result
    except asyncio.CancelledError:
        # The stored part keeps the output so far, because nobody receives a result.
        await ctx.report(
            metadata=to_metadata(
                output, arguments.description, "\n\n" + _format_notes(["User aborted the command"])
            )
        )
        raise
    except OSError as error:
        raise ToolError(f"The command could not be run: {error}") from error
    finally:
        output.close()


async def _make_trace(ctx: ToolContext) -> CommandTrace:
    """Return the note to store before a command runs. A terminal of the editor has no supervisor."""
    supervised = ctx.resources.terminals is None and ctx.note is not note_nothing
    path = await asyncio.to_thread(ctx.resources.spill.new_path) if supervised else ""
    return CommandTrace(token=new_token(), record=f"{path}{RECORD_SUFFIX}" if path else "", watched=True)


def _to_noted(result: ToolResult) -> CallResult:
    """Return a result without the copy of its output."""
    metadata = {name: value for name, value in result.metadata.items() if name != "output"}
    return CallResult(title=result.title, output=result.output, metadata=metadata)


async def _to_result(
    arguments: BashInput,
    exit: ProcessExit,
    output: ProcessOutput,
    moved_notes: list[str],
    timeout_ms: int,
    ctx: ToolContext,
) -> ToolResult:
    output.close()
    timeout_notes = (
        [f"bash tool terminated command after exceeding timeout {timeout_ms} ms"] if exit.timed_out else []
    )
    metadata = to_metadata(
        output, arguments.description, f"\n\n{_format_notes(timeout_notes)}" if timeout_notes else ""
    )
    text, path = await truncate_output(output, ctx)
    metadata |= {"exit": None if timeout_notes else exit.code}
    metadata |= {"truncated": True, "outputPath": path} if path else {"truncated": False}
    notes = list_notes(exit, output.lost) + moved_notes + timeout_notes
    notes += explain_refusal(ctx.resources.sandbox, output.head) if exit.code else []
    if notes:
        text += f"\n\n{_format_notes(notes)}"
    return ToolResult(title=arguments.description, output=text, metadata=metadata)


async def _start_background(arguments: BashInput, command: ProcessCommand, ctx: ToolContext) -> ToolResult:
    path = await asyncio.to_thread(ctx.resources.spill.new_path)
    trace = CommandTrace(token=new_token())
    job = Job(
        id=os.path.basename(path).replace("tool_", "job_", 1),
        session_id=ctx.session_id,
        command=arguments.command,
        description=arguments.description,
        output=path,
        started=ctx.clock.now(),
    )
    await ctx.note(CallEvidence(command=trace))
    await ctx.resources.jobs.start(job, replace(command, token=trace.token))
    output = f"Started {job.id} in the background.\nIts output goes to {path}; `jobs` lists and stops it."
    metadata = {"output": "", "description": arguments.description, "job": to_plain(job), "truncated": False}
    return ToolResult(title=arguments.description, output=output, metadata=metadata)


def _list_requests(command: str, place: ToolPath, ctx: ToolContext) -> tuple[ShellRequest, ...]:
    """Return everything that must be permitted before the command runs, apart from its working directory."""

    from weft.tool.shell.judgement import judge_command  # noqa: PLC0415  only a shell command needs it
    from weft.tool.shell.paths import locate_command  # noqa: PLC0415  only a shell command needs it

    location = locate_command(place.real, ctx.worktree, ctx.resources.environment, extra_root=ctx.directory)
    return judge_command(command, location).requests


def choose_shell(environment: Mapping[str, str]) -> str:
    """Return the person's own shell, or another one if models rarely write its syntax."""
    shell = environment.get("SHELL", "")
    if shell and os.path.basename(shell) not in _UNSUITABLE_SHELLS and os.access(shell, os.X_OK):
        return shell
    if sys.platform == "darwin":
        return "/bin/zsh"
    return shutil.which("bash", path=environment.get("PATH")) or "/bin/sh"


def _format_notes(notes: list[str]) -> str:
    return "\n".join(["<bash_metadata>", *notes, "</bash_metadata>"])
