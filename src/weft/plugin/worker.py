"""Plugin workers: each plugin runs in a thread with its own event loop, so that it cannot block weft."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from threading import Thread
from typing import Any, Final, TypeVar

from msgspec import Struct

from weft.errors import UnsupportedError, WeftError

T = TypeVar("T")

# How long a worker that may be stuck has to respond.
ANSWER_SECONDS: Final = 0.5
# How long a worker may take to close.
CLOSE_SECONDS: Final = 1.0


class Returned(Struct, frozen=True):
    """A call ended with this value."""

    value: Any


class Failed(Struct, frozen=True):
    """A call raised an error: the error, its text, and the line in each file of its traceback."""

    error: BaseException
    reason: str
    lines: dict[str, int] = {}


CallResult = Returned | Failed
OnStrayError = Callable[[Failed], None]


STUCK: Final = Failed(TimeoutError(), "is still busy with an earlier call")
CLOSED: Final = Failed(asyncio.CancelledError(), "was called after it was closed")


def _ignore(_: Failed) -> None:
    pass


class PluginWorker:
    """A thread that runs the functions of one plugin, until `close` ends it.

    `stray` is called in that thread with errors that nobody waits for. Blocking functions hold up the others, so they
    run under `turn`; waiting for it does not count as their time.
    """

    def __init__(self, name: str, stray: OnStrayError = _ignore) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._handle_stray)
        self.turn = asyncio.Lock()
        self._stray = stray
        self._may_be_stuck = False
        self._closed = False  # seen from weft's thread
        self._closing = False  # seen from the worker's thread
        self._tasks: set[asyncio.Task[CallResult]] = set()
        self._ended: Future[None] = Future()
        self._thread = Thread(target=self._run, name=f"plugin {name}", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[], Any]) -> CallResult:
        """Run something in the worker and return its result. If the caller stops waiting, it is cancelled."""
        if not self._closed and self._may_be_stuck and not await self._is_responsive():
            return STUCK
        if self._closed:  # perhaps while it was asked whether it responds
            return CLOSED
        future: Future[CallResult] = Future()
        self._loop.call_soon_threadsafe(self._start_task, work, future)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._may_be_stuck = True
            raise

    async def _is_responsive(self) -> bool:
        ping: Future[None] = Future()
        self._loop.call_soon_threadsafe(_resolve, ping, None)
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await asyncio.wrap_future(ping)
            self._may_be_stuck = False
        return not self._may_be_stuck

    async def close(self) -> None:
        """Cancel all tasks of the worker, and wait a moment until its thread has ended."""
        if not self._closed:
            self._closed = True
            self._loop.call_soon_threadsafe(self._stop)
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS if self._may_be_stuck else CLOSE_SECONDS):
                await asyncio.wrap_future(self._ended)

    # --- in the worker's thread ---

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closing:
            try:
                self._loop.run_forever()
            except BaseException as error:  # noqa: BLE001  `sys.exit` in a task of the plugin must end neither weft nor the worker
                self._stray(to_failed(error))
        try:
            self._loop.run_until_complete(self._cancel_tasks())
        except BaseException as error:  # noqa: BLE001  as above
            self._stray(to_failed(error))
        finally:
            self._loop.close()
            _resolve(self._ended, None)

    def _stop(self) -> None:
        self._closing = True
        self._loop.stop()

    async def _cancel_tasks(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def _start_task(self, work: Callable[[], Any], future: Future[CallResult]) -> None:
        if future.cancelled():
            return
        task = self._loop.create_task(_call(work))
        self._tasks.add(task)  # the loop keeps only weak references

        def cancel_task(waited: Future[CallResult]) -> None:
            if waited.cancelled() and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(task.cancel)

        def finish(task: asyncio.Task[CallResult]) -> None:
            self._tasks.discard(task)
            ended = to_failed(asyncio.CancelledError()) if task.cancelled() else task.result()
            _resolve(future, ended)

        future.add_done_callback(cancel_task)
        task.add_done_callback(finish)

    def _handle_stray(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException):
            self._stray(to_failed(error))


async def run_in_thread(name: str, work: Callable[[], Any]) -> CallResult:
    """Run a blocking function in a thread of its own. If the caller stops waiting, the thread is abandoned."""
    future: Future[CallResult] = Future()
    Thread(
        target=lambda: _resolve(future, _call_blocking(work)), name=f"plugin call {name}", daemon=True
    ).start()
    return await asyncio.wrap_future(future)


async def _call(work: Callable[[], Any]) -> CallResult:
    try:
        result = work()
        if inspect.isawaitable(result):
            result = await result
    except BaseException as error:  # noqa: BLE001  plugins run foreign code: any error becomes a result
        return to_failed(error)
    return Returned(result)


def _call_blocking(work: Callable[[], Any]) -> CallResult:
    try:
        return Returned(work())
    except BaseException as error:  # noqa: BLE001  as above
        return to_failed(error)


def _resolve(future: Future[T], value: T) -> None:
    """Set the result of a future, unless nobody waits for it any more."""
    if future.set_running_or_notify_cancel():
        future.set_result(value)


def to_failed(error: BaseException) -> Failed:
    """Return an error as the result of a call."""
    lines: dict[str, int] = {}
    trace = error.__traceback__
    while trace is not None:
        lines[trace.tb_frame.f_code.co_filename] = trace.tb_lineno
        trace = trace.tb_next
    return Failed(error, _describe(error), lines)


def _describe(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        text = " ".join(str(error).split())[:500]
    except BaseException:  # noqa: BLE001  the error cannot even be formatted
        text = ""
    if isinstance(error, WeftError):
        hint = f" ({error.hint})" if error.hint else ""
        return f"{text}{hint}"
    return f"{kind}: {text}" if text else kind


class MainLoop:
    """weft's own event loop, for calls from a worker. They run there, in the context in which this was created."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self._loop = loop
        self._context = context

    async def do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in weft's loop and return its result. Raise `UnsupportedError` if weft was closed."""
        if self._loop.is_closed():
            raise UnsupportedError("talking to weft after it was closed")
        future = self._context.copy().run(asyncio.run_coroutine_threadsafe, work(), self._loop)
        return await asyncio.wrap_future(future)
