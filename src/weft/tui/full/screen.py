"""The full screen as a `ChatScreen`, over the same `Chat` as inline mode."""

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace
from textual.theme import BUILTIN_THEMES

from weft.tui.chat import Chat
from weft.tui.full.app import FullApp, FullSettings
from weft.tui.keys import KeyActions
from weft.tui.theme import THEMES, WEFT, Palette
from weft.tui.view import Item

TERMINAL_CHECK_SECONDS: Final = 2.0


class FullScreen:
    """A `ChatScreen` that takes the whole screen."""

    def __init__(self, settings: FullSettings) -> None:
        self._settings = replace(settings, themes=list_palettes(settings.themes))
        self._app: FullApp | None = None

    @property
    def is_full(self) -> bool:
        return True

    def make_app(self, chat: Chat) -> FullApp:
        self._app = FullApp(chat, self._settings, make_actions)
        return self._app

    async def run(self, chat: Chat) -> None:
        app = self.make_app(chat)
        watch = asyncio.create_task(self._leave_without_terminal())
        try:
            await app.run_async(mouse=self._settings.mouse)
        finally:
            watch.cancel()

    async def _leave_without_terminal(self) -> None:
        """End if the terminal is gone and no signal said so: Textual would ask it for input for ever."""
        while os.isatty(sys.stdin.fileno()):  # noqa: ASYNC110  no event tells it
            await asyncio.sleep(TERMINAL_CHECK_SECONDS)
        self.leave()

    async def show(self, items: list[Item], chat: Chat) -> None:  # noqa: ARG002  the items are in the chat
        self.refresh()

    def refresh(self) -> None:
        if self._app is not None and self._app.is_running:
            self._app.sync()

    def set_draft(self, text: str) -> None:
        if self._app is not None:
            self._app.set_draft(text)

    def leave(self) -> None:
        if self._app is not None and self._app.is_running:
            self._app.chat.draft = self._app.prompt.text
            self._app.exit()


def make_actions(app: FullApp) -> KeyActions:
    from weft.tui.full.actions import ScreenActions  # noqa: PLC0415  nothing was pressed yet

    return ScreenActions(app)


def list_palettes(files: Mapping[str, Palette]) -> dict[str, Palette]:
    """Return all themes: our own, those of Textual, and those of files, which win."""
    found = dict(THEMES)
    for name, theme in BUILTIN_THEMES.items():
        if theme.background and theme.foreground and name not in found and "ansi" not in name:
            panel = theme.surface or theme.background
            found[name] = Palette(
                background=theme.background, panel=panel, element=theme.panel or panel, border=theme.secondary or panel,
                text=theme.foreground, muted=WEFT.muted, accent=theme.primary, red=theme.error or WEFT.red,
                green=theme.success or WEFT.green, yellow=theme.warning or WEFT.yellow, blue=theme.primary,
                magenta=theme.accent or WEFT.magenta, cyan=theme.secondary or WEFT.cyan, dark=theme.dark,
            )  # fmt: skip
    return found | dict(files)
