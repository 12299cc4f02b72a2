"""Run `weft` in an emulated terminal, in inline mode and on the full screen, and draw its screens into docs/.

python tools/picture.py [DIRECTORY]
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import pyte
from pyte.screens import Char

from weft.cli.demo import PROMPT, make_repository

ROOT = Path(__file__).parents[1]
CELL, LINE, MARGIN, BAR = 7.8, 17, 16, 30
BACKGROUND = "#171b22"
PATIENCE = 60
COLOURS = {
    "default": "#d8dee9",
    "red": "#e78a8a",
    "green": "#a3d39c",
    "brown": "#ebcb8b",
    "blue": "#8fb8de",
    "magenta": "#c7a4d8",
    "cyan": "#8fd3d3",
    "brightblack": "#8592a8",
}
# Times, ids and paths differ from run to run. What takes their place is as long, so that nothing moves.
CHANGING = (
    (re.compile(r"(?<=thought for )\d\d\dms"), "250ms"),
    (re.compile(r"(?<= · )\d\.\ds"), "1.2s"),
    (re.compile(r"ses_[0-9a-zA-Z]{26}"), "ses_5f1e2d3c4b5aWeftWeftWeft00"),
    (
        re.compile(r"/tmp/tmp\w{8}/greeter; /help says more, Ctrl-D leaves"),
        "~/greeter; /help says more, Ctrl-D leaves             ",
    ),
)


class Step(NamedTuple):
    """Wait for words on the screen, then type keys."""

    words: str
    keys: str


class Picture(NamedTuple):
    name: str
    about: str
    command: tuple[str, ...]
    size: tuple[int, int]
    steps: tuple[Step, ...]
    last: str


PICTURES = (
    Picture(
        "terminal",
        "weft in a terminal, inline mode",
        ("chat", "-m", "scripted/demo"),
        (96, 38),
        (Step(" ready", f"{PROMPT}\r"), Step("undo: /undo", "")),
        " ready ",
    ),
    Picture(
        "fullscreen",
        "weft on the full screen, with what the session cost and changed",
        ("ui", "-m", "scripted/demo"),
        (124, 36),
        (Step(" ready", f"{PROMPT}\r"), Step("undo: /undo", "")),
        "FILES CHANGED",
    ),
    Picture(
        "fullscreen-diff",
        "the changes of a session side by side, on the full screen",
        ("ui", "-m", "scripted/demo"),
        (124, 26),
        (Step(" ready", f"{PROMPT}\r"), Step("undo: /undo", "\x18"), Step("ctrl+x …", "d")),
        "1 file changed",
    ),
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    target = Path(arguments[0]) if arguments else ROOT / "docs"
    for picture in PICTURES:
        (target / f"{picture.name}.svg").write_text(draw(record(picture), picture.about))
    return 0


def record(picture: Picture) -> pyte.Screen:
    """Hold a conversation with the scripted model, and return the screen at its end."""
    columns, rows = picture.size
    screen = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(screen)
    with tempfile.TemporaryDirectory() as scratch:
        repository = Path(scratch) / "greeter"
        make_repository(repository)
        (Path(scratch) / "home").mkdir()
        env = {"HOME": f"{scratch}/home", "PATH": os.environ["PATH"], "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}  # fmt: skip
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-m", "weft", *picture.command],
            cwd=repository, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        try:
            for step in picture.steps:
                read_until(ours, stream, screen, step.words)
                os.write(ours, step.keys.encode())
            read_until(ours, stream, screen, picture.last)
            read_rest(ours, stream)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            os.close(ours)
            os.close(theirs)
    return screen


def read_until(terminal: int, stream: pyte.ByteStream, screen: pyte.Screen, words: str) -> None:
    until = time.monotonic() + PATIENCE
    while not any(words in line for line in screen.display):
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, "\n".join(screen.display)
        assert time.monotonic() < until, "\n".join(screen.display)
        stream.feed(strip_unknown(os.read(terminal, 65_536)))


def read_rest(terminal: int, stream: pyte.ByteStream) -> None:
    """Read until nothing is drawn any more: the last calls, the title and the status."""
    until = time.monotonic() + 3
    while time.monotonic() < until:
        ready, _, _ = select.select([terminal], [], [], 0.5)
        if ready:
            stream.feed(strip_unknown(os.read(terminal, 65_536)))


def strip_unknown(data: bytes) -> bytes:
    """Remove sequences that the emulator would print as text."""
    return re.sub(rb"\x1b\[[<>=?][0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*\$p", b"", data)


# --- drawing ---


def draw(screen: pyte.Screen, about: str) -> str:
    last = max(row for row in range(screen.lines) if screen.display[row].strip())
    width = 2 * MARGIN + CELL * screen.columns
    height = BAR + MARGIN + LINE * (last + 1)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" xml:space="preserve" role="img" aria-label="{escape(about)}">',
        "<style>text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre}</style>",
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="9" fill="{BACKGROUND}" stroke="#39445a"/>',
        *(
            f'<circle cx="{MARGIN + 4 + 18 * at}" cy="15" r="5.5" fill="{fill}"/>'
            for at, fill in enumerate(("#e78a8a", "#ebcb8b", "#a3d39c"))
        ),
    ]
    for row in range(last + 1):
        drawn += draw_row(screen, row)
    return "\n".join([*drawn, "</svg>"]) + "\n"


def draw_row(screen: pyte.Screen, row: int) -> list[str]:
    """Draw one row: a rectangle and a text for each run of cells that look the same."""
    cells = [screen.buffer[row][column] for column in range(screen.columns)]
    text = "".join(cell.data or " " for cell in cells)
    for pattern, words in CHANGING:
        text = pattern.sub(words, text)
    top = BAR + LINE * row
    drawn, start = [], 0
    while start < len(cells):
        look = to_look(cells[start])
        end = start
        while end < len(cells) and to_look(cells[end]) == look:
            end += 1
        drawn += draw_run(text[start:end], look, MARGIN + CELL * start, top)
        start = end
    return drawn


class Look(NamedTuple):
    front: str
    back: str
    weight: str
    slant: str


def to_look(cell: Char) -> Look:
    front, back = to_colour(cell.fg, COLOURS["default"]), to_colour(cell.bg, BACKGROUND)
    if cell.reverse:
        front, back = COLOURS["default"], "#2a3240"
    return Look(front, back, "bold" if cell.bold else "", "italic" if cell.italics else "")


def to_colour(name: str, default: str) -> str:
    if name == "default":
        return default
    return COLOURS.get(name, f"#{name}" if re.fullmatch("[0-9a-f]{6}", name) else default)


def draw_run(text: str, look: Look, x: float, top: float) -> list[str]:
    width = CELL * len(text)
    drawn = []
    if look.back != BACKGROUND:
        drawn.append(
            f'<rect x="{x:.1f}" y="{top:.1f}" width="{width + 0.3:.1f}" height="{LINE + 0.3}" fill="{look.back}"/>'
        )
    if not text.strip():
        return drawn
    blank = len(text) - len(text.lstrip())
    shown = text.strip()
    style = (' font-weight="bold"' if look.weight else "") + (' font-style="italic"' if look.slant else "")
    drawn.append(
        f'<text x="{x + CELL * blank:.1f}" y="{top + 13:.1f}" fill="{look.front}"{style} textLength="{CELL * len(shown):.1f}">{escape(shown)}</text>'
    )
    return drawn


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
