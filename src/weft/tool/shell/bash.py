"""Run a shell command."""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from weft.errors import ToolError
from weft.host.process import Command, Output
from weft.model.wire import to_plain
from weft.tool.about import about
from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.job import Job
from weft.tool.paths import Place, enter
from weft.tool.shell.aside import explain, list_absent, set_aside
from weft.tool.shell.command import Request, judge
from weft.tool.shell.following import follow, keep, list_notes, to_metadata
from weft.tool.shell.places import where_is
from weft.tool.truncate import MAX_BYTES

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
