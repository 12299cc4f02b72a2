"""The full screen without a terminal: a conversation that a test drives by keys, and what the screen shows."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

from textual.pilot import Pilot

from weft.api import Api
from weft.config.schema import get_default_keybinds
from weft.host.terminal import run_with_input
from weft.model.input import TextInput
from weft.model.session import SessionInfo
from weft.tui.chat import Chat, ChatSetup
from weft.tui.commands import run_command
from weft.tui.full.app import FullApp, FullSettings
from weft.tui.full.screen import FullScreen

PATIENCE = 60
NOW = 1_790_000_000_000
KEYS = {" ": "space", "/": "slash", "\n": "enter", ".": "full_stop", "-": "minus", "@": "at", "{": "left_curly_bracket", "}": "right_curly_bracket"}  # fmt: skip
# What differs from run to run.
CHANGING = (
    (re.compile(r"ses_\w{26}"), "ses_XXXXXXXXXXXXXXXXXXXXXXXXXX"),
    (re.compile(r"thought for [\d.]+m?s"), "thought for 8ms"),
    (re.compile(r"/\S*/project/"), "/project/"),
)
# How long a call took, which is shown only if it was long.
SECONDS = re.compile(r" · \d+(\.\d)?s\b")


class PilotTerminal:
    """Keys for a full screen, and its text."""

    def __init__(self, pilot: Pilot[None], app: FullApp) -> None:
        self.app = app
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        await self.press(*(KEYS.get(char, char) for char in text))

    async def enter(self, text: str) -> None:
        await self.type(text)
        await self.press("enter")

    async def rest(self) -> None:
        """Wait until the screen does nothing more without a key."""
        until = time.monotonic() + PATIENCE
        while running := self._list_running_timers():
            assert time.monotonic() < until, f"these timers go on: {running}"
            await asyncio.sleep(0.01)

    def _list_running_timers(self) -> list[str]:
        screen = self.app.screen
        widgets = (self.app, screen, *screen.walk_children())
        return [timer.name for widget in widgets for timer in widget._timers if timer._active.is_set()]

    def get_screen(self) -> str:
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(each.text for each in strip).rstrip() for strip in strips)

    def get_stable_screen(self) -> str:
        screen = self.get_screen()
        for pattern, words in CHANGING:
            screen = pattern.sub(words, screen)
        screen = SECONDS.sub(lambda found: " " * len(found[0]), screen)
        return "\n".join(line.rstrip() for line in screen.split("\n"))

    async def wait_for(self, words: str, *, gone: str = "") -> str:
        """Wait until the screen shows `words`, and does not show `gone`."""
        until = time.monotonic() + PATIENCE
        while words not in (screen := self.get_screen()) or (gone and gone in screen):
            assert time.monotonic() < until, f"{words!r} was not shown:\n{screen}"
            await asyncio.sleep(0.01)
        return screen

    async def wait_for_screen(self, wanted: str) -> str:
        """Wait until the stable screen is the wanted one: what is drawn last may come after the words that a test waited for.

        Return the screen as it is in the end.
        """
        until = time.monotonic() + PATIENCE
        while (screen := self.get_stable_screen()) != wanted:
            if time.monotonic() > until:
                break
            await asyncio.sleep(0.01)
        return screen

    async def settle(self, words: str) -> str:
        await self.wait_for(words)
        return await self.wait_for(" ready")


Drive = Callable[[PilotTerminal], Awaitable[None]]


class PilotScreen(FullScreen):
    """A full screen that a test drives."""

    def __init__(self, drive: Drive, size: tuple[int, int], settings: FullSettings) -> None:
        super().__init__(settings)
        self._drive = drive
        self._size = size

    async def run(self, chat: Chat) -> None:
        app = self.make_app(chat)
        async with app.run_test(size=self._size) as pilot:
            await self._drive(PilotTerminal(pilot, app))


async def drive_screen(
    api: Api,
    drive: Drive,
    *,
    size: tuple[int, int] = (120, 40),
    session: SessionInfo | None = None,
    **settings: Any,
) -> None:
    """Run a conversation on the full screen until `drive` returns."""

    async def to_parts(text: str, _: str | None) -> tuple[TextInput, ...]:
        return (TextInput(text=text),)

    async def run_editor(_: str) -> None:
        raise AssertionError("no test here opens an editor")

    keybinds = {**get_default_keybinds(), **settings.pop("keybinds", {})}
    setup = ChatSetup(
        now=lambda: NOW,
        run_command=run_command,
        to_parts=to_parts,
        to_resume=lambda session: f"weft ui -s {session}",
        model=settings.pop("model", None),
    )
    screen = PilotScreen(
        drive,
        size,
        FullSettings(
            env={"TERM": "xterm"},
            keybinds=keybinds,
            run_editor=run_editor,
            run_program=run_with_input,
            **settings,
        ),
    )
    await Chat(api, screen, setup).run(session)
