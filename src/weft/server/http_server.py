"""The server: its directories, what routes may ask of it, and how it shuts down."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import cached_property
from typing import Any, Final, Protocol

from msgspec import Struct
from starlette.applications import Starlette

from weft.api import Api
from weft.api.change_log import ChangeLog
from weft.api.cluster import Cluster
from weft.api.tokens import EndedLogins, TokenCheck
from weft.errors import (
    CursorLostError,
    DirectoryError,
    DirectoryNotServedError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    WeftError,
)
from weft.model.event import Event, SessionDeleted
from weft.model.ids import GLOBAL_PROJECT, SessionID
from weft.model.principal import Caller
from weft.model.project import is_within
from weft.model.session import AnyStatus, Busy, SessionInfo
from weft.model.workspace_event import GlobalDisposed
from weft.page.view import BlockCache
from weft.server.access import AccessPolicy, OnRequest, check_served
from weft.server.directories import (
    IDLE_SECONDS,
    ApiOpener,
    Directories,
    DirectoryOptions,
    OpenDirectory,
    WatchFiles,
    watch_nothing,
)
from weft.server.feed import EventCounter
from weft.server.metrics import EventMetrics, RequestMetrics, RequestRecord, format_metric
from weft.server.openapi import to_document
from weft.server.page_login import PageLogins
from weft.server.request import find_directory
from weft.server.response import Scope, read_headers
from weft.server.route import HttpOperation, Route
from weft.server.state import IdempotencyKeys, PasswordAttempts, Tickets, TuiControl
from weft.version import VERSION

IDLE_CHECK_SECONDS: Final = 60.0
SHUTDOWN_POLL_SECONDS: Final = 1.0
MAX_PATH_LENGTH: Final = 4096
STREAM_PATHS: Final = (
    "/event",
    "/global/event",
    "/weft/view/event",
    "/tui/control/next",
    "/s/{shareID}/live",
)
# Calls that a run may need before it can end, and the log of clients.
ALLOWED_DURING_SHUTDOWN: Final = frozenset(
    {
        "permission.reply",
        "permission.respond",
        "question.reply",
        "question.reject",
        "session.abort",
        "weft.permission.reply",
        "weft.session.abort",
        "weft.clientTool.accept",
        "weft.clientTool.ask",
        "weft.clientTool.report",
        "weft.clientTool.finish",
        "app.log",
    }
)


def ignore_request(_: RequestRecord) -> None:
    pass


class InnerServers(Protocol):
    """The servers of principals inside of this one (see `weft.server.principals`)."""

    def list_servers(self) -> list["HttpServer"]: ...

    async def get_api(self, principal: str, directory: str) -> Api: ...

    async def shut_down(self, grace: float) -> None: ...

    async def end(self) -> None: ...


class ServerSetup(Struct, frozen=True, kw_only=True):
    """The parts and settings of a server.

    * `open` opens the `Api` of a directory;
    * `default_directory` is the directory of a caller who names none;
    * `allowed` are more directories that callers may name, each with everything below it; known projects need no entry;
    * `confined` says that callers may name no other directories, not even known projects;
    * `tokens` checks and manages the tokens of principals, and `open_for` opens directories for one of them;
    * `note` writes a line to the log, `on_request` is called after each request;
    * `now` returns the time in milliseconds;
    * `watch_files` reports changes that other programs make to files, while a client listens;
    * `cluster` are the other nodes that serve the same sessions, None if this is a server by itself; `open_cluster` shows a principal its
      part of them;
    * `change_log` lets listeners resume after a restart, None if the store has none;
    * `ended_logins` remembers logouts beyond a restart; without it, until the server ends.
    """

    open: ApiOpener
    default_directory: str
    access: AccessPolicy
    name: str
    note: Callable[[str], None]
    now: Callable[[], int]
    allowed: tuple[str, ...] = ()
    confined: bool = False
    tokens: TokenCheck | None = None
    open_for: Callable[[Caller], ApiOpener] | None = None
    on_request: OnRequest = ignore_request
    idle_seconds: float = IDLE_SECONDS
    watch_files: WatchFiles = watch_nothing
    cluster: Cluster | None = None
    change_log: ChangeLog | None = None
    open_cluster: Callable[[Caller], AbstractAsyncContextManager[Cluster]] | None = None
    ended_logins: EndedLogins | None = None


class HttpServer:
    """Opens directories for requests and keeps the state that routes share. Routes see it as their `ServerContext`."""

    def __init__(self, setup: ServerSetup, routes: Iterable[HttpOperation]) -> None:
        self.setup = setup
        self.routes = tuple(routes)
        roots = () if setup.cluster is None else setup.cluster.workspace_roots
        self._default = os.path.realpath(setup.default_directory)
        self._allowed = (self._default, *map(os.path.realpath, (*setup.allowed, *roots)))
        self._directories: Directories | None = None
        self.cluster = setup.cluster
        self.counter = EventCounter(setup.name, setup.cluster)
        self.control = TuiControl()
        self.idempotency_keys = IdempotencyKeys(
            setup.now, None if setup.cluster is None else setup.cluster.claim_key
        )
        self.tickets = Tickets()
        self.attempts = PasswordAttempts()
        self.logins = PageLogins(setup.access.password, setup.now, setup.ended_logins)
        self.blocks = BlockCache()
        self.event_metrics = EventMetrics()
        self.request_metrics = RequestMetrics()
        self.shutting_down = False
        self.principals: InnerServers | None = None
        self._tasks: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def run(self, _: Starlette) -> AsyncIterator[None]:
        """Serve while the block runs (the lifespan of the application), then close every directory."""
        setup = self.setup
        options = DirectoryOptions(
            open=setup.open,
            note=setup.note,
            idle_seconds=setup.idle_seconds,
            on_event=self._note_event,
            watch_files=setup.watch_files,
            blocks=self.blocks,
        )
        if setup.change_log is not None:
            try:
                await self.counter.open_log(setup.change_log)
            except StoreError as error:
                self.note(f"listeners cannot resume after a restart: {error}")
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._directories = Directories(options, self.counter, tasks)
            background = [tasks.create_task(self._close_idle(self._directories))]
            if self.cluster is not None:
                background.append(tasks.create_task(self._follow_cluster(self.cluster, self._directories)))
            try:
                yield
            finally:
                if self.principals is not None:
                    await self.principals.end()
                await self._directories.end()
                for task in background:
                    task.cancel()

    def _note_event(self, event: Event) -> None:
        self.event_metrics.add(event)
        if isinstance(event, SessionDeleted):
            self.idempotency_keys.forget(event.info.id)

    async def _follow_cluster(self, cluster: Cluster, directories: Directories) -> None:
        """Pass on the events of all nodes. After a gap, listeners are told to read everything again."""
        self.counter.position = cluster.position
        while True:
            with suppress(CursorLostError):
                await cluster.follow(directories.deliver)
            self.note("events of other nodes were missed: all listeners are told to read everything again")
            self.counter.position = cluster.position
            directories.report_gap()

    async def flush_events(self, opened: OpenDirectory) -> None:
        """Let listeners receive the events of a call before its answer."""
        if self.cluster is not None:
            await self.cluster.catch_up()
        await opened.feed.flush_listeners()

    async def settle_dead_runs(self, log: ChangeLog) -> None:
        """Open the directories of sessions whose runs died with their process, so that a listener to all directories hears how they ended."""
        with suppress(StoreError):
            for directory in await log.list_unsettled():
                with suppress(WeftError):  # it is gone, or no longer served
                    await self.get_directory(self.resolve(directory))

    async def list_other_status(self, directory: str) -> dict[SessionID, AnyStatus]:
        """Return the sessions of a directory that other nodes run."""
        return {} if self.cluster is None else await self.cluster.list_status(directory)

    async def list_cluster_metrics(self) -> list[str]:
        if self.cluster is None:
            return []
        try:
            measured = await self.cluster.metrics()
        except StoreError:
            return []  # the other metrics matter all the more while the store fails
        return [
            line for name, about, value in measured for line in format_metric(name, "gauge", about, value)
        ]

    async def _close_idle(self, directories: Directories) -> None:
        while True:
            await asyncio.sleep(IDLE_CHECK_SECONDS)
            await directories.close_idle()

    @property
    def directories(self) -> Directories:
        assert self._directories is not None, "requests arrive only while the server runs"
        return self._directories

    @property
    def tasks(self) -> asyncio.TaskGroup:
        assert self._tasks is not None, "requests arrive only while the server runs"
        return self._tasks

    @property
    def tokens(self) -> TokenCheck | None:
        return self.setup.tokens

    def resolve_directory(self, scope: Scope) -> str:
        """Return the directory that a request is about, as a real path."""
        named = find_directory(scope["query_string"], read_headers(scope))
        return self.resolve(named) if named else self._default

    def resolve(self, path: str) -> str:
        """Return the real path of a directory. Raise `InvalidInputError` if it is not a path."""
        try:
            if len(path) <= MAX_PATH_LENGTH:
                return os.path.realpath(os.path.join(self.setup.default_directory, path))
        except (OSError, ValueError):  # a NUL byte or half a surrogate pair
            pass
        raise InvalidInputError("directory", f"{path[:80]!r} is not a path")

    def record_request(self, record: RequestRecord) -> None:
        """Count a request and pass it on to `on_request`."""
        self.request_metrics.add(record, timed=record.route not in STREAM_PATHS)
        self.setup.on_request(record)

    def refuses(self, route: HttpOperation) -> bool:
        """Return True if the server is shutting down and takes no more calls of this route."""
        return self.shutting_down and route.method != "GET" and route.name not in ALLOWED_DURING_SHUTDOWN

    @property
    def default_directory(self) -> str:
        """Return the directory of a caller who names none."""
        return self.setup.default_directory

    @property
    def shows_files(self) -> bool:
        """Return True if callers may read files."""
        return any(route.name == "file.read" for route in self.routes)

    async def get_directory(self, directory: str) -> OpenDirectory:
        """Return a directory that a caller named, opening it if needed. Raise `DirectoryNotServedError` if callers may not name it."""
        directories = self.directories
        served = directory in directories.list_open() or self._is_allowed(directory)
        if not served and self.setup.confined:
            raise DirectoryNotServedError(directory, hint="ask the administrator of the server for it")
        if not served:
            api = await self.get_api(self.setup.default_directory)
            check_served(directory, await api.workspace.list_projects())
        return await directories.get(directory)

    def _is_allowed(self, directory: str) -> bool:
        return any(is_within(directory, each) for each in self._allowed)

    async def get_api(self, directory: str) -> Api:
        """Return the `Api` of a directory without checking whether callers may name it."""
        return (await self.directories.get(directory)).api

    async def get_api_of(self, directory: str, owner: str) -> Api:
        """Return the `Api` of a directory for a principal, or for the administrator if `owner` is "".

        Raise `NotFoundError` if there is no such principal, `DirectoryNotServedError` if it may not work there (any more).
        """
        if not owner:
            return await self.get_api(directory)
        if self.principals is None:
            raise NotFoundError("principal", owner)
        return await self.principals.get_api(owner, directory)

    async def choose_directory(
        self, default: OpenDirectory, session: SessionID, route: Route
    ) -> OpenDirectory:
        """Return the directory in which to call a route about a session, for a caller who named no directory.

        A route that needs the session's own directory gets it, unless only other nodes have it. Raise `DirectoryNotServedError` if
        it may not be served, `DirectoryError` if it no longer exists. If it no longer exists and the session belongs to the project of the
        `default` directory, the session continues there. OpenCode runs every session in that directory.
        """
        try:
            info = await default.api.get_session(session)
        except (NotFoundError, InvalidInputError):
            return default  # the route itself reports the error
        directory = self.resolve(info.directory)
        opened = self.directories.list_open().get(directory)
        if opened is not None:
            return opened
        if not route.session_directory or (
            await _is_missing(directory) and await _belongs_to_project(default.api, info)
        ):
            return default
        try:
            return await self.get_directory(directory)
        except (DirectoryNotServedError, DirectoryError):
            # With other nodes, what is wanted is stored for the one that has the directory. A principal may have lost the right to it.
            is_allowed = not self.setup.confined or self._is_allowed(directory)
            if route.session_directory == "required" and (self.cluster is None or not is_allowed):
                raise
            return default

    async def find_runner(self, session: SessionID) -> Api | None:
        """Return the `Api` that runs a session, in any directory of this server, or None if it is not running here.

        The administrator's server also looks at those of principals.
        """
        servers = self.principals.list_servers() if self.principals is not None else []
        opened = [each for server in (self, *servers) for each in server.directories.list_open().values()]
        for directory in opened:
            if session in await directory.api.list_status():
                return directory.api
        return None

    def list_apis(self) -> list[Api]:
        """Return the `Api` of each open directory."""
        return [each.api for each in self.directories.list_open().values()]

    def list_relayed(self, directory: str) -> dict[SessionID, Api]:
        """Return the sessions of other directories whose events are relayed to this one, each with its `Api`."""
        opened = self.directories.list_open()
        feed = opened[directory].feed if directory in opened else None
        return {
            session: each.api for each in opened.values() for session, to in each.relays.items() if to is feed
        }

    async def is_busy(self, directory: str) -> bool:
        """Return True if a session runs in the directory."""
        opened = self.directories.list_open().get(directory)
        return opened is not None and bool(await opened.api.list_status())

    async def dispose(self, directory: str) -> bool:
        """Close a directory. Return False if it was not open."""
        self.control.forget(directory)
        return await self.directories.close(directory)

    async def dispose_all(self) -> None:
        """Close every directory and tell all listeners."""
        for directory in await self.directories.close_all():
            self.control.forget(directory)
        self.directories.shared.add(GlobalDisposed())

    async def shut_down(self, grace: float = 0) -> None:
        """Take no more work, wait up to `grace` seconds for runs, then close every directory and end every stream.

        Streams must end because an open connection would keep the process alive.
        """
        self.shutting_down = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        while (seconds_left := deadline - loop.time()) > 0 and await self._has_active_run():
            await self.counter.signal.wait(min(seconds_left, SHUTDOWN_POLL_SECONDS))
        if self.principals is not None:
            await self.principals.shut_down(max(0.0, deadline - loop.time()))
        await self.dispose_all()
        self.counter.end()

    async def _has_active_run(self) -> bool:
        """Return True if a run does work. One that waits for a person or for a retry is not worth waiting for."""
        for directory in self.directories.list_open().values():
            for status in (await directory.api.list_status()).values():
                if isinstance(status, Busy) and not status.waiting_for:
                    return True
        return False

    @cached_property
    def document(self) -> dict[str, Any]:
        """Return the OpenAPI document of the routes."""
        return to_document(self.routes, version=VERSION)

    def note(self, line: str) -> None:
        """Write a line to the log."""
        self.setup.note(line)


async def _is_missing(directory: str) -> bool:
    return not await asyncio.to_thread(os.path.isdir, directory)


async def _belongs_to_project(api: Api, session: SessionInfo) -> bool:
    """Return True if a session belongs to the project of an `Api`. Directories without a repository are not one project."""
    project = (await api.current_project()).id
    return session.project_id == project != GLOBAL_PROJECT
