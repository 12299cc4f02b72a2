"""Run a shell command."""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from weft.errors import ToolError
from weft.host.process import Command, Exit, Output, run
from weft.tool.about import about
from weft.tool.command import judge
from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.paths import enter
from weft.tool.truncate import MAX_BYTES, cut, note

DEFAULT_MS: Final = 120_000
LONGEST_MS: Final = 60 * 60 * 1000
SLACK_MS: Final = 100
SHOWN: Final = 30_000
REPORT_SECONDS: Final = 0.25

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


async def bash(wanted: BashInput, ctx: ToolContext) -> ToolResult:
    timeout = DEFAULT_MS if wanted.timeout is None else min(wanted.timeout, LONGEST_MS)
    if timeout < 0:
        raise ToolError(f"Invalid timeout value: {timeout}. It has to be a positive number of milliseconds.")
    place = await enter(wanted.workdir or ctx.directory, ctx, "directory")
    judgement = judge(wanted.command)
    await ctx.ask("bash", *judgement.patterns, always=judgement.always)
    if not place.is_directory:
        raise ToolError(f"There is no directory {place.path} to run it in.")
    command = Command(
        argv=(shell_of(ctx.desk.environment), "-c", wanted.command),
        directory=place.real,
        environment=ctx.desk.environment,
        timeout=(timeout + SLACK_MS) / 1000,
    )
    output = Output(ctx.desk.spill.new_path, memory=MAX_BYTES)
    try:
        exit = await _run(command, output, wanted.description, ctx)
    except asyncio.CancelledError:
        # The part keeps what was said so far; nobody waits for a result any more.
        await ctx.report(
            metadata=_metadata(output, wanted.description, "\n\n" + _block(["User aborted the command"]))
        )
        raise
    except OSError as error:
        raise ToolError(f"The command could not be run: {error}") from error
    finally:
        output.close()
    metadata = _metadata(output, wanted.description) | {"exit": exit.code}
    text, path = await _kept(output, ctx)
    metadata |= {"truncated": True, "outputPath": path} if path else {"truncated": False}
    if notes := _notes(exit, timeout, output.lost):
        text += f"\n\n{_block(notes)}"
    return ToolResult(title=wanted.description, output=text, metadata=metadata)


def shell_of(environment: Mapping[str, str]) -> str:
    """The person's own shell, unless it is one that models do not write for."""
    own = environment.get("SHELL", "")
    if own and os.path.basename(own) not in _FOREIGN and os.access(own, os.X_OK):
        return own
    if sys.platform == "darwin":
        return "/bin/zsh"
    return shutil.which("bash", path=environment.get("PATH")) or "/bin/sh"


async def _run(command: Command, output: Output, description: str, ctx: ToolContext) -> Exit:
    """Run it, and tell how it is getting on: at once, and then not too often."""
    news = asyncio.Event()

    async def hear(piece: bytes) -> None:
        await output.hear(piece)
        news.set()

    async def tell() -> None:
        while True:
            await ctx.report(metadata=_metadata(output, description))
            # OpenCode stores up to 30 KB anew for every chunk.
            await ctx.clock.sleep(REPORT_SECONDS)
            await news.wait()
            news.clear()

    try:
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(tell())
            exit = await run(command, hear)
            telling.cancel()
            return exit
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _kept(output: Output, ctx: ToolContext) -> tuple[str, str | None]:
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


def _notes(exit: Exit, timeout: int, lost: int) -> list[str]:
    notes = []
    if lost:
        notes.append(f"the last {lost} bytes of output were not kept")
    if exit.timed_out:
        notes.append(f"bash tool terminated command after exceeding timeout {timeout} ms")
    # OpenCode keeps the exit code from the model, which then takes a silent failure for success.
    elif exit.code:
        notes.append(f"exit code {exit.code}")
    if exit.leftovers:
        notes.append(f"{exit.leftovers} background process(es) still running were ended with the command")
    return notes


def _block(notes: list[str]) -> str:
    return "\n".join(["<bash_metadata>", *notes, "</bash_metadata>"])


def _metadata(output: Output, description: str, more: str = "") -> dict[str, Any]:
    text = output.head.decode(errors="replace")
    shown = text if len(text) <= SHOWN else text[:SHOWN] + "\n\n..."
    return {"output": shown + more, "description": description}


BASH = Tool(name="bash", about=about("bash"), takes=BashInput, run=bash)
