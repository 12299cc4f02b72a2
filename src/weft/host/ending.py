"""The last resort: a process that is done and does not end by itself is ended, and it is said what was left."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

from weft.host.kin import list_below

NAMED = 5
POOL = os.path.join("concurrent", "futures", "thread.py")


class LastResort:
    """One for a process. It does nothing unless it has been armed and the time has come; nor does it end a process that
    is not ours `alone`."""

    def __init__(self, *, alone: bool = True) -> None:
        self._alone = alone
        self._timer: threading.Timer | None = None
        self._others = set(threading.enumerate())

    def end_within(self, seconds: float, code: int) -> None:
        """End with this code if the process is still there then. What was said before holds no more."""
        self.disarm()
        if not self._alone:
            return
        self._timer = threading.Timer(seconds, self.end_now, (code,))
        self._timer.daemon = True
        self._timer.start()

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def rest(self) -> None:
        """Our own work is done. If nothing of it keeps the process from ending, nothing has to end it."""
        ours = set(threading.enumerate()) - self._others
        if not any(_is_in_the_way(thread) for thread in ours):
            self.disarm()

    def end_now(self, code: int) -> None:
        """End at once. The processes we started end with us (each has a watcher that sees to it), and sessions are put
        in order by whoever opens the store next."""
        left = ", ".join(_left())
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        with suppress(OSError, ValueError):
            if left:
                sys.stderr.write(f"weft ended and left undone: {left}\n")
                sys.stderr.flush()
        os._exit(code)


def _left() -> Iterator[str]:
    below = list_below(os.getpid())
    yield from (f"process {pid} ({name})" for pid, name in list(below.items())[:NAMED])
    if len(below) > NAMED:
        yield f"{len(below) - NAMED} more processes"
    frames = sys._current_frames()  # noqa: SLF001  the documented way to see what a thread is at
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        # A worker of a pool that has nothing to do waits in the pool's own code.
        if _is_in_the_way(thread) and frame is not None and not frame.f_code.co_filename.endswith(POOL):
            yield f"a thread in {frame.f_code.co_name}, line {frame.f_lineno} of {frame.f_code.co_filename}"


def _is_in_the_way(thread: threading.Thread) -> bool:
    """Whether the interpreter would wait for it."""
    return not thread.daemon and thread is not threading.main_thread()
