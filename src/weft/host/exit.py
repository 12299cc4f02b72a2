"""End a process that does not end by itself, and report what was left."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from weft.host.processes import list_below

MAX_NAMED = 5
REPORT_SECONDS = 1.0
POOL_FILE = os.path.join("concurrent", "futures", "thread.py")


class ExitTimer:
    """Ends the process if it is still alive after a time. One for each process; it does nothing until it is armed.

    Without `alone` the process is not ours, and is never ended.
    """

    def __init__(self, *, alone: bool = True) -> None:
        self._alone = alone
        self._timer: threading.Timer | None = None
        self._others = set(threading.enumerate())

    def end_within(self, seconds: float, code: int) -> None:
        """End the process with this code if it is still alive in so many seconds. This replaces an earlier deadline."""
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

    def disarm_if_idle(self) -> None:
        """Disarm if no thread of ours keeps the process from ending."""
        ours = set(threading.enumerate()) - self._others
        if not any(_blocks_exit(thread) for thread in ours):
            self.disarm()

    def end_now(self, code: int) -> None:
        """End the process at once.

        A watcher of each child process ends it with us, and the next process that opens the store repairs the
        sessions.
        """
        # In a thread with a timeout: writing may block, and that may be why we are here.
        reporting = threading.Thread(target=_report, args=(", ".join(_list_leftovers()),), daemon=True)
        reporting.start()
        reporting.join(REPORT_SECONDS)
        os._exit(code)


@contextmanager
def handle_signals(
    numbers: Iterable[int],
    on_signal: Callable[[int], None],
    last_resort: ExitTimer,
    *,
    seconds: float,
    code: int | None = None,
) -> Generator[None]:
    """Call `on_signal` on the event loop at the first signal, and end the process after so many seconds at the latest.

    The exit code is `code` or that of the signal. A second signal ends the process at once. The handler is the
    interpreter's, because the loop's handler does not run while the loop is stuck in a blocking write.
    """
    loop = asyncio.get_running_loop()
    received = False

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal received
        if received:
            last_resort.end_now(128 + number)
        received = True
        last_resort.end_within(seconds, 128 + number if code is None else code)
        loop.call_soon_threadsafe(on_signal, number)

    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(left: str) -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        if left:
            sys.stderr.write(f"weft ended and left undone: {left}\n")
            sys.stderr.flush()


def _list_leftovers() -> Iterator[str]:
    below = list_below(os.getpid())
    yield from (f"process {pid} ({name})" for pid, name in list(below.items())[:MAX_NAMED])
    if len(below) > MAX_NAMED:
        yield f"{len(below) - MAX_NAMED} more processes"
    frames = sys._current_frames()  # noqa: SLF001  documented, to see what each thread is doing
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        # An idle worker of a pool waits in the pool's own code.
        if _blocks_exit(thread) and frame is not None and not frame.f_code.co_filename.endswith(POOL_FILE):
            yield f"a thread in {frame.f_code.co_name}, line {frame.f_lineno} of {frame.f_code.co_filename}"


def _blocks_exit(thread: threading.Thread) -> bool:
    """Return True if the interpreter would wait for the thread."""
    return not thread.daemon and thread is not threading.main_thread()
