"""The live region on a terminal, byte for byte, as an emulator shows it."""

import os

import pyte

from weft.tui.live import ERASE_BELOW, LiveOutput
from weft.tui.text import Line


class EmulatedTerminal:
    """A terminal in memory, with what has scrolled away."""

    def __init__(self, columns: int, lines: int) -> None:
        self.screen = pyte.HistoryScreen(columns, lines, history=1000)
        self._stream = pyte.Stream(self.screen)
        self.written: list[str] = []

    def write(self, text: str) -> None:
        self.written.append(text)
        self._stream.feed(text)

    def get_size(self) -> os.terminal_size:
        return os.terminal_size((self.screen.columns, self.screen.lines))

    def get_lines(self) -> list[str]:
        gone = ["".join(line[x].data for x in range(self.screen.columns)) for line in self.screen.history.top]
        shown = [line.rstrip() for line in (*gone, *self.screen.display)]
        while shown and not shown[-1]:
            shown.pop()
        return shown


def lines(*texts: str) -> list[Line]:
    return [[("", text)] for text in texts]


def test_settled_lines_stay_and_the_region_is_replaced() -> None:
    terminal = EmulatedTerminal(20, 6)
    output = LiveOutput(terminal.write, terminal.get_size, colour=False)
    output.update(lines("a"), lines("tail 1", "tail 2"))
    assert terminal.get_lines() == ["a", "tail 1", "tail 2"]
    output.update(lines("b"), lines("tail 3"))
    assert terminal.get_lines() == ["a", "b", "tail 3"]
    output.update(lines("c", "d", "e", "f", "g"), lines("tail 4", "tail 5"))
    assert terminal.get_lines() == ["a", "b", "c", "d", "e", "f", "g", "tail 4", "tail 5"]
    output.clear()
    assert terminal.get_lines() == ["a", "b", "c", "d", "e", "f", "g"]


def test_a_redraw_is_synchronised() -> None:
    terminal = EmulatedTerminal(20, 6)
    output = LiveOutput(terminal.write, terminal.get_size, colour=True)
    output.update([[("bold", "a")]], lines("x", "y"))
    output.update([], lines("z"))
    output.update([], [])
    output.update([], [])
    assert terminal.written == [
        "\x1b[?2026h\x1b[1ma\x1b[0m\r\nx\r\ny\x1b[?2026l",
        f"\x1b[?2026h\r\x1b[1A{ERASE_BELOW}z\x1b[?2026l",
        f"\x1b[?2026h\r{ERASE_BELOW}\x1b[?2026l",
    ]


def test_a_long_line_of_the_region_is_cut_and_settled_lines_are_not() -> None:
    terminal = EmulatedTerminal(10, 6)
    output = LiveOutput(terminal.write, terminal.get_size, colour=False)
    output.update(lines("0123456789abcdef"), lines("0123456789abcdef"))
    assert terminal.get_lines() == ["0123456789", "abcdef", "01234567…"]
    output.clear()
    assert terminal.get_lines() == ["0123456789", "abcdef"]


def test_the_whole_region_is_erased_after_the_terminal_became_narrower() -> None:
    size = os.terminal_size((40, 10))
    written: list[str] = []
    output = LiveOutput(written.append, lambda: size, colour=False)
    output.update([], lines("x" * 30, "y" * 5))
    size = os.terminal_size((10, 10))
    output.clear()
    assert written[-1] == f"\x1b[?2026h\r\x1b[3A{ERASE_BELOW}\x1b[?2026l"
