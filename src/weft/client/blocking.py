"""The blocking client for notebooks, scripts and a REPL. It runs an event loop in a thread."""

import asyncio
import atexit
import inspect
import threading
from collections.abc import AsyncIterator, Coroutine, Generator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Generic, TypeVar

from weft.api import Api
from weft.client.api import connect
from weft.client.conversation import Conversation, Permit, converse
from weft.errors import UnreachableError
from weft.model.event import Event, PublishedEvent
from weft.model.ids import SessionID
from weft.model.input import PromptInput, SessionInput
from weft.model.message import MessageWithParts
from weft.model.session import ALL_SESSIONS, Session, SessionQuery

T = TypeVar("T")

STOP_SECONDS = 5.0
CLOSED_HINT = "use it inside the `with`; for several cells, use a contextlib.ExitStack"


class ThreadTask(Generic[T]):
    """A coroutine that runs in the loop of another thread.

    If the waiting thread is interrupted, the coroutine is cancelled and the thread waits until it has ended.
    """

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self.task: asyncio.Task[T] | None = None
        self._work = work
        self._loop = loop
        self._ended = threading.Event()
        loop.call_soon_threadsafe(self._begin)

    def wait(self) -> T:
        try:
            self._ended.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(self._cancel)
            self._ended.wait()
            raise
        assert self.task is not None, "set before _ended"
        return self.task.result()

    def _begin(self) -> None:
        self.task = self._loop.create_task(self._work)
        self.task.add_done_callback(lambda _: self._ended.set())

    def _cancel(self) -> None:
        assert self.task is not None, "_begin runs first"
        self.task.cancel()


class LoopThread:
    """An event loop in a daemon thread. It is stopped at the latest when the program ends."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.stopped = False
        self._thread = threading.Thread(target=self.loop.run_forever, name="weft", daemon=True)
        self._waiting: set[ThreadTask[Any]] = set()
        self._reading: set[AsyncIterator[Any]] = set()

    def start(self) -> None:
        self._thread.start()
        # The thread dies when the program exits; a caller would then wait forever.
        atexit.register(self.stop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self.stopped:
            work.close()
            raise UnreachableError("the connection is closed", hint=CLOSED_HINT)
        self._waiting.add(going := ThreadTask(work, self.loop))
        try:
            return going.wait()
        finally:
            self._waiting.discard(going)

    def iterate(self, events: AsyncIterator[T]) -> Iterator[T]:
        """Iterate over an async iterator. Close it when the caller stops."""
        self._reading.add(events)
        try:
            while not self.stopped:
                try:
                    yield self.run(_next(events))
                except StopAsyncIteration:
                    return
        finally:
            self._reading.discard(events)
            if not self.stopped:  # otherwise it was closed with the loop
                self.run(_close_iterator(events))

    async def settle(self) -> None:
        """Cancel all calls and close all iterators. Their runs have ended when this returns."""
        await _cancel_tasks(each.task for each in self._waiting if each.task is not None)
        await asyncio.gather(*(_close_iterator(each) for each in self._reading), return_exceptions=True)

    def stop(self) -> None:
        if self.stopped:
            return
        self.stopped = True
        atexit.unregister(self.stop)
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    async def _end(self) -> None:
        """Cancel what is still running, as `asyncio.run` does, and give it some seconds to finish."""
        await asyncio.wait([asyncio.ensure_future(self.settle())], timeout=STOP_SECONDS)
        await _cancel_tasks(asyncio.all_tasks())


async def _cancel_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel these tasks, except the current one, and wait until they have ended."""
    others = set(tasks) - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=STOP_SECONDS)


async def _next(events: AsyncIterator[T]) -> T:
    return await anext(events)


async def _close_iterator(events: AsyncIterator[Any]) -> None:
    leave = getattr(events, "aclose", None)
    if leave is not None:
        await leave()


class BlockingProxy:
    """Wraps an object of weft: its coroutines block, and its async iterators become iterators."""

    def __init__(self, of: Any, loop: LoopThread) -> None:
        self._of = of
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not callable(found):
            # A part of the `Api` (`files`, `terminals` …) is wrapped too; plain values are not.
            is_part = type(found).__module__.startswith(("weft.client", "weft.local"))
            return BlockingProxy(found, self._loop) if is_part else found

        def call(*given: Any, **named: Any) -> Any:
            return self._to_result(self._loop.run(_call(found, given, named)))

        return call

    def __dir__(self) -> Iterable[str]:
        """Return the names for completion in notebooks."""
        return {*super().__dir__(), *(name for name in dir(self._of) if not name.startswith("_"))}

    def _to_result(self, result: Any) -> Any:
        return self._loop.iterate(result) if hasattr(result, "__anext__") else result


