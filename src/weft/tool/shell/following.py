"""Following a shell command while it runs: telling what it says, and what is kept of it in the end."""

import asyncio
from typing import Any, Final

from weft.host.process import Command, Exit, Hear, Output, run
from weft.tool.contract import ToolContext
from weft.tool.shell.terminal import new_token, open_terminal, run_in
from weft.tool.truncate import cut, note

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
            exit = await _run(command, hear, ctx)
            telling.cancel()
            return exit
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


async def _run(command: Command, hear: Hear, ctx: ToolContext) -> Exit:
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
