"""What the full screen is made with: settings of the configuration, programs of the system, and what keys do."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct

from weft.tui.clipboard import RunProgram
from weft.tui.theme import Palette


class FullSettings(Struct, frozen=True, kw_only=True):
    """The theme and the keys that the configuration names, the themes of files, the history file, and who has the mouse.

    With `vi`, the prompt has the keys of vi.

    `run_editor` lets the person's editor change a file, `run_program` runs a program that copies.
    """

    theme: str = "weft"
    themes: Mapping[str, Palette] = {}
    keybinds: Mapping[str, str] = {}
    history: str | None = None
    mouse: bool = False
    vi: bool = False
    env: Mapping[str, str] = {}
    run_editor: Callable[[str], Awaitable[None]]
    run_program: RunProgram


class KeyActions(Protocol):
    """What keys do: `run` carries out an action by name, `browse` handles a key of the transcript if it means something."""

    def run(self, action: str) -> None: ...

    def browse(self, key: str) -> bool: ...
