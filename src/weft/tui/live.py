"""Write settled lines to a terminal, with a live region below them that is drawn again."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

from weft.tui.text import Line, cut, measure, to_ansi

# A terminal that knows these shows everything between them at once. Others ignore them.
BEGIN_SYNC: Final = "\x1b[?2026h"
END_SYNC: Final = "\x1b[?2026l"
# Erase to the end of the row, and then the rows below. If told to erase everything from the first row of the screen on, tmux moves
# it to its history instead.
ERASE_BELOW: Final = "\x1b[K\x1b7\x1b[B\x1b[J\x1b8"
DEFAULT_SIZE: Final = os.terminal_size((80, 24))


def get_columns() -> int:
    """Return the width of the terminal, or a common one if it does not say."""
    # While the full screen is shown, `sys.stdout` belongs to Textual.
    return os.get_terminal_size((sys.__stdout__ or sys.stdout).fileno()).columns or DEFAULT_SIZE.columns


class LiveOutput:
    """Prints lines, each once, and below them a live region. The cursor stays at the end of the region.

    `reflows` says that the terminal breaks long lines again when it becomes narrower, as all but xterm do.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        size: Callable[[], os.terminal_size],
        *,
        colour: bool,
        reflows: bool = True,
    ) -> None:
        self._write = write
        self._size = size
        self._colour = colour
        self._reflows = reflows
        self._shown: list[int] = []  # the width of each line of the live region

    @property
    def size(self) -> os.terminal_size:
        """The size of the terminal, or a common one if it does not say."""
        size = self._size()
        return size if size.columns and size.lines else DEFAULT_SIZE

    def update(self, settled: Sequence[Line], live: Sequence[Line] = ()) -> None:
        """Print settled lines, and replace the live region."""
        width = self.size.columns
        if not settled and not live and not self._shown:
            return
        region = [cut(line, width - 1) for line in live]
        rows = [to_ansi(line, colour=self._colour) for line in settled]
        text = "".join(f"{row}\r\n" for row in rows)
        drawn = "\r\n".join(to_ansi(line, colour=self._colour) for line in region)
        self._write(f"{BEGIN_SYNC}{self._erase(width)}{text}{drawn}{END_SYNC}")
        self._shown = [sum(measure(part) for _, part in line) for line in region]

    def clear(self) -> None:
        """Erase the live region."""
        self.update(())

    def _erase(self, width: int) -> str:
        if not self._shown:
            return ""
        rows = sum(max(1, -(-each // width)) if self._reflows else 1 for each in self._shown)
        up = f"\x1b[{rows - 1}A" if rows > 1 else ""
        return f"\r{up}{ERASE_BELOW}"
