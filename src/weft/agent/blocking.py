"""The agent for code that is not async: notebooks, scripts, a REPL, plain tests. It runs an event loop in a thread."""

import asyncio
import atexit
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from weft.agent.agent import Agent, Conversation, Host, QuestionArguments, Stream
from weft.agent.answer import Answer
from weft.agent.events import AnswerEvent, AnyStreamEvent
from weft.agent.options import QuestionOptions, check_names
from weft.agent.question import AnyFile
from weft.agent.schema import Json
from weft.api import Api
from weft.errors import ClosedError
from weft.model.ids import SessionID
from weft.model.message import MessageWithParts

T = TypeVar("T")
V = TypeVar("V")

STOP_SECONDS = 5.0
CLOSED_HINT = "use it inside the `with`; for several cells of a notebook, use weft.open(…).start()"


class ThreadTask(Generic[T]):
    """A coroutine that runs in the loop of another thread.

    If the waiting thread is interrupted, the coroutine is cancelled and the thread waits until it has ended.
    """

    def __init__(self, work: Coroutine[object, None, T], loop: asyncio.AbstractEventLoop) -> None:
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
    """An event loop in a daemon thread.

    It is stopped at the latest when the program ends, or when nothing refers to it any more; every object that uses it refers to it.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.stopped = False
        self._opened: list[OpenContext[Any]] = []
        self._thread = threading.Thread(
            target=_run_loop, args=(self.loop, self._opened), name="weft", daemon=True
        )
        self._waiting: set[ThreadTask[Any]] = set()
        self._reading: set[AsyncIterator[Any]] = set()
        self._exit = partial(_stop_at_exit, weakref.ref(self))
        self._finalizer = weakref.finalize(self, _abandon, self.loop, self._exit)
        self._finalizer.atexit = False

    def start(self) -> None:
        self._thread.start()
        # The thread dies when the program exits; a caller would then wait forever.
        atexit.register(self._exit)

    def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter a context in the loop. It is left when the loop is stopped."""

        async def enter() -> OpenContext[T]:
            return await OpenContext(context).enter()

        opened = self.run(enter())
        self._opened.append(opened)
        return opened.value

    def run(self, work: Coroutine[object, None, T]) -> T:
        if self.stopped:
            work.close()
            raise ClosedError("the agent is closed", hint=CLOSED_HINT)
        self._waiting.add(going := ThreadTask(work, self.loop))
        try:
            return going.wait()
        finally:
            self._waiting.discard(going)

    def iterate(self, make: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Make an async iterator inside the loop, at once, and iterate over it. Close it when the caller stops."""
        return self._read(self.run(_make(make)))  # a listener misses no event before the first `next`

    def _read(self, items: AsyncIterator[T]) -> Iterator[T]:
        self._reading.add(items)
        try:
            while not self.stopped:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            self._reading.discard(items)
            # Otherwise it was closed with the loop, or the loop's own thread collects garbage, and must not wait for itself.
            if not self.stopped and threading.current_thread() is not self._thread:
                self.run(_close_iterator(items))

    async def end_calls(self) -> None:
        """Cancel all calls and close all iterators. Their runs have ended when this returns."""
        await _cancel_tasks(each.task for each in self._waiting if each.task is not None)
        await asyncio.gather(*(_close_iterator(each) for each in self._reading), return_exceptions=True)

    def leave(self) -> None:
        """Close everything that was opened, the last first. Raise the error of the first that fails to close."""
        while self._opened:
            self.run(self._opened.pop().leave())

    def stop(self) -> None:
        if self.stopped:
            return
        self.stopped = True
        self._finalizer.detach()
        atexit.unregister(self._exit)
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    async def _end(self) -> None:
        """Cancel all running calls and tasks, as `asyncio.run` does. Calls get some seconds to finish."""
        await asyncio.wait([asyncio.ensure_future(self.end_calls())], timeout=STOP_SECONDS)
        await _cancel_tasks(asyncio.all_tasks())
        await self.loop.shutdown_asyncgens()


def _run_loop(loop: asyncio.AbstractEventLoop, opened: "list[OpenContext[Any]]") -> None:
    """Run a loop until it is stopped. Then close all that is still open: if the agent was dropped, nobody else does."""
    loop.run_forever()
    loop.run_until_complete(_leave_all(opened))
    loop.close()


async def _leave_all(opened: "list[OpenContext[Any]]") -> None:
    await asyncio.gather(*(each.leave() for each in opened), return_exceptions=True)
    await _cancel_tasks(asyncio.all_tasks())
    await asyncio.get_running_loop().shutdown_asyncgens()


def _stop_at_exit(thread: "weakref.ref[LoopThread]") -> None:
    found = thread()
    if found is not None:
        found.stop()


def _abandon(loop: asyncio.AbstractEventLoop, exit: Callable[[], None]) -> None:
    """Stop the loop of an agent that was dropped. The garbage collector may call this in any thread: it waits for nothing."""
    atexit.unregister(exit)
    loop.call_soon_threadsafe(loop.stop)
    warnings.warn("an agent was not closed: use `with`, or call its close()", ResourceWarning, stacklevel=2)


async def _cancel_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel these tasks, except the current one, and wait until they have ended."""
    others = set(tasks) - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=STOP_SECONDS)


