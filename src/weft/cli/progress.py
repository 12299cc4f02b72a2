"""How far long work has come, on a terminal and nowhere else."""

import sys
from types import TracebackType
from typing import Self

EVERY = 64


class Progress:
    """Call it with how much is done, and of how much if that is known. The line is wiped in the end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._on = sys.stderr.isatty()
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __call__(self, done: int, of: int | None = None) -> None:
        if self._on and (done % EVERY == 0 or (self._shown and done == of)):
            self._shown = True
            share = f"{done:,}" if of is None else f"{done:,} of {of:,}"
            print(f"\r\x1b[K{self._what} … {share}", end="", file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
