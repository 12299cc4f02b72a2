"""A conversation that shows much at once: in slices and in order, so that keys have their turn."""

import asyncio
from pathlib import Path

from given.engine import open_engine
from weft.model.input import TextInput
from weft.tui.chat import SLICE_ITEMS, Chat
from weft.tui.chat_setup import ChatSetup
from weft.tui.commands import run_command
from weft.tui.view import Item, NoticeItem

COUNT = 90


class RecordingScreen:
    """A `ChatScreen` that records what it is to show, and how often something else ran meanwhile."""

    is_full = False

    def __init__(self) -> None:
        self.shown: list[list[Item]] = []
        self.turns: list[int] = []

    async def run(self, chat: Chat) -> None:
        chat.add(*(NoticeItem(kind="note", text=str(number)) for number in range(COUNT)))
        while sum(map(len, self.shown)) < COUNT:
            self.turns.append(len(self.shown))
            await asyncio.sleep(0)

    async def show(self, items: list[Item], chat: Chat) -> None:  # noqa: ARG002  as the protocol has it
        self.shown.append(items)

    def refresh(self) -> None:
        pass

    def set_draft(self, text: str) -> None:
        pass

    def leave(self) -> None:
        pass


async def test_a_large_output_is_shown_in_slices_between_key_presses(tmp_path: Path) -> None:
    async def to_parts(text: str, _: str | None) -> tuple[TextInput, ...]:
        return (TextInput(text=text),)

    setup = ChatSetup(now=lambda: 1, run_command=run_command, to_parts=to_parts, to_resume=str)
    async with open_engine(tmp_path) as engine:
        screen = RecordingScreen()
        chat = Chat(engine.api, screen, setup)
        await chat.run()
    texts = [item.text for piece in screen.shown for item in piece if isinstance(item, NoticeItem)]
    assert texts == [str(number) for number in range(COUNT)]
    assert [item.text for item in chat.items if isinstance(item, NoticeItem)] == texts
    assert max(map(len, screen.shown)) == SLICE_ITEMS
    assert set(screen.turns) >= {1, 2, 3, 4}
