"""A plugin worker: a thread with an event loop, so that no plugin can block weft."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from threading import Thread
from typing import Any, Final, TypeVar

from msgspec import Struct

from weft.errors import UnsupportedError, WeftError

T = TypeVar("T")

# How long a room that did not answer may take to show that it can again.
PATIENCE: Final = 0.5
# How long a room may take to be left tidily.
GRACE: Final = 1.0


class Gave(Struct, frozen=True):
    value: Any


class Failed(Struct, frozen=True):
    """What was raised, in words, and at which line of which file of all those on the way."""

    error: BaseException
    reason: str
    lines: dict[str, int] = {}


Outcome = Gave | Failed
Stray = Callable[[Failed], None]


STUCK: Final = Failed(TimeoutError(), "is still busy with what it was asked before")
LEFT: Final = Failed(asyncio.CancelledError(), "was asked after it was closed")


def _ignore(_: Failed) -> None:
    pass


class Room:
    """Open one with `open_room`. `stray` hears, in the room's own thread, what went wrong when nobody was waiting.

    What blocks holds up all else in the room, so it is done in `turn`, outside of which no time is counted.
    """

    def __init__(self, name: str, stray: Stray = _ignore) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._hear_stray)
        self.turn = asyncio.Lock()
        self._stray = stray
        self._suspect = False
        self._left = False  # as seen from outside
        self._closing = False  # as seen from within
        self._tasks: set[asyncio.Task[Outcome]] = set()
        self._over: Future[None] = Future()
        self._thread = Thread(target=self._live, name=f"plugin {name}", daemon=True)
        self._thread.start()

    async def do(self, work: Callable[[], Any]) -> Outcome:
        """Have this done in the room, and wait for what it gives. Whoever stops waiting has it cancelled."""
        if self._left:
            return LEFT
        if self._suspect and not await self._answers():
            return STUCK
        promised: Future[Outcome] = Future()
        self._loop.call_soon_threadsafe(self._begin, work, promised)
        try:
            return await asyncio.wrap_future(promised)
        except asyncio.CancelledError:
            self._suspect = True
            raise

    async def _answers(self) -> bool:
        ping: Future[None] = Future()
        self._loop.call_soon_threadsafe(_keep, ping, None)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await asyncio.wrap_future(ping)
            self._suspect = False
        return not self._suspect

    async def close(self) -> None:
        self._left = True
        self._loop.call_soon_threadsafe(self._stop)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE if self._suspect else GRACE):
                await asyncio.wrap_future(self._over)

    # --- in the room's own thread ---

    def _live(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._closing:
            try:
                self._loop.run_forever()
            except BaseException as error:  # noqa: BLE001  `sys.exit` in a task of the plugin's ends neither us nor it
                self._stray(to_failed(error))
        try:
            self._loop.run_until_complete(self._wind_up())
        except BaseException as error:  # noqa: BLE001  the same, at the end
            self._stray(to_failed(error))
        finally:
            self._loop.close()
            _keep(self._over, None)

    def _stop(self) -> None:
        self._closing = True
        self._loop.stop()

    async def _wind_up(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def _begin(self, work: Callable[[], Any], promised: Future[Outcome]) -> None:
        if promised.cancelled():
            return
        task = self._loop.create_task(_attempt(work))
        self._tasks.add(task)  # the loop holds on to none

        def given_up(waited: Future[Outcome]) -> None:
            if waited.cancelled() and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(task.cancel)

        def done(task: asyncio.Task[Outcome]) -> None:
            self._tasks.discard(task)
            ended = to_failed(asyncio.CancelledError()) if task.cancelled() else task.result()
            _keep(promised, ended)

        promised.add_done_callback(given_up)
        task.add_done_callback(done)

    def _hear_stray(self, _: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
        error = told.get("exception")
        if isinstance(error, BaseException):
            self._stray(to_failed(error))


@asynccontextmanager
async def open_room(name: str, stray: Stray = _ignore) -> AsyncIterator[Room]:
    room = Room(name, stray)
    try:
        yield room
    finally:
        await room.close()


async def do_apart(name: str, work: Callable[[], Any]) -> Outcome:
    """Have something that blocks done in a thread made for it alone. Whoever stops waiting leaves it behind."""
    promised: Future[Outcome] = Future()
    Thread(
        target=lambda: _keep(promised, _attempt_now(work)), name=f"plugin call {name}", daemon=True
    ).start()
    return await asyncio.wrap_future(promised)


async def _attempt(work: Callable[[], Any]) -> Outcome:
    try:
        given = work()
        if inspect.isawaitable(given):
            given = await given
    except BaseException as error:  # noqa: BLE001  a plugin is a stranger's code: its fault is an outcome
        return to_failed(error)
    return Gave(given)


def _attempt_now(work: Callable[[], Any]) -> Outcome:
    try:
        return Gave(work())
    except BaseException as error:  # noqa: BLE001  as above
        return to_failed(error)


def _keep(promised: Future[T], value: T) -> None:
    """Keep a promise, unless nobody waits for it any more."""
    if promised.set_running_or_notify_cancel():
        promised.set_result(value)


def to_failed(error: BaseException) -> Failed:
    lines: dict[str, int] = {}
    trace = error.__traceback__
    while trace is not None:
        lines[trace.tb_frame.f_code.co_filename] = trace.tb_lineno
        trace = trace.tb_next
    return Failed(error, _said(error), lines)


def _said(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        words = " ".join(str(error).split())[:500]
    except BaseException:  # noqa: BLE001  an error that cannot even say what it is
        words = ""
    if isinstance(error, WeftError):
        hint = f" ({error.hint})" if error.hint else ""
        return f"{words}{hint}"
    return f"{kind}: {words}" if words else kind


class Outside:
    """weft's own loop, as it is seen from a room: what is called here is done there, in the context it was made in."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        self._loop = loop
        self._context = context

    async def do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if self._loop.is_closed():
            raise UnsupportedError("talking to weft after it was closed")
        doing = self._context.copy().run(asyncio.run_coroutine_threadsafe, work(), self._loop)
        return await asyncio.wrap_future(doing)