async def _make(make: Callable[[], AsyncIterator[T]]) -> AsyncIterator[T]:
    return make()


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _close_iterator(items: AsyncIterator[Any]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()


def _check_here(options: QuestionArguments) -> QuestionArguments:
    """Warn of misspelt names. A warning from the thread of the loop could not name the caller's line."""
    if "permissions" not in options:
        return options
    return {**options, "permissions": check_names(options["permissions"])}


class BlockingStream(Generic[T]):
    """The events of one question, as an iterator. The last event is an `AnswerEvent`.

    Leaving a `with` around it, or closing it, ends the run if it has not ended.
    """

    def __init__(self, stream: Stream[T], loop: LoopThread) -> None:
        self._stream = stream
        self._loop = loop
        self._events = loop.iterate(lambda: stream)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> AnyStreamEvent | AnswerEvent[T]:
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the run if it has not ended."""
        self._loop.run(self._stream.aclose())

    def answer(self) -> Answer[T]:
        """Wait for the end, and return the answer."""
        return self._loop.run(self._stream.answer())


class BlockingAsker(Generic[T]):
    """Asks questions with the same options. Every call blocks until it is done."""

    def __init__(self, asker: Agent[T] | Conversation[T], loop: LoopThread) -> None:
        self._asker = asker
        self._loop = loop

    @property
    def api(self) -> Api:
        """All operations of weft, which are async: `agent.wait(agent.api.list_sessions())`."""
        return self._asker.api

    def wait(self, work: Coroutine[object, None, V]) -> V:
        """Run a coroutine of weft, and return its result."""
        return self._loop.run(work)

    def iterate(self, make: Callable[[], AsyncIterator[V]]) -> Iterator[V]:
        """Iterate over an async iterator of weft: `agent.iterate(agent.api.events)`."""
        return self._loop.iterate(make)

    @overload
    def ask(
        self,
        prompt: str,
        *,
        schema: None = None,
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> Answer[T]: ...

    @overload
    def ask(
        self,
        prompt: str,
        *,
        schema: type[V],
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> Answer[V]: ...

    @overload
    def ask(
        self,
        prompt: str,
        *,
        schema: Mapping[str, object],
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> Answer[Json]: ...

    def ask(
        self,
        prompt: str,
        *,
        schema: Any = None,
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> Answer[object]:
        """Ask a question and return the answer, as `Agent.ask` does."""
        options = _check_here(options)
        asking = self._asker.ask(prompt, schema=schema, files=files, check=check, **options)
        return self._loop.run(asking)

    @overload
    def stream(
        self,
        prompt: str,
        *,
        schema: None = None,
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> BlockingStream[T]: ...

    @overload
    def stream(
        self,
        prompt: str,
        *,
        schema: type[V],
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> BlockingStream[V]: ...

    @overload
    def stream(
        self,
        prompt: str,
        *,
        schema: Mapping[str, object],
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> BlockingStream[Json]: ...

    def stream(
        self,
        prompt: str,
        *,
        schema: Any = None,
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> BlockingStream[Any]:
        """Ask a question and iterate over what happens, as `Agent.stream` does."""
        options = _check_here(options)

        async def start() -> Stream[Any]:
            stream: Stream[Any] = self._asker.stream(
                prompt, schema=schema, files=files, check=check, **options
            )
            return stream

        return BlockingStream(self._loop.run(start()), self._loop)


class BlockingAgent(BlockingAsker[T]):
    """An `Agent` whose calls block. Close it, or use it in a `with`."""

    def __init__(self, agent: Agent[T], loop: LoopThread) -> None:
        super().__init__(agent, loop)
        self._agent = agent

    @overload
    def converse(
        self,
        session: SessionID | str | None = None,
        *,
        title: str | None = None,
        schema: None = None,
        **options: Unpack[QuestionArguments],
    ) -> "BlockingConversation[T]": ...

    @overload
    def converse(
        self,
        session: SessionID | str | None = None,
        *,
        title: str | None = None,
        schema: type[V],
        **options: Unpack[QuestionArguments],
    ) -> "BlockingConversation[V]": ...

    @overload
    def converse(
        self,
        session: SessionID | str | None = None,
        *,
        title: str | None = None,
        schema: Mapping[str, object],
        **options: Unpack[QuestionArguments],
    ) -> "BlockingConversation[Json]": ...

    def converse(
        self,
        session: SessionID | str | None = None,
        *,
        title: str | None = None,
        schema: Any = None,
        **options: Unpack[QuestionArguments],
    ) -> "BlockingConversation[Any]":
        """Start a conversation, or continue the one in `session`, as `Agent.converse` does."""
        options = _check_here(options)
        conversation: Conversation[Any] = self._loop.run(
            self._agent.converse(session, title=title, schema=schema, **options)
        )
        return BlockingConversation(conversation, self._loop)

    def __repr__(self) -> str:
        return f"Blocking{self._agent!r}"

    def close(self) -> None:
        """End what is running, and close the agent."""
        try:
            if not self._loop.stopped:  # otherwise the program is ending
                self._loop.run(self._loop.end_calls())
                self._loop.leave()
        finally:
            self._loop.stop()


class BlockingConversation(BlockingAsker[T]):
    """A `Conversation` whose calls block."""

    def __init__(self, conversation: Conversation[T], loop: LoopThread) -> None:
        super().__init__(conversation, loop)
        self._conversation = conversation

    def __repr__(self) -> str:
        return f"Blocking{self._conversation!r}"

    @property
    def session(self) -> SessionID:
        """The session of this conversation."""
        return self._conversation.session

    def messages(self) -> list[MessageWithParts]:
        """Return all messages of the session, oldest first."""
        return self._loop.run(self._conversation.messages())


class OpenContext(Generic[T]):
    """Keeps a context open in a task of its own, because it must be left in the task that entered it."""

    value: T

    def __init__(self, context: AbstractAsyncContextManager[T]) -> None:
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self._task = asyncio.ensure_future(self._keep(context))

    async def _keep(self, context: AbstractAsyncContextManager[T]) -> None:
        async with context as value:
            self.value = value
            self._ready.set()
            await self._stop.wait()

    async def enter(self) -> Self:
        ready = asyncio.ensure_future(self._ready.wait())
        await asyncio.wait((ready, self._task), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._task.done():
            await self._task
        return self

    async def leave(self) -> None:
        self._stop.set()
        await self._task


def start_blocking(
    opening: AbstractAsyncContextManager[Host], options: QuestionOptions
) -> BlockingAgent[Any]:
    """Open an agent in a thread of its own."""
    loop = LoopThread()
    loop.start()
    try:
        return BlockingAgent(Agent(loop.enter(opening), options), loop)
    except BaseException:
        loop.stop()
        raise
