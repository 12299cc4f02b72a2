"""Print to the terminal: colours, tables, JSON, progress, questions, warnings, times, sizes and costs.

Every command imports this module, so it imports as little as possible.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from time import localtime, strftime
from types import TracebackType
from typing import Any, Final, Self, TextIO

from weft.errors import InvalidInputError, WeftError
from weft.model.display import bound_time
from weft.model.display import format_cost as format_cost  # noqa: PLC0414  commands print through this module
from weft.model.display import format_tokens as format_tokens  # noqa: PLC0414  commands print through this module
from weft.model.display import sanitize as sanitize  # noqa: PLC0414  commands print through this module
from weft.model.wire import encode, encode_pretty

PROGRESS_INTERVAL: Final = 64
LINE_WIDTH: Final = 80
DAY_MS: Final = 86_400_000
_TIME_UNITS = (("d", DAY_MS), ("h", 3_600_000), ("m", 60_000), ("s", 1000))
_BYTES_PER_UNIT, _MIN_WITHOUT_DECIMALS = 1024, 10
# DEL, C1, line and paragraph separators, and Unicode's format characters: directions, joiners, tags. Compiled when first used,
# because it takes a hundredth of the time of a short command.
_CONTROLS: Final = (
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e007f\ud800-\udfff]"
)


class Paint:
    """Colours for text, if the stream is a terminal that shows them."""

    def __init__(self, stream: TextIO) -> None:
        self.on = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def bold(self, text: str) -> str:
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        return self._wrap("2", text)

    def red(self, text: str) -> str:
        return self._wrap("31", text)

    def green(self, text: str) -> str:
        return self._wrap("32", text)

    def yellow(self, text: str) -> str:
        return self._wrap("33", text)

    def blue(self, text: str) -> str:
        return self._wrap("34", text)

    def _wrap(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and text else text

    def diff(self, text: str) -> str:
        """Colour a unified diff: added lines green, removed lines red, the rest dim."""
        return "\n".join(self._diff_line(line) for line in text.splitlines())

    def _diff_line(self, line: str) -> str:
        if line.startswith("+"):
            return self.green(line)
        return self.red(line) if line.startswith("-") else self.dim(line)


def shorten_line(text: str, width: int = LINE_WIDTH) -> str:
    """Join the lines of a text into one, and cut it off at `width`."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


# --- JSON ---


def write_json(value: Any) -> None:
    """Print a value as indented JSON."""
    sys.stdout.write(escape_json(encode_pretty(value).decode()) + "\n")


def write_json_line(value: Any) -> None:
    """Print a value as JSON on one line, and flush it."""
    sys.stdout.write(escape_json(encode(value).decode()) + "\n")
    sys.stdout.flush()


def escape_json(json: str) -> str:
    """Escape every character that would control the terminal; the JSON means the same.

    JSON itself escapes only the first 32. The controls from 127 on also control a terminal, and the ones for the
    direction of text make it show a different text.
    """
    return re.sub(_CONTROLS, _escape_match, json)


def _escape_match(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))


# --- tables, progress, questions, warnings ---


def to_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], paint: Paint, *, right: str = ""
) -> Iterator[str]:
    """Yield the lines of a table. `right` names the columns that are aligned to the right."""
    clean_rows = [[sanitize(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *clean_rows, strict=True)]

    def align(cells: Sequence[str]) -> str:
        parts = [
            cell.rjust(width) if name in right.split() else cell.ljust(width)
            for cell, width, name in zip(cells, widths, header, strict=True)
        ]
        return "  ".join(parts).rstrip()

    yield paint.bold(align(header))
    for row in clean_rows:
        yield align(row)


class ProgressLine:
    """A line on the terminal that shows the progress of long work, and is erased at the end.

    Call it with the number of items that are done, and with the total if that is known.
    """

    def __init__(self, what: str, *, every: int = PROGRESS_INTERVAL) -> None:
        """The line changes after `every` so many items: 1 if each takes long."""
        self._what = what
        self._every = every
        self._on = sys.stderr.isatty()
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __call__(self, done: int, total: int | None = None) -> None:
        if self._on and (done % self._every == 0 or (self._shown and done == total)):
            self._shown = True
            progress = f"{done:,}" if total is None else f"{done:,} of {total:,}"
            print(f"\r\x1b[K{self._what} … {progress}", end="", file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def confirm(question: str, *, yes: bool) -> bool:
    """Ask before something is destroyed, and return True for a yes.

    Raise `InvalidInputError` if there is no terminal to ask at and `--yes` was not passed.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise InvalidInputError("--yes", "there is nobody to ask", hint="pass --yes to confirm")
    return ask(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def ask(question: str) -> str:
    """Print a question, and return the line that is typed, empty at the end of the input. Ctrl-C raises `KeyboardInterrupt` at once.

    In an event loop asyncio would only note the first Ctrl-C, and the question would go on waiting.
    """
    import signal  # noqa: PLC0415  most commands ask nothing

    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(question, end="", file=sys.stderr, flush=True)
        return sys.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, handler)


def is_interactive() -> bool:
    """Return True if a person at a terminal can be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def print_note(text: str) -> None:
    """Print a remark to stderr, so that stdout, which scripts read, stays empty if there is nothing to list."""
    print(Paint(sys.stderr).dim(text), file=sys.stderr)


def warn(warning: WeftError) -> None:
    hint = f" ({warning.hint})" if warning.hint else ""
    print(f"{Paint(sys.stderr).yellow('warning:')} {warning}{hint}", file=sys.stderr)


# --- times and sizes ---


def format_time(time: int, *, now: int) -> str:
    """Format a time in the local time zone: the hour if it is today, else the hour and the date."""
    then = localtime(bound_time(time) / 1000)
    today = abs(now - time) < DAY_MS and then[:3] == localtime(now / 1000)[:3]
    return strftime("%H:%M" if today else "%H:%M · %Y-%m-%d", then)


def format_duration(ms: int) -> str:
    """Format a duration in the largest unit that fits, rounded down."""
    return next((f"{ms // size}{unit}" for unit, size in _TIME_UNITS if ms >= size), "0s")


def format_time_left(ms: int) -> str:
    """Format the time until something happens, rounded to the nearest unit."""
    size = next((size for _, size in _TIME_UNITS if ms >= size), 1)
    return f"in {format_duration(ms + size // 2)}"


def format_age(ms: int) -> str:
    return f"{format_duration(ms)} ago"


def format_size(count: int) -> str:
    """Format a number of bytes in the largest unit that fits."""
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < _BYTES_PER_UNIT:
            break
        amount, unit = amount / _BYTES_PER_UNIT, larger
    return (
        f"{count} B"
        if unit == "B"
        else f"{amount:.1f} {unit}"
        if amount < _MIN_WITHOUT_DECIMALS
        else f"{amount:.0f} {unit}"
    )
