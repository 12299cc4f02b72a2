"""Directories: one server for many projects. Each is opened when first asked for, and closed when long idle."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from msgspec import Struct

from weft.api import Api
from weft.errors import ConflictError, CursorLostError
from weft.model.event import Event, SessionCreated, SessionUpdated, session_of
from weft.model.ids import SessionID
from weft.model.surroundings import InstanceDisposed
from weft.server.feed import Feed, Numbering

LONGEST_REST = 30 * 60.0
MOST_OPEN = 256
TURNS = 5

Open = Callable[[str], AbstractAsyncContextManager[Api]]


class Opened:
    """A directory that is open: who answers for it, and what happens in it."""

    def __init__(self, directory: str, api: Api, feed: Feed, used_at: float) -> None:
        self.directory = directory
        self.api = api
        self.feed = feed
        self.used_at = used_at
        self.calls = 0
        self.closing = asyncio.Event()
        self.following: asyncio.Future[None] | None = None
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

    async def end(self) -> None:
        """Tell the last of what happened, and that this was it."""
        for _ in range(TURNS):  # so that how its runs ended is heard, too
            await asyncio.sleep(0)
        if self.following is not None:
            self.following.cancel()
        self.feed.take(InstanceDisposed(directory=self.directory))
        self.feed.close()


Watch = Callable[[Event], None]


def unwatched(_: Event) -> None:
    pass


async def _follow(opened: Opened, watch: Watch) -> None:
    """Hear all that happens. When more happened at once than is held, listeners are told that they missed something."""
    while True:
        try:
            async for told in opened.api.events():
                watch(told.event)
                opened.take(told.event)
        except CursorLostError:
            for feed in (opened.feed, *opened.relays.values()):
                feed.lose()


class Terms(Struct, frozen=True, kw_only=True):
    """How directories are opened, after how many seconds of rest they are closed, where trouble is noted, and who is told
    of all that happens."""

    open: Open
    note: Callable[[str], None]
    rest: float = LONGEST_REST
    watch: Watch = unwatched


class Directories:
    """Opens each directory once. A failure to open is told, and not remembered: the next call tries again."""

    def __init__(self, terms: Terms, numbering: Numbering, tasks: asyncio.TaskGroup) -> None:
        self.numbering = numbering
        self.shared = Feed(numbering, directory="global", project="global")  # what is of no one directory
        self._open = terms.open
        self._rest = terms.rest
        self._note = terms.note
        self._watch = terms.watch
        self._tasks = tasks
        self._opened: dict[str, Opened] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._doors: dict[str, asyncio.Lock] = {}

    async def get(self, directory: str) -> Opened:
        async with self._doors.setdefault(directory, asyncio.Lock()):
            try:
                found = self._opened.get(directory) or await self._begin(directory)
            except BaseException:
                self._doors.pop(directory, None)
                raise
        found.used_at = asyncio.get_running_loop().time()
        return found

    def feeds(self) -> list[Feed]:
        return [self.shared, *(opened.feed for opened in self._opened.values())]

    def list_open(self) -> dict[str, Opened]:
        return dict(self._opened)

    async def close(self, directory: str) -> bool:
        """Whether it was open. Its runs are settled when this returns; who asks for it meanwhile waits for that."""
        async with self._doors.setdefault(directory, asyncio.Lock()):
            keeper, opened = self._keepers.get(directory), self._opened.pop(directory, None)
            if keeper is None or opened is None:
                return False
            opened.closing.set()
            await asyncio.wait([keeper])
            return True

    async def close_all(self) -> list[str]:
        """Close every one, and give which there were."""
        there = list(self._opened)
        await asyncio.gather(*(self.close(directory) for directory in there))
        return there

    async def close_idle(self) -> list[str]:
        """Close what nobody has asked for in a long time, and where nothing runs and nobody listens."""
        now = asyncio.get_running_loop().time()
        idle = [
            directory
            for directory, opened in list(self._opened.items())
            if now - opened.used_at > self._rest and not opened.calls
            if not any(opened.feed.listeners.values()) and not await opened.api.list_status()
        ]
        for directory in idle:
            await self.close(directory)
        return idle

    async def _begin(self, directory: str) -> Opened:
        if len(self._opened) >= MOST_OPEN:
            raise ConflictError("directory", directory, f"cannot be opened: {MOST_OPEN} are")
        ready: asyncio.Future[Opened] = asyncio.get_running_loop().create_future()
        # Opened and closed in a task of its own: what is entered in one task cannot be left in another.
        keeper = self._tasks.create_task(self._keep(directory, ready))
        opened = await ready
        self._keepers[directory], self._opened[directory] = keeper, opened
        return opened

    async def _keep(self, directory: str, ready: asyncio.Future[Opened]) -> None:
        opened: Opened | None = None
        try:
            async with self._open(directory) as api:
                project = await api.current_project()
                feed = Feed(self.numbering, directory=directory, project=project.id)
                opened = Opened(directory, api, feed, asyncio.get_running_loop().time())
                opened.following = asyncio.ensure_future(_follow(opened, self._watch))
                ready.set_result(opened)
                await opened.closing.wait()
        except Exception as error:  # noqa: BLE001  one directory's trouble is not the server's
            if ready.done():
                self._note(f"{directory}: {type(error).__name__}: {error}")
            else:
                ready.set_exception(error)
        finally:
            self._keepers.pop(directory, None)
            self._opened.pop(directory, None)
            if opened is not None:
                await opened.end()
