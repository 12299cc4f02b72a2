"""Open directories for requests, close them when idle, and follow their events."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress

from msgspec import Struct, field

from weft.api import Api
from weft.api.cluster import SharedEvent
from weft.errors import ConflictError, CursorLostError, EndingError, WeftError
from weft.model.event import Event, PartGrew, Publish, SessionCreated, SessionUpdated, session_of
from weft.model.event_wire import event_from_json, is_shared
from weft.model.ids import SessionID
from weft.model.part import AnyPart
from weft.model.workspace_event import InstanceDisposed
from weft.page.view import BlockCache
from weft.server.early_growth import EventID
from weft.server.feed import EventCounter, EventFeed

IDLE_SECONDS = 30 * 60.0
MAX_OPEN_DIRECTORIES = 256
# When that many are open, those that were not used for this long are closed to make room.
PRESSED_IDLE_SECONDS = 60.0
DRAIN_TURNS = 5

ApiOpener = Callable[[str], AbstractAsyncContextManager[Api]]


class OpenDirectory:
    """An open directory: its `Api` and the feed of its events.

    `calls` counts the requests and sockets that use it now. A caller who names no directory listens to the one where the
    server was started, even if the session works here: `relays` maps such a session to the feed that gets its events, too.
    """

    def __init__(self, directory: str, api: Api, feed: EventFeed, used_at: float) -> None:
        self.directory = directory
        self.api = api
        self.feed = feed
        self.used_at = used_at
        self.calls = 0
        self.relays: dict[SessionID, EventFeed] = {}

    def add(self, event: Event, *, id: str | None = None) -> None:
        """Put an event into the feed and, if its session is relayed, into the other feed, too."""
        self.feed.add(event, id=id)
        if not self.relays:
            return
        # A child session is created or updated before it runs, and both events name its parent.
        if isinstance(event, SessionCreated | SessionUpdated) and event.info.parent_id in self.relays:
            self.relays[event.info.id] = self.relays[event.info.parent_id]
        other = self.relays.get(session_of(event) or SessionID(""))
        if other is not None and not other.closed:
            other.add(event, relayed=True, id=id)

    def report_gap(self) -> None:
        """Tell all listeners that they missed events."""
        for feed in (self.feed, *self.relays.values()):
            feed.report_gap()

    @contextmanager
    def use(self) -> Generator[None]:
        """Do not let the directory be closed as idle until the end of the block."""
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1
            self.used_at = asyncio.get_running_loop().time()

    async def is_idle(self, *, for_seconds: float) -> bool:
        """Return True if it was not used for `for_seconds`, nobody listens, and no run or terminal is active."""
        used_at = self.used_at
        terminals = await self.api.terminals.list_ptys()
        if await self.api.list_status() or any(each.status == "running" for each in terminals):
            return False
        # Check these after the last await: a call that arrived meanwhile has changed them.
        is_unused = asyncio.get_running_loop().time() - used_at > for_seconds
        return (
            is_unused and used_at == self.used_at and not self.calls and not any(self.feed.listeners.values())
        )


OnEvent = Callable[[Event], None]


def ignore_event(_: Event) -> None:
    pass


# Reports changes of files below a directory to the given function until it is cancelled.
WatchFiles = Callable[[str, Publish], Awaitable[None]]


async def watch_nothing(_: str, __: Publish) -> None:
    pass


class DirectoryOptions(Struct, frozen=True, kw_only=True):
    """How to open a directory, when to close it, and what to call for its events, errors (`note`) and changed files.

    `blocks` keeps the texts that were rendered for pages.
    """

    open: ApiOpener
    note: Callable[[str], None]
    idle_seconds: float = IDLE_SECONDS
    on_event: OnEvent = ignore_event
    watch_files: WatchFiles = watch_nothing
    blocks: BlockCache = field(default_factory=BlockCache)


class DirectoryTask:
    """The task that opens and closes one directory.

    `ready` holds the open directory, `closing` asks the task to end. Both happen in one task because a context
    manager that was entered in one task cannot be left in another.
    """

    def __init__(
        self,
        directory: str,
        tasks: asyncio.TaskGroup,
        serve: Callable[["DirectoryTask"], Coroutine[None, None, None]],
    ) -> None:
        self.directory = directory
        self.ready: asyncio.Future[OpenDirectory] = asyncio.get_running_loop().create_future()
        self.closing = asyncio.Event()
        self.failure: Exception = EndingError()
        self._task = tasks.create_task(serve(self))

    @property
    def opened(self) -> OpenDirectory | None:
        """The open directory, or None while it is being opened or closed."""
        return self.ready.result() if self.ready.done() and not self.closing.is_set() else None

    async def end(self) -> None:
        """Close the directory and return when that is done. Opening is cancelled if it is under way."""
        self.closing.set()
        if not self.ready.done():
            self._task.cancel()
        await self.wait()

    async def wait(self) -> None:
        await asyncio.wait([self._task])

    def on_end(self, forget: Callable[["DirectoryTask"], None]) -> None:
        """When the task ends, call `forget`, and then fail the requests that still wait for the directory.

        A callback does this because a task that is cancelled before it starts runs none of its own code.
        """

        def finish(_: asyncio.Task[None]) -> None:
            self.closing.set()
            forget(self)
            if not self.ready.done():
                self.ready.set_exception(self.failure)
                self.ready.exception()  # marks it as retrieved: perhaps nobody waits

        self._task.add_done_callback(finish)


class Directories:
    """Opens each directory once and closes it when idle. A failure to open is reported to the callers and not cached."""

    def __init__(self, options: DirectoryOptions, counter: EventCounter, tasks: asyncio.TaskGroup) -> None:
        self.counter = counter
        # For events that belong to no single directory.
        self.shared = EventFeed(counter, directory="global", project="global")
        self._options = options
        self._tasks = tasks
        self._entries: dict[str, DirectoryTask] = {}  # each from its creation to its end
        # The feeds of directories in which only other nodes work.
        self._foreign: OrderedDict[str, EventFeed] = OrderedDict()
        self._ended = False

    async def get(self, directory: str) -> OpenDirectory:
        """Return the open directory, opening it if needed. All callers share one attempt to open it."""
        while (entry := self._entries.get(directory)) is not None and entry.closing.is_set():
            await entry.wait()
        if entry is None and len(self._entries) >= MAX_OPEN_DIRECTORIES:
            await self.close_idle(for_seconds=PRESSED_IDLE_SECONDS)
            entry = self._entries.get(directory)
        entry = entry or self._start(directory)
        # Shielded: a caller that stops waiting must not cancel the opening for the others.
        opened = await asyncio.shield(entry.ready)
        opened.used_at = asyncio.get_running_loop().time()
        return opened

    def feeds(self) -> list[EventFeed]:
        return [
            self.shared,
            *(opened.feed for opened in map(self._find_receiving, self._entries) if opened is not None),
            *self._foreign.values(),
        ]

    def _find_receiving(self, directory: str) -> OpenDirectory | None:
        """Return the directory if its feed still takes events, else None.

        A directory that is closing still takes them: its listeners stay until its runs have settled.
        """
        entry = self._entries.get(directory)
        if entry is None or not entry.ready.done() or entry.ready.exception() is not None:
            return None
        opened = entry.ready.result()
        return None if opened.feed.closed else opened

    def deliver(self, shared: SharedEvent) -> None:
        """Pass an event of the cluster's event log on to those who listen to its directory."""
        self.counter.position = shared.position
        try:
            self._deliver(shared, event_from_json(shared.body))
        except Exception as error:  # noqa: BLE001  one bad event must not stop the others
            self._options.note(f"event {shared.position} could not be sent: {type(error).__name__}: {error}")
            self.report_gap()

    def _deliver(self, shared: SharedEvent, event: Event) -> None:
        opened = self._find_receiving(shared.directory)
        if opened is None:
            self._get_foreign_feed(shared.directory).add(event)
            return
        if shared.own:
            self._options.on_event(event)
            # Listeners here may have seen growth before it was in the log: only the rest of it is left to show.
            shown = opened.feed.early.pass_logged(event)
            if shown is None:
                return
            event = shown
        else:
            opened.feed.early.give_up(event)
        if isinstance(event, PartGrew) and opened.feed.asks_for(event):
            self._tasks.create_task(self._load_part(opened, event))
        opened.add(event, id=opened.feed.early.place(shared.position).format(self.counter.name))

    async def _load_part(self, opened: OpenDirectory, growth: PartGrew) -> None:
        """Read a part that grows on another node, for listeners of whole parts."""
        found: AnyPart | None = None
        with suppress(WeftError):  # then they get it when it is whole
            message = await opened.api.get_message(growth.session_id, growth.message_id)
            found = next((part for part in message.parts if part.id == growth.part_id), None)
        opened.feed.add_part(growth.part_id, found)

    def report_gap(self) -> None:
        """Tell all listeners that they missed events of the log."""
        for feed in self.feeds():
            feed.early.reset()
            feed.report_gap()

    def find_feed(self, directory: str) -> EventFeed:
        """Return the feed of a directory, also of one that is not open."""
        opened = self._find_receiving(directory)
        return self._get_foreign_feed(directory) if opened is None else opened.feed

    def _get_foreign_feed(self, directory: str) -> EventFeed:
        feed = self._foreign.get(directory)
        if feed is None:
            feed = self._foreign[directory] = EventFeed(self.counter, directory=directory, project="")
            if len(self._foreign) > MAX_OPEN_DIRECTORIES:
                self._foreign.popitem(last=False)[1].close()
        self._foreign.move_to_end(directory)
        return feed

    def list_open(self) -> dict[str, OpenDirectory]:
        entries = self._entries.items()
        return {directory: entry.opened for directory, entry in entries if entry.opened is not None}

    async def close(self, directory: str) -> bool:
        """Close a directory; return False if it was not open. Its runs have settled when this returns.

        Requests that arrive meanwhile wait for that.
        """
        entry = self._entries.get(directory)
        if entry is None or entry.opened is None:
            return False
        await entry.end()
        return True

    async def close_all(self) -> list[str]:
        """Close every open directory and return their paths."""
        paths = list(self.list_open())
        await asyncio.gather(*(self.close(directory) for directory in paths))
        return paths

    async def close_idle(self, *, for_seconds: float | None = None) -> list[str]:
        """Close the directories that were not used for long, in which nothing runs and to which nobody listens."""
        idle_seconds = self._options.idle_seconds if for_seconds is None else for_seconds
        closed: list[str] = []
        for directory, opened in self.list_open().items():
            # Close each right after the decision: closing takes time, and others may become busy, or be opened again, meanwhile.
            is_idle = await opened.is_idle(for_seconds=idle_seconds)
            entry = self._entries.get(directory)
            if is_idle and entry is not None and entry.opened is opened and await self.close(directory):
                closed.append(directory)
        return closed

    async def end(self) -> None:
        """Close every directory, also those being opened, and open none from now on."""
        self._ended = True
        await asyncio.gather(*(entry.end() for entry in list(self._entries.values())))

    def _start(self, directory: str) -> DirectoryTask:
        if self._ended:
            raise EndingError
        if len(self._entries) >= MAX_OPEN_DIRECTORIES:
            raise ConflictError(
                "directory",
                directory,
                f"cannot be opened: {MAX_OPEN_DIRECTORIES} are open and in use",
                hint="end work in another directory, and try again in a minute",
            )
        entry = self._entries[directory] = DirectoryTask(directory, self._tasks, self._run)
        entry.on_end(self._forget)
        return entry

    def _forget(self, entry: DirectoryTask) -> None:
        del self._entries[entry.directory]

    async def _run(self, entry: DirectoryTask) -> None:
        """Open a directory and keep it open until it is asked to close. An error affects this directory only."""
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._serve(entry, tasks)
        except Exception as error:  # noqa: BLE001  reported to the callers, or logged
            entry.failure = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            if entry.ready.done():
                self._options.note(f"{entry.directory}: {type(entry.failure).__name__}: {entry.failure}")

    async def _serve(self, entry: DirectoryTask, tasks: asyncio.TaskGroup) -> None:
        background: list[asyncio.Task[None]] = []
        opened: OpenDirectory | None = None
        try:
            async with self._options.open(entry.directory) as api:
                project = await api.current_project()
                feed = EventFeed(
                    self.counter, directory=entry.directory, project=project.id, cache=self._options.blocks
                )
                foreign = self._foreign.pop(entry.directory, None)
                if foreign is not None:
                    foreign.close()
                opened = OpenDirectory(entry.directory, api, feed, asyncio.get_running_loop().time())
                background = [
                    tasks.create_task(self._follow(entry, opened)),
                    tasks.create_task(self._watch_files(entry, api, feed)),
                ]
                entry.ready.set_result(opened)
                await entry.closing.wait()
        finally:
            entry.closing.set()
            for _ in range(DRAIN_TURNS):  # so that the last events of its runs arrive
                await asyncio.sleep(0)
            for task in background:
                task.cancel()
            if opened is not None:
                opened.feed.add(InstanceDisposed(directory=entry.directory))
                opened.feed.close()

    async def _follow(self, entry: DirectoryTask, opened: OpenDirectory) -> None:
        """Put every event into the feed.

        An event that cannot be read or sent is logged, and listeners are told that they missed something. A directory
        whose events cannot be followed at all is closed, because clients would wait for its events for ever.
        """
        received = True
        while received:  # until following the events yields none at all
            received = False
            try:
                async for published in opened.api.events():
                    received = True
                    self._pass_on(opened, published.event)
            except CursorLostError:  # more events than the bus holds
                received = True
                opened.feed.early.reset()
            except Exception as error:  # noqa: BLE001  one bad event must not stop the others
                self._options.note(
                    f"{entry.directory}: an event could not be sent: {type(error).__name__}: {error}"
                )
            opened.report_gap()
        self._options.note(f"{entry.directory} is closed, because its events cannot be followed")
        entry.closing.set()

    def _pass_on(self, opened: OpenDirectory, event: Event) -> None:
        """Put an event that was published here into the feed.

        In a cluster, an event that other nodes see, too, is left to `deliver`, except for growth that can be shown early.
        """
        early = opened.feed.early
        if self.counter.cluster is None:
            self._options.on_event(event)
            opened.add(event)
            self.counter.note_published()
        elif not is_shared(event):
            self._options.on_event(event)
            opened.add(event, id="")
        elif not isinstance(event, PartGrew):
            early.expect(event)
        elif early.show_early(event) is not None:
            place = EventID(self.counter.position, event.part_id, event.offset + len(event.delta))
            opened.add(event, id=place.format(self.counter.name))

    async def _watch_files(self, entry: DirectoryTask, api: Api, feed: EventFeed) -> None:
        """Watch files while somebody listens. A failure is logged, and watching is tried again for the next listener."""
        while True:
            await feed.has_listeners.wait()
            async with asyncio.TaskGroup() as tasks:
                watch_task = tasks.create_task(self._try_watching(entry, api))
                await feed.has_no_listeners.wait()
                watch_task.cancel()

    async def _try_watching(self, entry: DirectoryTask, api: Api) -> None:
        try:
            await self._options.watch_files(entry.directory, api.publish)
        except Exception as error:  # noqa: BLE001  everything else works without it
            cause = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            self._options.note(f"{entry.directory}: files are not watched: {type(cause).__name__}: {cause}")
