"""The same for those who do not wait: notebooks, scripts, a REPL. A loop of its own, in a thread beside theirs."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

from weft.api import Api
from weft.client.conversation import Conversation, Permit, converse
from weft.client.remote import connect
from weft.model.event import Event, Told
from weft.model.ids import SessionID
from weft.model.input import PromptInput, SessionInput
from weft.model.message import MessageWithParts
from weft.model.session import EVERY, Session, SessionQuery

T = TypeVar("T")


class Beside:
    """A loop at work in a thread beside. Whoever is interrupted while waiting (Ctrl-C, a stopped cell) cancels what they
    were waiting for, and waits until it has ended."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="weft", daemon=True)
        self._over = False

    def start(self) -> None:
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        going = asyncio.run_coroutine_threadsafe(_settled(work), self.loop)
        try:
            return going.result()
        except BaseException:
            going.cancel()
            raise

    def each(self, events: AsyncIterator[T]) -> Iterator[T]:
        """One after the other, as they are asked for; whoever stops asking is heard."""
        try:
            while True:
                try:
                    yield self.run(_next(events))
                except StopAsyncIteration:
                    return
        finally:
            leave = getattr(events, "aclose", None)
            if leave is not None and not self._over:  # else it ended with the loop
                self.run(leave())

    def stop(self) -> None:
        self._over = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


async def _next(events: AsyncIterator[T]) -> T:
    return await anext(events)


async def _settled(work: Coroutine[Any, Any, T]) -> T:
    return await work


class Blocking:
    """Anything of ours, with its waiting done: what is awaited is given, what is iterated over comes one by one."""

    def __init__(self, of: Any, beside: Beside) -> None:
        self._of = of
        self._beside = beside

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if not callable(found):
            # What has operations of its own (`surroundings`, `files` …) is of weft, and is no value.
            inside = type(found).__module__.startswith(("weft.client", "weft.app"))
            return Blocking(found, self._beside) if inside else found

        def call(*given: Any, **named: Any) -> Any:
            return self._given(self._beside.run(_called(found, given, named)))

        return call

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

    def messages(self) -> list[MessageWithParts]:
        return self._of.messages()

    def prompt(self, words: str | PromptInput) -> Iterator[Event]:
        return self._beside.each(self._of.prompt(words))

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
