"""Copy text from a terminal: by OSC 52, through tmux, with a program of the system, or into a file."""

import asyncio
import base64
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

# Terminals drop a longer sequence without a word.
MAX_OSC_LENGTH: Final = 74_994


class CopyProgram(NamedTuple):
    """A program that takes text on its input. It can be used if all variables of `needs` are set."""

    argv: tuple[str, ...]
    needs: str


PROGRAMS: Final = (
    CopyProgram(("wl-copy",), "WAYLAND_DISPLAY"),
    CopyProgram(("xclip", "-selection", "clipboard"), "DISPLAY"),
    CopyProgram(("xsel", "--clipboard", "--input"), "DISPLAY"),
    CopyProgram(("pbcopy",), ""),
    CopyProgram(("clip.exe",), ""),
)
TMUX: Final = CopyProgram(("tmux", "load-buffer", "-w", "-"), "TMUX")


RunProgram = Callable[[Sequence[str], str], Awaitable[bool]]
"""Runs a program with text as its input. Returns False if it is not installed or fails."""


async def copy_text(
    text: str, env: Mapping[str, str], write: Callable[[str], object], run: RunProgram
) -> str:
    """Copy text through the terminal and with a program of the system. Return the ways that were used. `write` writes to the terminal.

    A terminal does not say whether it accepted an OSC 52 sequence, so a program of the system is used, too, if there is one. If
    there is no way at all, the text goes into a file.
    """
    text = text.encode(errors="replace").decode()  # a model may write half a surrogate pair
    ways: list[str] = []
    if env.get("TMUX"):
        # tmux keeps the text in a buffer, and passes it on to its own terminal.
        ways += ["tmux"] if await run(TMUX.argv, text) else []
    elif to_osc52(text) and env.get("TERM") not in ("linux", "dumb"):
        write(to_osc52(text))
        ways.append("OSC 52")
    # Over SSH, a program would copy to the other machine.
    if not env.get("SSH_CONNECTION"):
        for program in PROGRAMS:
            if (not program.needs or env.get(program.needs)) and await run(program.argv, text):
                ways.append(program.argv[0])
                break
    return ", ".join(ways) if ways else await asyncio.to_thread(_write_file, text)


def to_osc52(text: str) -> str:
    """Return the sequence that puts text into the clipboard; empty if the text is too long for it."""
    encoded = base64.b64encode(text.encode()).decode()
    return f"\x1b]52;c;{encoded}\x07" if len(encoded) <= MAX_OSC_LENGTH else ""


def _write_file(text: str) -> str:
    """Write text into a new file that only its owner can read. Return where."""
    try:
        handle, path = tempfile.mkstemp(prefix="weft-copied-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return f"nowhere: {error.strerror}"
    return f"the file {path}"
