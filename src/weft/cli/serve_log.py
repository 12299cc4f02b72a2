"""The log of `weft serve`, on standard error: lines for people, or JSON for programs."""

import logging
import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, TextIO

from msgspec import Struct

from weft.cli.output import Paint, escape_json, sanitize
from weft.model.wire import encode
from weft.server.metrics import RequestRecord

MAX_LINES: Final = 1000
CLOSE_SECONDS: Final = 2.0
SESSION_ID: Final = re.compile(r"\bses_\w+")
LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
}


class LineWriter:
    """Writes lines to a stream in order, from its own thread, so that nobody waits for the reader of the stream.

    If the reader is slow, `MAX_LINES` lines are queued. The rest is dropped and counted, and `format_missing` makes a line
    that says how many. Once the reader is gone, lines are discarded.
    """

    def __init__(self, stream: TextIO, format_missing: Callable[[int], str]) -> None:
        self._fd = stream.fileno()
        self._encoding, self._errors = stream.encoding, stream.errors or "strict"
        self._queue: queue.Queue[str | None] = queue.Queue(MAX_LINES)
        self._format_missing = format_missing
        self._missing = 0
        self._thread = threading.Thread(target=self._write_all, name="log", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        try:
            self._queue.put_nowait(line)
        except queue.Full:
            self._missing += 1

    def close(self) -> None:
        """Write the lines that are queued, but do not wait longer than `CLOSE_SECONDS`."""
        try:
            self._queue.put(None, timeout=CLOSE_SECONDS)
        except queue.Full:
            return
        self._thread.join(CLOSE_SECONDS)

    def _write_all(self) -> None:
        line, reported = self._queue.get(), 0
        while line is not None:
            self._write_line(line)
            reported = self._report_missing(reported)
            line = self._queue.get()
        self._report_missing(reported)

    def _report_missing(self, reported: int) -> int:
        missing = self._missing
        if missing > reported:
            self._write_line(self._format_missing(missing - reported))
        return missing

    def _write_line(self, line: str) -> None:
        try:
            self._write(f"{line}\n".encode(self._encoding, self._errors))
        except OSError:
            # The reader is gone. Nothing else that is printed to this stream may fail, either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._fd)

    def _write(self, data: bytes) -> None:
        # Not through Python's buffer: a stuck write would hold its lock, and the process waits for that lock at exit.
        while data:
            data = data[os.write(self._fd, data) :]


class ServerLog(Struct):
    """What a server prints: the welcome to `out`, and everything of at least this `level` to `lines`.

    `now` returns the time in milliseconds. `node` is the name of the server in a cluster.
    """

    now: Callable[[], int]
    out: LineWriter
    lines: LineWriter
    json: bool = False
    level: int = logging.INFO
    node: str = ""

    def set_node(self, name: str) -> None:
        """Name the node in every line that is JSON."""
        self.node = name

    def note(self, line: str) -> None:
        """Write one line; line breaks in it become spaces."""
        if self.level > logging.INFO:
            return
        if self.json:
            self._write_entry({"level": "info", "message": line})
        else:
            self._write_text(line)

    def warn(self, line: str) -> None:
        if self.level > logging.WARNING:
            return
        if self.json:
            self._write_entry({"level": "warning", "message": line})
        else:
            self._write_text(f"warning: {line}")

    def log_start(self, url: str, directory: str, *, share_url: str = "") -> None:
        """Write that the server is ready, and at which address."""
        optional = {"pages": share_url} if share_url else {}
        self._write_entry(
            {"level": "info", "message": "serving", "url": url, "directory": directory, **optional}
        )

    def log_request(self, record: RequestRecord) -> None:
        """Write a request, without its query, headers and body."""
        if not self.json or self.level > logging.INFO:
            self.note(record.line())
            return
        self._write_entry(
            {
                "level": "info",
                "message": "request",
                "method": record.method,
                "path": record.path,
                "route": record.route,
                "status": record.status,
                "ms": round(1000 * record.seconds, 1),
            }
        )

    def _write_text(self, line: str) -> None:
        self.lines.put(Paint(sys.stderr).dim(sanitize(line).replace("\n", " ")))

    def _write_entry(self, entry: dict[str, Any]) -> None:
        node = {"node": self.node} if self.node else {}
        found = SESSION_ID.search(str(entry.get("path") or entry["message"]))
        session = {"session": found[0]} if found else {}
        self.lines.put(escape_json(encode({"time": self.now(), **entry, **node, **session}).decode()))


class LibraryLog(logging.Handler):
    """Writes what libraries log among our own lines and in the same format."""

    def __init__(self, log: ServerLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.warn(f"{record.name}: {self.format(record)}")


@contextmanager
def open_log(now: Callable[[], int], *, json: bool, level: str) -> Generator[ServerLog]:
    """Open the log, which also takes the warnings of libraries. Lines that are queued are written at the end."""

    def format_missing(count: int) -> str:
        message = f"{count} lines were not read in time and are missing here"
        return encode({"time": now(), "level": "warning", "message": message}).decode() if json else message

    out, lines = LineWriter(sys.stdout, format_missing), LineWriter(sys.stderr, format_missing)
    log = ServerLog(now, out, lines, json=json, level=LEVELS[level])
    records = LibraryLog(log)
    logging.getLogger().addHandler(records)
    try:
        yield log
    finally:
        logging.getLogger().removeHandler(records)
        out.close()
        lines.close()
