"""A conversation in plain lines, for screen readers and terminals that can draw nothing: each line is printed once."""

import asyncio
import os
import sys
from typing import Final

from weft.model.permission import PermissionRequest, QuestionRequest
from weft.tui.chat import Chat
from weft.tui.render import render_item
from weft.tui.text import Line, to_plain_text
from weft.tui.view import Item

# Screen readers announce a line as a whole, so lines are broken only where the text has a line end.
WIDTH: Final = 10_000
MAX_LINE_BYTES: Final = 65_536


class PlainScreen:
    """A `ChatScreen` that reads lines and prints lines."""

    def __init__(self) -> None:
        self._asked = ""
        self._was_busy = False
        self._chat: Chat | None = None
        self._done = asyncio.Event()

    @property
    def is_full(self) -> bool:
        return False

    async def run(self, chat: Chat) -> None:
        self._chat = chat
        while not self._done.is_set():
            typed = await self._read_line()
            if not typed:
                return
            chat.submit(typed.rstrip("\n"))

    async def show(self, items: list[Item], chat: Chat) -> None:
        lines = [line for item in items for line in render_item(item, chat.get_options(WIDTH))]
        self._print(lines)

    def refresh(self) -> None:
        """Say once what is asked, and when a run begins and ends."""
        chat = self._chat
        if chat is None:
            return
        request = chat.request
        key = self._to_key(request, chat)
        if key and key != self._asked:
            self._print(chat.render_live(WIDTH, WIDTH))
        self._asked = key
        if chat.is_busy != self._was_busy:
            self._was_busy = chat.is_busy
            self._print([[("", "working" if chat.is_busy else "ready")]])

    def set_draft(self, text: str) -> None:
        """Do nothing: a line that was typed cannot be changed."""

    def leave(self) -> None:
        self._done.set()

    def _to_key(self, request: PermissionRequest | QuestionRequest | None, chat: Chat) -> str:
        return "" if request is None else f"{request.id} {len(chat.render_live(WIDTH, WIDTH))}"

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
