"""The screens of a conversation: plain lines, inline or full, depending on the terminal and the configuration."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import shlex
import sys
import termios
from contextlib import contextmanager
from importlib.util import find_spec
from tty import CC, IFLAG, LFLAG
from typing import TYPE_CHECKING, Final

from weft.cli.output import Paint
from weft.errors import InvalidInputError, MissingPackageError
from weft.host.paths import paths_from
from weft.tui.plain import PlainScreen

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    import argparse
    from collections.abc import Callable, Iterator, Mapping

    from weft.api import Api
    from weft.errors import WeftError
    from weft.tui.chat import ChatScreen
    from weft.tui.theme import Palette

HISTORY_FILE = "weft-prompts"
HISTORY_MODE = 0o600
UI_COMMAND = "weft ui"
UI_EXTRA = "weft[ui]"
MAX_THEME_BYTES = 1 << 18
LIGHT_BACKGROUNDS = ("7", "15")
MAX_TYPED_BYTES: Final = 65_536
ESCAPE_SEQUENCES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?")


@contextmanager
def hold_input(fd: int, *, plain: bool = False) -> Iterator[str]:
    """Yield what was typed before a screen is there. What is typed from now on waits for the screen, and is not echoed.

    Without a screen, the terminal edits lines, and turns Enter into a line end, which is Ctrl-J to a screen. With `plain`, that is wanted.
    """
    if plain:
        yield ""
        return
    before = termios.tcgetattr(fd)
    held = termios.tcgetattr(fd)
    held[LFLAG] &= ~(termios.ICANON | termios.ECHO)
    held[IFLAG] &= ~termios.ICRNL
    typed = b""
    try:
        held[CC][termios.VMIN], held[CC][termios.VTIME] = 0, 0  # reading does not wait
        termios.tcsetattr(fd, termios.TCSANOW, held)
        while piece := os.read(fd, MAX_TYPED_BYTES):
            typed += piece
        held[CC][termios.VMIN] = 1
        termios.tcsetattr(fd, termios.TCSANOW, held)
        text = ESCAPE_SEQUENCES.sub("", typed.decode(errors="replace").replace("\r", "\n"))
        yield "".join(each for each in text if each.isprintable() or each in "\n\t")
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


@contextmanager
def lend_terminal(fd: int) -> Iterator[None]:
    """Let another program have a terminal that edits lines and echoes them, as a shell hands it over."""
    before, lent = termios.tcgetattr(fd), termios.tcgetattr(fd)
    lent[LFLAG] |= termios.ICANON | termios.ECHO
    lent[IFLAG] |= termios.ICRNL
    termios.tcsetattr(fd, termios.TCSADRAIN, lent)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def is_dumb() -> bool:
    """Return True if the terminal can only print lines."""
    return os.environ.get("TERM", "dumb") == "dumb"


def check_full_screen(args: argparse.Namespace) -> None:
    """Raise an error that says what to do if the full screen cannot be opened."""
    if args.ax or is_dumb():
        reason = "--ax" if args.ax else "this terminal"
        command = args.command_parser.prog
        hint = "weft chat works without it" if command == UI_COMMAND else f"{command} works without --full"
        raise InvalidInputError("full screen", f"{reason} shows plain lines only", hint=hint)
    require_textual()


def require_textual() -> None:
    if find_spec("textual") is None:
        raise MissingPackageError("textual", UI_EXTRA)


async def make_chat_screen(
    api: Api, directory: str, *, full: bool, plain: bool, warn: Callable[[WeftError], None]
) -> ChatScreen:
    """Return the screen of a conversation. A broken theme file is reported to `warn`, and left out."""
    if not full and (plain or is_dumb()):
        return PlainScreen()
    config = await api.configuration.get()
    terminal = _get(_get(_get(config, "experimental"), "weft"), "terminal")
    history = await asyncio.to_thread(open_history)
    if not full:
        from weft.tui.inline import InlineScreen  # noqa: PLC0415  plain lines need no prompt_toolkit

        # While the full screen is shown, `sys.stdout` belongs to Textual.
        colour = Paint(sys.__stdout__ or sys.stdout).on
        return InlineScreen(history=history, vi=terminal.get("keys") == "vi", colour=colour)
    require_textual()
    if "textual" not in sys.modules:
        # Textual makes so many objects that Python would look through all of them for garbage before anything is drawn.
        gc.freeze()
    from weft.config.schema import get_default_keybinds  # noqa: PLC0415  only the full screen needs them
    from weft.host.terminal import run_with_input  # noqa: PLC0415  only the full screen copies
    from weft.tui.full.app import FullSettings  # noqa: PLC0415  inline mode needs no Textual
    from weft.tui.full.screen import FullScreen  # noqa: PLC0415  inline mode needs no Textual

    for name in ("COLUMNS", "LINES"):
        # Textual prefers these to the real size of the terminal, and a shell that exports them does not update them.
        os.environ.pop(name, None)
    theme = config.get("theme")
    keybinds = _get(config, "keybinds")
    return FullScreen(
        FullSettings(
            theme=choose_theme(theme if isinstance(theme, str) else "", os.environ),
            themes=await asyncio.to_thread(load_themes, directory, os.environ, warn),
            keybinds={
                **get_default_keybinds(),  # a server of OpenCode may name none
                **{name: keys for name, keys in keybinds.items() if isinstance(keys, str)},
            },
            history=history,
            mouse=terminal.get("mouse") is True,
            vi=terminal.get("keys") == "vi",
            env=os.environ,
            run_editor=run_editor,
            run_program=run_with_input,
        )
    )


async def run_editor(path: str) -> None:
    """Let the person's editor change a file. Raise `InvalidInputError` if there is no such program."""
    from weft.host.terminal import NO_SUCH_PROGRAM, run_in_terminal  # noqa: PLC0415  few prompts are edited

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with lend_terminal(sys.__stdin__.fileno() if sys.__stdin__ is not None else 0):
        code = await run_in_terminal([*shlex.split(editor), path])
    if code == NO_SUCH_PROGRAM:
        raise InvalidInputError("EDITOR", f"there is no program {editor!r}", hint="set VISUAL or EDITOR")


