"""What a server says to whoever looks after it: lines for people, or JSON for programs. On standard error, both."""

import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, TextIO

from msgspec import Struct

from weft.cli.paint import Paint, escape, plain
from weft.model.wire import encode
from weft.server.metrics import Visit

MOST_LINES: Final = 1000
LAST_SECONDS: Final = 2.0
LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
}


class Lines:
    """Writes lines to a stream from a thread of its own, in order. Nobody ever waits for the reader of the stream: while it
    does not read, so many lines are held and the rest is counted, to be told by a line that `missing` writes; once it has
    gone, lines go nowhere."""

    def __init__(self, stream: TextIO, missing: Callable[[int], str]) -> None:
        self._to = stream.fileno()
        self._encoding, self._errors = stream.encoding, stream.errors or "strict"
        self._held: queue.Queue[str | None] = queue.Queue(MOST_LINES)
        self._missing = missing
        self._missed = 0
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        try:
            self._held.put_nowait(line)
        except queue.Full:
            self._missed += 1

    def close(self) -> None:
        """Write what is held, if that can be done in a moment."""
        try:
            self._held.put(None, timeout=LAST_SECONDS)
        except queue.Full:
            return
        self._thread.join(LAST_SECONDS)

    def _write_all(self) -> None:
        line, told = self._held.get(), 0
        while line is not None:
            self._try(line)
            told = self._tell_missing(told)
            line = self._held.get()
        self._tell_missing(told)

    def _tell_missing(self, told: int) -> int:
        missed = self._missed
        if missed > told:
            self._try(self._missing(missed - told))
        return missed

    def _try(self, line: str) -> None:
        try:
            self._write(f"{line}\n".encode(self._encoding, self._errors))
        except OSError:
            # Nobody is there any more. What others print must not fail, either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._to)

    def _write(self, left: bytes) -> None:
        # Past Python's buffer: its lock is waited for at the end of the process, and a stuck write would hold it.
        while left:
            left = left[os.write(self._to, left) :]


class Log(Struct, frozen=True):
    """`now` is the time in milliseconds; `out` takes the welcome, `lines` all the rest that is as grave as `level`."""

    now: Callable[[], int]
    out: Lines
    lines: Lines
    json: bool = False
    level: int = logging.INFO

    def note(self, line: str) -> None:
        """One line, whatever is in it."""
        if self.level > logging.INFO:
            return
        if self.json:
            self._put({"level": "info", "message": line})
        else:
            self._say(line)

    def warn(self, line: str) -> None:
        if self.level > logging.WARNING:
            return
        if self.json:
            self._put({"level": "warning", "message": line})
        else:
            self._say(f"warning: {line}")

    def serving(self, url: str, directory: str, *, pages: str = "") -> None:
        """That the server is ready, and where."""
        shown = {"pages": pages} if pages else {}
        self._put({"level": "info", "message": "serving", "url": url, "directory": directory, **shown})

    def visit(self, visit: Visit) -> None:
        """A request; never what stood behind the question mark, and nothing of its headers or body."""
        if not self.json or self.level > logging.INFO:
            self.note(visit.line())
            return
        self._put(
            {
                "level": "info",
                "message": "request",
                "method": visit.method,
                "path": visit.path,
                "route": visit.route,
                "status": visit.status,
                "ms": round(1000 * visit.seconds, 1),
            }
        )

    def _say(self, line: str) -> None:
        self.lines.put(Paint(sys.stderr).dim(plain(line).replace("\n", " ")))

    def _put(self, entry: dict[str, Any]) -> None:
        self.lines.put(escape(encode({"time": self.now(), **entry}).decode()))


class Records(logging.Handler):
    """Takes what libraries log, so that it stands among our own lines and is written the same way."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.warn(f"{record.name}: {self.format(record)}")


@contextmanager
def open_log(now: Callable[[], int], *, json: bool, level: str) -> Generator[Log]:
    """A log of what is as grave as the level, which also hears what libraries have to say. What is held of it is written at the end."""

    def missing(count: int) -> str:
        words = f"{count} lines were not read in time and are missing here"
        return encode({"time": now(), "level": "warning", "message": words}).decode() if json else words

    out, lines = Lines(sys.stdout, missing), Lines(sys.stderr, missing)
    log = Log(now, out, lines, json=json, level=LEVELS[level])
    records = Records(log)
    logging.getLogger().addHandler(records)
    try:
        yield log
    finally:
        logging.getLogger().removeHandler(records)
        out.close()
        lines.close()
