"""End a process that is done and does not end by itself, and say what was left."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from weft.host.processes import list_below

NAMED = 5
SAY_SECONDS = 1.0
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
        # In a thread, with little time: it may be that nobody takes what we say, and that is why we are here.
        saying = threading.Thread(target=_say, args=(", ".join(_left()),), daemon=True)
        saying.start()
        saying.join(SAY_SECONDS)
        os._exit(code)


@contextmanager
def heed_signals(
    numbers: Iterable[int],
    asked: Callable[[int], None],
    last_resort: LastResort,
    *,
    seconds: float,
    code: int | None = None,
) -> Generator[None]:
    """Have `asked` called on the event loop when the first signal comes, and the process ended so many seconds later at
    the latest, with this code or that of the signal; a second signal ends it at once.

    The handler is the interpreter's own and not the loop's. The loop's is called when the loop comes round, which it
    never does while it is stuck in a write that nobody takes.
    """
    loop = asyncio.get_running_loop()
    came = False

    def hear(number: int, _: FrameType | None) -> None:
        nonlocal came
        if came:
            last_resort.end_now(128 + number)
        came = True
        last_resort.end_within(seconds, 128 + number if code is None else code)
        loop.call_soon_threadsafe(asked, number)

    before = {number: signal.signal(number, hear) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(left: str) -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        if left:
            sys.stderr.write(f"weft ended and left undone: {left}\n")
            sys.stderr.flush()


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