def choose_theme(configured: str, env: Mapping[str, str]) -> str:
    """Return the configured theme, else the one that fits the terminal; with `NO_COLOR`, the one without colours of its own."""
    if env.get("NO_COLOR"):
        return "terminal"
    if configured:
        return configured
    return "weft-light" if is_light(env) else "weft"


def is_light(env: Mapping[str, str]) -> bool:
    """Return True if the terminal says that its background is light."""
    return env.get("COLORFGBG", "").rpartition(";")[2] in LIGHT_BACKGROUNDS


def load_themes(
    directory: str, env: Mapping[str, str], warn: Callable[[WeftError], None]
) -> dict[str, Palette]:
    """Return the themes of the person's and the project's theme files by name, the nearest winning, as in OpenCode."""
    from weft.errors import ConfigError  # noqa: PLC0415  only the full screen has themes
    from weft.tui.theme import to_palette  # noqa: PLC0415  only the full screen has themes

    found: dict[str, Palette] = {}
    for path in _list_theme_files(directory, env):
        try:
            with open(path, "rb") as file:
                content = json.loads(file.read(MAX_THEME_BYTES))
            name = os.path.basename(path).removesuffix(".json")
            found[name] = to_palette(content, dark=not is_light(env), name=path)
        except (OSError, ValueError) as error:
            warn(ConfigError(path, f"it cannot be read: {error}"))
        except ConfigError as error:
            warn(error)
    return found


def _list_theme_files(directory: str, env: Mapping[str, str]) -> Iterator[str]:
    """Yield theme files, the weakest first: of the person, then from the root of the file system down to the directory."""
    paths = paths_from(env)
    here = os.path.abspath(directory)
    above = [here]
    while os.path.dirname(above[-1]) != above[-1]:
        above.append(os.path.dirname(above[-1]))
    for place in (paths.config, *(os.path.join(each, ".opencode") for each in reversed(above))):
        folder = os.path.join(place, "themes")
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        yield from (os.path.join(folder, name) for name in names if name.endswith(".json"))


def open_history() -> str | None:
    """Create the file of typed prompts, which only its owner can read. Return None if that is impossible."""
    directory = paths_from(os.environ).state
    path = os.path.join(directory, HISTORY_FILE)
    try:
        os.makedirs(directory, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND, HISTORY_MODE))
    except OSError:
        return None
    return path


def _get(config: Mapping[str, object], key: str) -> dict[str, object]:
    """Return a section of a configuration, empty if it has none."""
    section = config.get(key)
    return section if isinstance(section, dict) else {}