async def _call(found: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Call a function inside the loop, because listening must begin there."""
    result = found(*given, **named)
    return await result if inspect.isawaitable(result) else result


class SyncApi(BlockingProxy):
    """A blocking `Api`. Methods that are not defined here are available through `BlockingProxy`."""

    def create_session(self, input: SessionInput | None = None) -> Session:
        made: Session = self._loop.run(self._of.create_session(input or SessionInput()))
        return made

    def get_session(self, id: SessionID) -> Session:
        found: Session = self._loop.run(self._of.get_session(id))
        return found

    def list_sessions(self, query: SessionQuery = ALL_SESSIONS) -> list[Session]:
        found: list[Session] = self._loop.run(self._of.list_sessions(query))
        return found

    def list_messages(self, session: SessionID, *, limit: int | None = None) -> list[MessageWithParts]:
        found: list[MessageWithParts] = self._loop.run(self._of.list_messages(session, limit=limit))
        return found

    def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        answer: MessageWithParts = self._loop.run(self._of.prompt(session, input))
        return answer

    def abort(self, session: SessionID) -> bool:
        aborted: bool = self._loop.run(self._of.abort(session))
        return aborted

    def events(self, *, after: int | None = None) -> Iterator[PublishedEvent]:
        async def begin() -> AsyncIterator[PublishedEvent]:
            events: AsyncIterator[PublishedEvent] = self._of.events(after=after)
            return events

        return self._loop.iterate(self._loop.run(begin()))

    def converse(
        self, session: SessionID | None = None, *, title: str | None = None, permit: Permit | None = None
    ) -> "SyncConversation":
        talk = self._loop.run(converse(self._of, session, title=title, permit=permit))
        return SyncConversation(talk, self._loop)


class SyncConversation:
    """A blocking `Conversation`."""

    def __init__(self, of: Conversation, loop: LoopThread) -> None:
        self._of = of
        self._loop = loop

    @property
    def id(self) -> SessionID:
        return self._of.id

    @property
    def answer(self) -> MessageWithParts | None:
        return self._of.answer

    def refresh(self) -> None:
        self._loop.run(self._of.refresh())

    def messages(self) -> list[MessageWithParts]:
        return self._of.messages()

    def prompt(self, words: str | PromptInput) -> Iterator[Event]:
        return self._loop.iterate(self._of.prompt(words))

    def stream(self, words: str | PromptInput) -> Iterator[str]:
        return self._loop.iterate(self._of.stream(words))

    def ask(self, words: str | PromptInput, *, schema: dict[str, Any] | None = None) -> Any:
        return self._loop.run(self._of.ask(words, schema=schema))


@contextmanager
def blocking(opening: AbstractAsyncContextManager[Api]) -> Generator[SyncApi]:
    """Open an `Api` (`weft.open`, `weft.connect`) for code that is not async."""
    loop = LoopThread()
    loop.start()
    try:
        kept = loop.run(_open_api(opening))
        try:
            yield SyncApi(kept.api, loop)
        finally:
            if not loop.stopped:  # otherwise the program is ending
                loop.run(loop.settle())
                loop.run(kept.leave())
    finally:
        loop.stop()


class _OpenApi:
    """Keeps an `Api` open in its own task, because a context must be left in the task that entered it."""

    def __init__(self, opening: AbstractAsyncContextManager[Api]) -> None:
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self.task = asyncio.ensure_future(self._keep(opening))

    async def _keep(self, opening: AbstractAsyncContextManager[Api]) -> None:
        async with opening as api:
            self.api = api
            self._ready.set()
            await self._stop.wait()

    async def enter(self) -> None:
        opened = asyncio.ensure_future(self._ready.wait())
        await asyncio.wait((opened, self.task), return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        if self.task.done():
            await self.task

    async def leave(self) -> None:
        self._stop.set()
        await self.task


async def _open_api(opening: AbstractAsyncContextManager[Api]) -> _OpenApi:
    kept = _OpenApi(opening)
    await kept.enter()
    return kept


@contextmanager
def connect_sync(
    url: str, *, directory: str | None = None, password: str | None = None, patience: float | None = 60.0
) -> Generator[SyncApi]:
    """Connect like `weft.connect`, for code that is not async: `with weft.connect_sync("http://127.0.0.1:4096") as api:`."""
    with blocking(connect(url, directory=directory, password=password, patience=patience)) as api:
        yield api
