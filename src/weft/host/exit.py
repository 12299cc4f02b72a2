"""End a process that does not end by itself, and report what was left."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from weft.host.process_family import list_descendants

MAX_LISTED_PROCESSES = 5
REPORT_SECONDS = 1.0
POOL_FILE = os.path.join("concurrent", "futures", "thread.py")


class ExitTimer:
    """Ends the process if it is still alive after a time. `end_within` arms the timer. A process needs only one.

    Without `own_process`, weft runs in a process of somebody else, which is never ended.
    """

    def __init__(self, *, own_process: bool = True) -> None:
        self._own_process = own_process
        self._timer: threading.Timer | None = None
        self._existing_threads = set(threading.enumerate())

    def end_within(self, seconds: float, code: int) -> None:
        """End the process with this code if it is still alive after this time. This replaces an earlier deadline."""
        self.disarm()
        if not self._own_process:
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
        new_threads = set(threading.enumerate()) - self._existing_threads
        if not any(_blocks_exit(thread) for thread in new_threads):
            self.disarm()

    def end_now(self, code: int) -> None:
        """End the process at once.

        The watcher of each child process, a shell beside it (`host/processes.py`), ends the child. The next process that opens the
        store repairs the sessions.
        """
        # In a thread with a timeout: writing may block, and that may be why we are here.
        reporter = threading.Thread(target=_report, args=(", ".join(_list_leftovers()),), daemon=True)
        reporter.start()
        reporter.join(REPORT_SECONDS)
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
    """Call `on_signal` on the event loop at the first signal, and end the process after this time at the latest.

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

    previous_handlers = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


def _report(leftovers: str) -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError, ValueError):
        if leftovers:
            sys.stderr.write(f"weft exited while these were still running: {leftovers}\n")
            sys.stderr.flush()


def _list_leftovers() -> Iterator[str]:
    descendants = list_descendants(os.getpid())
    yield from (f"process {pid} ({name})" for pid, name in list(descendants.items())[:MAX_LISTED_PROCESSES])
    if len(descendants) > MAX_LISTED_PROCESSES:
        yield f"{len(descendants) - MAX_LISTED_PROCESSES} more processes"
    frames = sys._current_frames()  # noqa: SLF001  documented, to see what each thread is doing
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        # An idle worker of a pool waits in the pool's own code.
        if _blocks_exit(thread) and frame is not None and not frame.f_code.co_filename.endswith(POOL_FILE):
            yield f"a thread in {frame.f_code.co_name}, line {frame.f_lineno} of {frame.f_code.co_filename}"


def _blocks_exit(thread: threading.Thread) -> bool:
    """Return True if the interpreter would wait for the thread."""
    return not thread.daemon and thread is not threading.main_thread()
