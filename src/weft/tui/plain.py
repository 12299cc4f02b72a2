"""A conversation in plain lines, for screen readers and terminals that can draw nothing: each line is printed once."""

import asyncio
import os
import signal
import sys
from typing import Final

from weft.tui.chat import NOTHING_RUNS, Chat
from weft.tui.live import get_columns
from weft.tui.render import MAX_WIDTH, break_lines, render_plain
from weft.tui.text import Line, to_plain_text
from weft.tui.view import Item

MAX_LINE_BYTES: Final = 65_536


class PlainScreen:
    """A `ChatScreen` that reads lines and prints lines."""

    def __init__(self) -> None:
        self._asked: list[Line] = []
        self._was_busy = False
        self._chat: Chat | None = None
        self._done = asyncio.Event()

    @property
    def is_full(self) -> bool:
        return False

    async def run(self, chat: Chat) -> None:
        self._chat = chat
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt, chat)
        try:
            while not self._done.is_set():
                typed = await self._read_line()
                if not typed:
                    return
                chat.submit(typed.rstrip("\n"))
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def _interrupt(self, chat: Chat) -> None:
        self._print([])  # after the ^C that the terminal shows
        if not chat.interrupt():
            chat.note(NOTHING_RUNS)

    async def show(self, items: list[Item], chat: Chat) -> None:
        options = chat.get_options(get_columns())
        self._print([line for item in items for line in render_plain(item, options)])

    def refresh(self) -> None:
        """Print each open request once, and the beginning and end of a run."""
        chat = self._chat
        if chat is None:
            return
        asked = chat.render_live(MAX_WIDTH, MAX_WIDTH) if chat.request is not None else []
        if asked and asked != self._asked:
            self._print(break_lines(asked, get_columns()))
        self._asked = asked
        if chat.is_busy != self._was_busy:
            self._was_busy = chat.is_busy
            self._print([[("", "working" if chat.is_busy else "ready")]])

    def set_draft(self, text: str) -> None:
        """Do nothing: a line that was typed cannot be changed."""

    def leave(self) -> None:
        self._done.set()

    def _print(self, lines: list[Line]) -> None:
        sys.stdout.write(f"{to_plain_text(lines)}\n")
        sys.stdout.flush()

    async def _read_line(self) -> str:
        """Return the next line; empty at the end of the input or when the person leaves."""
        loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
        line: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            if not line.done():
                line.set_result(os.read(fd, MAX_LINE_BYTES).decode(errors="replace"))

        loop.add_reader(fd, read)
        leaving = asyncio.ensure_future(self._done.wait())
        try:
            await asyncio.wait((line, leaving), return_when=asyncio.FIRST_COMPLETED)
            return line.result() if line.done() else ""
        finally:
            leaving.cancel()
            loop.remove_reader(fd)
