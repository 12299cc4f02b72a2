"""What a server says to whoever looks after it: lines for people, or JSON for programs. On standard error, both."""

import sys
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from weft.cli.paint import Paint, escape, plain
from weft.model.wire import encode
from weft.server.measure import Visit


class Log(Struct, frozen=True):
    """`now` is the time in milliseconds."""

    now: Callable[[], int]
    json: bool = False

    def note(self, line: str) -> None:
        """One line, whatever is in it."""
        if self.json:
            self._put({"level": "info", "message": line})
        else:
            _write(Paint(sys.stderr).dim(plain(line).replace("\n", " ")))

    def warn(self, line: str) -> None:
        if self.json:
            self._put({"level": "warning", "message": line})
        else:
            self.note(f"warning: {line}")

    def serving(self, url: str, directory: str, *, pages: str = "") -> None:
        """That the server is ready, and where."""
        shown = {"pages": pages} if pages else {}
        self._put({"level": "info", "message": "serving", "url": url, "directory": directory, **shown})

    def visit(self, visit: Visit) -> None:
        """A request; never what stood behind the question mark, and nothing of its headers or body."""
        if not self.json:
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

    def _put(self, entry: dict[str, Any]) -> None:
        _write(escape(encode({"time": self.now(), **entry}).decode()))


def _write(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
