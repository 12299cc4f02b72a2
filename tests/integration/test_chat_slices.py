"""A conversation while it is busy: much is shown in slices, so that keys have their turn, and nothing is sent before its session is open."""

import asyncio
from pathlib import Path
from typing import Any

from given.engine import open_engine
from weft.errors import StoreError
from weft.local.permissions import PermissionSettings
from weft.model.input import SessionInput, TextInput
from weft.model.permission import Rule
from weft.permission.policy import AskPolicy
from weft.provider.scripted import Say, UseTool
from weft.tui.chat import SLICE_ITEMS, Chat, ChatSetup
from weft.tui.commands import run_command
from weft.tui.view import AnswerItem, Item, NoticeItem

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


class HastyScreen(RecordingScreen):
    """A `ChatScreen` at which a prompt is typed at once, before the session is there."""

    def __init__(self) -> None:
        super().__init__()
        self._is_answered = asyncio.Event()

    async def run(self, chat: Chat) -> None:
        chat.submit("hello")
        await self._is_answered.wait()

    async def show(self, items: list[Item], chat: Chat) -> None:
        await super().show(items, chat)
        if any(isinstance(item, AnswerItem) for item in items):
            self._is_answered.set()


async def to_parts(text: str, _: str | None) -> tuple[TextInput, ...]:
    return (TextInput(text=text),)


async def test_text_typed_while_a_session_is_opened_is_sent_to_it() -> None:
    setup = ChatSetup(now=lambda: 1, run_command=run_command, to_parts=to_parts, to_resume=str)
    async with open_engine([Say(text="Hello.")]) as engine:
        session = await engine.api.create_session(SessionInput(title="Mine"))
        await Chat(engine.api, HastyScreen(), setup).run(session)
        assert [each.id for each in await engine.api.list_sessions()] == [session.id]
        assert len(await engine.api.list_messages(session.id)) == 2


async def test_the_output_of_a_command_before_the_first_session_stays_on_the_screen() -> None:
    class NotingScreen(HastyScreen):
        async def run(self, chat: Chat) -> None:
            chat.note("nothing is granted")
            while not self.shown:  # noqa: ASYNC110  the screen has no event for it
                await asyncio.sleep(0)
            await super().run(chat)

    setup = ChatSetup(now=lambda: 1, run_command=run_command, to_parts=to_parts, to_resume=str)
    async with open_engine([Say(text="Hello.")]) as engine:
        chat = Chat(engine.api, NotingScreen(), setup)
        await chat.run()
    assert chat.items[0] == NoticeItem(kind="note", text="nothing is granted")
    assert any(isinstance(item, AnswerItem) for item in chat.items)


async def test_a_large_output_is_shown_in_slices_between_key_presses(tmp_path: Path) -> None:
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


class AnsweringScreen(RecordingScreen):
    """A `ChatScreen` at which every request is allowed until the model has answered."""

    async def run(self, chat: Chat) -> None:
        chat.submit("hello")
        while not any(isinstance(item, AnswerItem) for piece in self.shown for item in piece):
            if chat.request is not None:
                chat.submit("1")
            await asyncio.sleep(0.01)


async def test_a_request_whose_reply_fails_stays_open() -> None:
    setup = ChatSetup(now=lambda: 1, run_command=run_command, to_parts=to_parts, to_resume=str)
    calls = [UseTool(tool="echo", input={"words": "x"})]
    permissions = PermissionSettings(policy=AskPolicy(can_ask=True, person="ada"))
    rules = (Rule(permission="*", pattern="*", action="ask"),)
    async with open_engine(calls, [Say(text="Done.")], rules=rules, permissions=permissions) as engine:

        class FailingOnce:
            replies = 0

            def __getattr__(self, name: str) -> object:
                return getattr(engine.api, name)

            async def reply_permission(self, *args: Any, **named: Any) -> None:
                self.replies += 1
                if self.replies == 1:
                    raise StoreError("the reply cannot be written")
                await engine.api.reply_permission(*args, **named)

        api: Any = FailingOnce()
        chat = Chat(api, AnsweringScreen(), setup)
        await asyncio.wait_for(chat.run(), 10)
    assert api.replies == 2
