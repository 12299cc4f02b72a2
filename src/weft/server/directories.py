"""Directories: one server for many projects. Each is opened when first asked for, and closed when long idle."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, contextmanager

from msgspec import Struct

from weft.api import Api
from weft.errors import ConflictError, CursorLostError
from weft.model.event import Event, SessionCreated, SessionUpdated, session_of
from weft.model.ids import SessionID
from weft.model.workspace_event import InstanceDisposed
from weft.server.feed import Feed, Numbering

LONGEST_REST = 30 * 60.0
MOST_OPEN = 256
TURNS = 5
ENDING = "cannot be opened: the server is ending"

Open = Callable[[str], AbstractAsyncContextManager[Api]]
Life = Coroutine[None, None, None]


class Opened:
    """A directory that is open: who answers for it, and what happens in it.

    `calls` counts whoever is at work in it at the moment: requests and sockets.
    """

    def __init__(self, directory: str, api: Api, feed: Feed, used_at: float) -> None:
        self.directory = directory
        self.api = api
        self.feed = feed
        self.used_at = used_at
        self.calls = 0
        self.relays: dict[SessionID, Feed] = {}  # who named no directory listens where the server is

    def take(self, event: Event) -> None:
        """Tell an event here and, if its session is worked with from another directory, there too."""
        self.feed.take(event)
        # Before a child runs it is made, or touched: either way it is told whose child it is.
        if isinstance(event, SessionCreated | SessionUpdated) and event.info.parent_id in self.relays:
            self.relays[event.info.id] = self.relays[event.info.parent_id]
        to = self.relays.get(session_of(event) or SessionID(""))
        if to is not None and not to.closed:
            to.take(event, relayed=True)

    def lose(self) -> None:
        """Tell all who listen that they missed something."""
        for feed in (self.feed, *self.relays.values()):
            feed.lose()

    @contextmanager
    def used(self) -> Generator[None]:
        """Keep it from being closed as idle until the end of the block."""
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1
            self.used_at = asyncio.get_running_loop().time()

    async def is_idle(self, *, for_seconds: float) -> bool:
        """Return whether nobody has asked for it for so long, nobody listens, and no run and no terminal is under way."""
        used_at = self.used_at
        terminals = await self.api.terminals.list_ptys()
        if await self.api.list_status() or any(each.status == "running" for each in terminals):
            return False
        # Asked after the last pause: a call that came meanwhile has left its mark.
        rested = asyncio.get_running_loop().time() - used_at > for_seconds
        return rested and used_at == self.used_at and not self.calls and not any(self.feed.listeners.values())


Watch = Callable[[Event], None]


def unwatched(_: Event) -> None:
    pass


# Tells of changes in a directory by the function it is given, until it is cancelled.
WatchFiles = Callable[[str, Callable[[Event], Awaitable[None]]], Awaitable[None]]


async def watch_nothing(_: str, __: Callable[[Event], Awaitable[None]]) -> None:
    pass


class Terms(Struct, frozen=True, kw_only=True):
    """How directories are opened, after how many seconds of rest they are closed, where trouble is noted, who is told of
    all that happens, and what watches their files while somebody listens."""

    open: Open
    note: Callable[[str], None]
    rest: float = LONGEST_REST
    watch: Watch = unwatched
    watch_files: WatchFiles = watch_nothing


class Keeper:
    """The life of one directory: `ready` when it is open, asked to end by `closing`. Its task opens and closes it, for
    what is entered in one task cannot be left in another."""

    def __init__(self, directory: str, tasks: asyncio.TaskGroup, keep: Callable[["Keeper"], Life]) -> None:
        self.directory = directory
        self.ready: asyncio.Future[Opened] = asyncio.get_running_loop().create_future()
        self.closing = asyncio.Event()
        self.failure: Exception = ConflictError("directory", directory, ENDING)
        self._task = tasks.create_task(keep(self))

    @property
    def opened(self) -> Opened | None:
        """What is open: not while it is being opened, nor once it is being closed."""
        return self.ready.result() if self.ready.done() and not self.closing.is_set() else None

    async def end(self) -> None:
        """Close it and return when it has settled. An opening that is under way is broken off."""
        self.closing.set()
        if not self.ready.done():
            self._task.cancel()
        await self.settle()

    async def settle(self) -> None:
        await asyncio.wait([self._task])

    def when_settled(self, forget: Callable[["Keeper"], None]) -> None:
        """Have it forgotten at the end; then tell those who still wait that there is no opening. Done by a callback: a
        task that is cancelled before it began runs nothing of its own."""

        def settled(_: asyncio.Task[None]) -> None:
            self.closing.set()
            forget(self)
            if not self.ready.done():
                self.ready.set_exception(self.failure)
                self.ready.exception()  # it may be that nobody waits any more

        self._task.add_done_callback(settled)


class Directories:
    """Opens each directory once. A failure to open is told, and not remembered: the next call tries again."""

    def __init__(self, terms: Terms, numbering: Numbering, tasks: asyncio.TaskGroup) -> None:
        self.numbering = numbering
        self.shared = Feed(numbering, directory="global", project="global")  # what is of no one directory
        self._terms = terms
        self._tasks = tasks
        self._keepers: dict[str, Keeper] = {}  # a keeper is in here from the first moment to the last
        self._ended = False

    async def get(self, directory: str) -> Opened:
        """Return the directory, opened if it is not. All who ask while it is being opened share what comes of it."""
        while (keeper := self._keepers.get(directory)) is not None and keeper.closing.is_set():
            await keeper.settle()
        keeper = keeper or self._begin(directory)
        # Shielded: who stops waiting does not end the opening for the others.
        found = await asyncio.shield(keeper.ready)
        found.used_at = asyncio.get_running_loop().time()
        return found

    def feeds(self) -> list[Feed]:
        return [self.shared, *(opened.feed for opened in self.list_open().values())]

    def list_open(self) -> dict[str, Opened]:
        kept = self._keepers.items()
        return {directory: keeper.opened for directory, keeper in kept if keeper.opened is not None}

    async def close(self, directory: str) -> bool:
        """Close a directory and return whether it was open. Its runs are settled when this returns; whoever asks for it
        meanwhile waits for that."""
        keeper = self._keepers.get(directory)
        if keeper is None or keeper.opened is None:
            return False
        await keeper.end()
        return True

    async def close_all(self) -> list[str]:
        """Close every one that is open, and return which there were."""
        there = list(self.list_open())
        await asyncio.gather(*(self.close(directory) for directory in there))
        return there

    async def close_idle(self) -> list[str]:
        """Close what nobody has asked for in a long time, and where nothing runs and nobody listens."""
        closed: list[str] = []
        for directory, opened in self.list_open().items():
            # Nothing may come between the decision and the deed: closing one takes time, and others wake up meanwhile.
            if await opened.is_idle(for_seconds=self._terms.rest) and await self.close(directory):
                closed.append(directory)
        return closed

    async def end(self) -> None:
        """Close every one, also those that are being opened. From now on none is opened."""
        self._ended = True
        await asyncio.gather(*(keeper.end() for keeper in list(self._keepers.values())))

    def _begin(self, directory: str) -> Keeper:
        if self._ended:
            raise ConflictError("directory", directory, ENDING)
        if len(self._keepers) >= MOST_OPEN:
            raise ConflictError("directory", directory, f"cannot be opened: {MOST_OPEN} are")
        keeper = self._keepers[directory] = Keeper(directory, self._tasks, self._keep)
        keeper.when_settled(self._forget)
        return keeper

    def _forget(self, keeper: Keeper) -> None:
        del self._keepers[keeper.directory]

    async def _keep(self, keeper: Keeper) -> None:
        """Open a directory and keep it open until it is to close. One directory's trouble is not the server's."""
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._serve(keeper, tasks)
        except Exception as error:  # noqa: BLE001  the caller is told, or the log
            keeper.failure = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            if keeper.ready.done():
                self._terms.note(f"{keeper.directory}: {type(keeper.failure).__name__}: {keeper.failure}")

    async def _serve(self, keeper: Keeper, tasks: asyncio.TaskGroup) -> None:
        beside: list[asyncio.Task[None]] = []
        opened: Opened | None = None
        try:
            async with self._terms.open(keeper.directory) as api:
                project = await api.current_project()
                feed = Feed(self.numbering, directory=keeper.directory, project=project.id)
                opened = Opened(keeper.directory, api, feed, asyncio.get_running_loop().time())
                beside = [
                    tasks.create_task(self._follow(keeper, opened)),
                    tasks.create_task(self._watch_files(keeper, api, feed)),
                ]
                keeper.ready.set_result(opened)
                await keeper.closing.wait()
        finally:
            keeper.closing.set()
            for _ in range(TURNS):  # so that how its runs ended is heard, too
                await asyncio.sleep(0)
            for task in beside:
                task.cancel()
            if opened is not None:
                opened.feed.take(InstanceDisposed(directory=keeper.directory))
                opened.feed.close()

    async def _follow(self, keeper: Keeper, opened: Opened) -> None:
        """Hear all that happens. What could not be heard or told is noted, and listeners are told that they missed
        something. A directory of which nothing at all is heard is closed: nobody is to wait for its events in vain."""
        heard = True
        while heard:
            heard = False
            try:
                async for told in opened.api.events():
                    heard = True
                    self._terms.watch(told.event)
                    opened.take(told.event)
            except CursorLostError:  # more happened at once than is held
                heard = True
            except Exception as error:  # noqa: BLE001  one event's trouble must not keep the rest from being told
                self._terms.note(
                    f"{keeper.directory}: an event could not be told: {type(error).__name__}: {error}"
                )
            opened.lose()
        self._terms.note(f"{keeper.directory} is closed, for its events cannot be followed")
        keeper.closing.set()

    async def _watch_files(self, keeper: Keeper, api: Api, feed: Feed) -> None:
        """Have files watched while somebody listens. What cannot be watched is noted, and tried again for the next."""
        while True:
            await feed.heard.wait()
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(self._try_to_watch(keeper, api))
                await feed.unheard.wait()
                watching.cancel()

    async def _try_to_watch(self, keeper: Keeper, api: Api) -> None:
        try:
            await self._terms.watch_files(keeper.directory, api.tell)
        except Exception as error:  # noqa: BLE001  everything else goes on without
            told = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            self._terms.note(f"{keeper.directory}: files are not watched: {type(told).__name__}: {told}")
