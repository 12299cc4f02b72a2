"""The blocking client for notebooks, scripts and a REPL: an event loop in a thread."""

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
from weft.model.event import Event, Told
from weft.model.ids import SessionID
from weft.model.input import PromptInput, SessionInput
from weft.model.message import MessageWithParts
from weft.model.session import EVERY, Session, SessionQuery

T = TypeVar("T")

STOPPING = 5.0
LEFT = "use it inside the `with`; over several cells, enter it by a contextlib.ExitStack"


class Awaited(Generic[T]):
    """Work in the loop of another thread. Whoever is interrupted while waiting for it cancels it, and waits until it has
    ended: what it began is settled by then."""

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
        assert self.task is not None, "it has ended"
        return self.task.result()

    def _begin(self) -> None:
        self.task = self._loop.create_task(self._work)
        self.task.add_done_callback(lambda _: self._ended.set())

    def _cancel(self) -> None:
        assert self.task is not None, "it began before"
        self.task.cancel()


class Beside:
    """A loop at work in a thread beside, until it is stopped; at the latest when the program ends."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.over = False
        self._thread = threading.Thread(target=self.loop.run_forever, name="weft", daemon=True)
        self._waiting: set[Awaited[Any]] = set()
        self._reading: set[AsyncIterator[Any]] = set()

    def start(self) -> None:
        self._thread.start()
        # After that the thread works no more, and whoever turns to it would wait for ever.
        atexit.register(self.stop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self.over:
            work.close()
            raise UnreachableError("what was opened here has been left", hint=LEFT)
        self._waiting.add(going := Awaited(work, self.loop))
        try:
            return going.wait()
        finally:
            self._waiting.discard(going)

    def each(self, events: AsyncIterator[T]) -> Iterator[T]:
        """One after the other, as they are asked for; whoever stops asking is heard."""
        self._reading.add(events)
        try:
            while not self.over:
                try:
                    yield self.run(_next(events))
                except StopAsyncIteration:
                    return
        finally:
            self._reading.discard(events)
            if not self.over:  # else it ended with the loop
                self.run(_leave(events))

    async def settle(self) -> None:
        """Nothing is waited for or read any more, and runs that were begun by it have ended."""
        await _cancelled(each.task for each in self._waiting if each.task is not None)
        await asyncio.gather(*(_leave(each) for each in self._reading), return_exceptions=True)

    def stop(self) -> None:
        if self.over:
            return
        self.over = True
        atexit.unregister(self.stop)
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    async def _end(self) -> None:
        """As a loop of `asyncio.run` ends: what is still under way is cancelled. It has a while to settle."""
        await asyncio.wait([asyncio.ensure_future(self.settle())], timeout=STOPPING)
        await _cancelled(asyncio.all_tasks())


async def _cancelled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Those are over, but for whoever says so."""
    others = set(tasks) - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=STOPPING)


async def _next(events: AsyncIterator[T]) -> T:
    return await anext(events)


async def _leave(events: AsyncIterator[Any]) -> None:
    leave = getattr(events, "aclose", None)
    if leave is not None:
        await leave()


class Blocking:
    """Anything of ours, with its waiting done: what is awaited is given, what is iterated over comes one by one."""

    def __init__(self, of: Any, beside: Beside) -> None:
        self._of = of
        self._beside = beside

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not callable(found):
            # What has operations of its own (`surroundings`, `files` …) is of weft, and is no value.
            inside = type(found).__module__.startswith(("weft.client", "weft.local"))
            return Blocking(found, self._beside) if inside else found

        def call(*given: Any, **named: Any) -> Any:
            return self._given(self._beside.run(_called(found, given, named)))

        return call

    def __dir__(self) -> Iterable[str]:
        """What a notebook offers to complete."""
        return {*super().__dir__(), *(name for name in dir(self._of) if not name.startswith("_"))}

    def _given(self, given: Any) -> Any:
        return self._beside.each(given) if hasattr(given, "__anext__") else given


async def _called(found: Any, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """In the loop: what listens has to begin to listen there."""
    result = found(*given, **named)
    return await result if inspect.isawaitable(result) else result


class SyncApi(Blocking):
    """An `Api` whose answers are there when it returns. What is not spelled out here is there all the same."""

    def create_session(self, input: SessionInput | None = None) -> Session:
        made: Session = self._beside.run(self._of.create_session(input or SessionInput()))
        return made

    def get_session(self, id: SessionID) -> Session:
        found: Session = self._beside.run(self._of.get_session(id))
        return found

    def list_sessions(self, query: SessionQuery = EVERY) -> list[Session]:
        found: list[Session] = self._beside.run(self._of.list_sessions(query))
        return found

    def list_messages(self, session: SessionID, *, limit: int | None = None) -> list[MessageWithParts]:
        found: list[MessageWithParts] = self._beside.run(self._of.list_messages(session, limit=limit))
        return found

    def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts:
        answer: MessageWithParts = self._beside.run(self._of.prompt(session, input))
        return answer

    def abort(self, session: SessionID) -> bool:
        aborted: bool = self._beside.run(self._of.abort(session))
        return aborted

    def events(self, *, after: int | None = None) -> Iterator[Told]:
        async def begin() -> AsyncIterator[Told]:
            told: AsyncIterator[Told] = self._of.events(after=after)
            return told

        return self._beside.each(self._beside.run(begin()))

    def converse(
        self, session: SessionID | None = None, *, title: str | None = None, permit: Permit | None = None
    ) -> "SyncConversation":
        talk = self._beside.run(converse(self._of, session, title=title, permit=permit))
        return SyncConversation(talk, self._beside)


class SyncConversation:
    """A `Conversation` that waits for itself."""

    def __init__(self, of: Conversation, beside: Beside) -> None:
        self._of = of
        self._beside = beside

    @property
    def id(self) -> SessionID:
        return self._of.id

    @property
    def answer(self) -> MessageWithParts | None:
        return self._of.answer

    def refresh(self) -> None:
        self._beside.run(self._of.refresh())

    def messages(self) -> list[MessageWithParts]:
        return self._of.messages()

    def prompt(self, words: str | PromptInput) -> Iterator[Event]:
        return self._beside.each(self._of.prompt(words))

    def stream(self, words: str | PromptInput) -> Iterator[str]:
        return self._beside.each(self._of.stream(words))

    def ask(self, words: str | PromptInput, *, schema: dict[str, Any] | None = None) -> Any:
        return self._beside.run(self._of.ask(words, schema=schema))


@contextmanager
def blocking(opening: AbstractAsyncContextManager[Api]) -> Generator[SyncApi]:
    """Any way to come by an `Api` (`weft.open`, `weft.connect`) for those who do not wait."""
    beside = Beside()
    beside.start()
    try:
        kept = beside.run(_begin(opening))
        try:
            yield SyncApi(kept.api, beside)
        finally:
            if not beside.over:  # the program ends, and this with it
                beside.run(beside.settle())
                beside.run(kept.leave())
    finally:
        beside.stop()


class _Kept:
    """What is open, by a task of its own: what is entered in one task cannot be left in another."""

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


async def _begin(opening: AbstractAsyncContextManager[Api]) -> _Kept:
    kept = _Kept(opening)
    await kept.enter()
    return kept


@contextmanager
def connect_sync(
    url: str, *, directory: str | None = None, password: str | None = None, patience: float | None = 60.0
) -> Generator[SyncApi]:
    """As `weft.connect`, for those who do not wait: `with weft.connect_sync("http://127.0.0.1:4096") as api:`."""
    with blocking(connect(url, directory=directory, password=password, patience=patience)) as api:
        yield api
