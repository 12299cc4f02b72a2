"""The server as an ASGI application over any `Api`: the door, then the routes, then an answer or a refusal."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.routing import Route as At
from starlette.routing import WebSocketRoute as SocketAt

from weft.api import Api
from weft.errors import (
    DirectoryError,
    DirectoryNotServedError,
    InvalidInputError,
    NotFoundError,
    StoreError,
)
from weft.model.ids import GLOBAL_PROJECT, SessionID
from weft.model.session import Session
from weft.model.workspace_event import GlobalDisposed
from weft.server.access import Door, Guarded, Visited, check_known, is_below
from weft.server.control import Control
from weft.server.directories import LONGEST_REST, Directories, Open, Opened, Terms, WatchFiles, watch_nothing
from weft.server.feed import Numbering
from weft.server.metrics import Requests, Tally, Visit
from weft.server.openapi import to_document
from weft.server.request import TooLargeError, directory_in, read_body, to_query, to_value
from weft.server.response import Receive, Refusal, Scope, Send, headers_of, refuse, respond, to_refusal
from weft.server.route import Answer, Call, Repeats, Route, Tickets, Wide
from weft.server.shutdown import ENDING, Ending
from weft.version import VERSION

Log = Callable[[str], None]

IDLE_CHECK = 60.0
LONGEST_PATH = 4096
STREAMS = ("/event", "/global/event", "/tui/control/next")
TOO_LARGE = Refusal(status=413, name="TooLargeError", message="the body is larger than 32 MB")


def unvisited(_: Visit) -> None:
    pass


class Setup(Struct, frozen=True, kw_only=True):
    """What a server is made with. `here` is the directory of who names none; `allowed` are others that callers may name,
    beside those of known projects, with all below them. `note` takes lines for the log, `access` one for each request.
    `now` is the time in milliseconds. `watch_files` tells what others do to files, while somebody listens."""

    open: Open
    here: str
    door: Door
    name: str
    note: Log
    now: Callable[[], int]
    allowed: tuple[str, ...] = ()
    access: Visited = unvisited
    rest: float = LONGEST_REST
    watch_files: WatchFiles = watch_nothing


class Server:
    """The routes at work: finds the directory, reads, calls, writes."""

    def __init__(self, setup: Setup, routes: Iterable[Route]) -> None:
        self.setup = setup
        self.routes = tuple(routes)
        self._let_in = tuple(os.path.realpath(each) for each in (setup.here, *setup.allowed))
        self.numbering = Numbering(setup.name)
        self.directories: Directories | None = None
        self.control = Control()
        self.repeats = Repeats(setup.now)
        self.tickets = Tickets()
        self.tally = Tally()
        self.requests = Requests()
        self.finish = Ending()

    @asynccontextmanager
    async def running(self, _: Starlette) -> AsyncIterator[None]:
        setup = self.setup
        terms = Terms(
            open=setup.open,
            note=setup.note,
            rest=setup.rest,
            watch=self.tally.take,
            watch_files=setup.watch_files,
        )
        async with asyncio.TaskGroup() as tasks:
            self.directories = Directories(terms, self.numbering, tasks)
            tidying = tasks.create_task(self._tidy(self.directories))
            try:
                yield
            finally:
                tidying.cancel()
                await self.directories.end()

    async def _tidy(self, directories: Directories) -> None:
        while True:
            await asyncio.sleep(IDLE_CHECK)
            await directories.close_idle()

    def opened(self) -> Directories:
        assert self.directories is not None, "the server is running while it answers"
        return self.directories

    def directory_of(self, scope: Scope) -> str:
        """The directory a request is about, by its one real name: asked for by two names, it is opened once."""
        return self.resolve(directory_in(scope["query_string"], headers_of(scope)) or self.setup.here)

    def resolve(self, given: str) -> str:
        """A directory by its real name, however it was written."""
        try:
            if len(given) <= LONGEST_PATH:
                return os.path.realpath(os.path.join(self.setup.here, given))
        except (OSError, ValueError):  # a NUL in it, or half a character
            pass
        raise InvalidInputError("directory", f"{given[:80]!r} is not a path")

    def visited(self, visit: Visit) -> None:
        self.requests.take(visit, timed=visit.route not in STREAMS)
        self.setup.access(visit)

    # --- what routes ask of it ---

    @property
    def here(self) -> str:
        return self.setup.here

    @property
    def ending(self) -> bool:
        return self.finish.begun

    @property
    def shows_files(self) -> bool:
        return any(route.name == "file.read" for route in self.routes)

    async def find(self, directory: str) -> Opened:
        """A directory that a caller named. Raises `DirectoryNotServedError` for one that nobody has let in."""
        directories = self.opened()
        let_in = directory in directories.list_open() or any(
            is_below(directory, each) for each in self._let_in
        )
        if not let_in:
            api = await self.open(self.setup.here)
            check_known(directory, await api.surroundings.list_projects())
        return await directories.get(directory)

    async def open(self, directory: str) -> Api:
        return (await self.opened().get(directory)).api

    async def find_home(self, here: Opened, session: SessionID, route: Route) -> Opened:
        """Return where to call a route about a session for a caller who named no directory.

        A route that needs the session's own directory gets it. Raise `DirectoryNotServedError` if it may not be served,
        `DirectoryError` if it is gone. If it is gone from a repository that is served here, the session goes on here.
        OpenCode runs every session in the directory that the server stands in.
        """
        try:
            info = await here.api.get_session(session)
        except (NotFoundError, InvalidInputError):
            return here  # which says so itself
        directory = self.resolve(info.directory)
        found = self.opened().list_open().get(directory)
        if found is not None:
            return found
        if not route.home or (await _is_gone(directory) and await _is_repository_of(here.api, info)):
            return here
        try:
            return await self.find(directory)
        except (DirectoryNotServedError, DirectoryError):
            if route.home == "needs":
                raise
            return here

    async def find_runner(self, session: SessionID) -> Api | None:
        """Return who runs a session, in whichever directory of this server; None if it is not being run here."""
        for opened in self.opened().list_open().values():
            if session in await opened.api.list_status():
                return opened.api
        return None

    def list_relayed(self, directory: str) -> dict[SessionID, Api]:
        """Return the sessions of other directories that are worked with from this one, and who answers for each."""
        opened = self.opened().list_open()
        feed = opened[directory].feed if directory in opened else None
        return {
            session: each.api for each in opened.values() for session, to in each.relays.items() if to is feed
        }

    async def is_busy(self, directory: str) -> bool:
        opened = self.opened().list_open().get(directory)
        return opened is not None and bool(await opened.api.list_status())

    async def dispose(self, directory: str) -> bool:
        self.control.forget(directory)
        return await self.opened().close(directory)

    async def dispose_all(self) -> None:
        for directory in await self.opened().close_all():
            self.control.forget(directory)
        self.opened().shared.take(GlobalDisposed())

    async def leave(self, grace: float = 0) -> None:
        """Take no more work, let runs go on for so many seconds; then close everything, and end every stream: nothing is
        to keep a connection open."""
        await self.finish.wait(grace, news=self.numbering.signal, opened=self.opened().list_open)
        await self.dispose_all()
        self.numbering.end()

    @cached_property
    def _document(self) -> dict[str, Any]:
        return to_document(self.routes, version=VERSION)

    def document(self) -> dict[str, Any]:
        return self._document

    def note(self, line: str) -> None:
        self.setup.note(line)


class Endpoint:
    """One path, with a route for each of its methods."""

    def __init__(self, server: Server, routes: Iterable[Route]) -> None:
        self._server = server
        self._routes: dict[str, Route] = {route.method: route for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes["GET" if scope["method"] == "HEAD" else scope["method"]]
        if self._server.finish.refuses(route):
            await refuse(send, ENDING, {"retry-after": "1", "connection": "close"})
            return
        try:
            answer = await self._answer(route, scope, receive)
        except TooLargeError:
            await refuse(send, TOO_LARGE)
        except Exception as error:  # noqa: BLE001  a fault in one call is told to its caller, and never ends the server
            refusal = to_refusal(error)
            self._server.tally.store_errors += isinstance(error, StoreError)
            if refusal.ref is not None:
                self._server.note(f"{refusal.ref}: {type(error).__name__}: {error}")
            await refuse(send, refusal)
        else:
            await respond(send, answer)

    async def _answer(self, route: Route, scope: Scope, receive: Receive) -> Answer:
        headers = headers_of(scope)
        body = to_value(route, await read_body(receive, headers), headers.get("content-type", ""))
        asked = {
            "premises": self._server,
            "directory": self._server.directory_of(scope),
            "names": scope["path_params"],
            "headers": headers,
            "path": scope["path"],
            "query": to_query(route.query, scope["query_string"]),
            "body": body,
        }
        named = bool(directory_in(scope["query_string"], headers))
        given = await (route.run(Wide(**asked)) if route.wide else self._call(route, asked, named=named))
        if isinstance(given, Answer):
            return given
        return Answer(value=given, status=204 if route.gives is None else 200)

    async def _call(self, route: Route, asked: dict[str, Any], *, named: bool) -> Any:
        opened = await self._server.find(asked["directory"])
        if "sessionID" in asked["names"] and not named:
            session, here = SessionID(asked["names"]["sessionID"]), opened
            opened = await self._server.find_home(here, session, route)
            if opened is not here and route.method != "GET":
                opened.relays[session] = here.feed
                asked["directory"] = opened.directory
        with opened.used():
            given = await route.run(Call(api=opened.api, **asked))
        if route.method != "GET":
            # What a call did is told before it is answered: clients wait for the answer, and then look at what they heard.
            await opened.feed.settle()
        return given


def build(server: Server, more: Iterable[BaseRoute] = ()) -> Any:
    """The application. `more` are the routes that answer with something else than a value: streams, sockets, pages."""
    by_path: dict[str, list[Route]] = {}
    for route in server.routes:
        if route.media == "application/json":
            by_path.setdefault(route.path, []).append(route)
    table: list[BaseRoute] = [
        At(path, Endpoint(server, routes), methods=[route.method for route in routes])
        for path, routes in sorted(by_path.items(), key=lambda each: each[0].count("{"))
    ]
    app = Starlette(
        routes=[*more, *table],
        lifespan=server.running,
        exception_handlers={404: _unknown, 405: _wrong_method},
    )
    app.router.redirect_slashes = False
    names = {each.endpoint: each.path for each in app.routes if isinstance(each, At | SocketAt)}
    return Guarded(app, server.setup.door, server.tickets, visited=server.visited, names=names)


async def _is_gone(directory: str) -> bool:
    return not await asyncio.to_thread(os.path.isdir, directory)


async def _is_repository_of(api: Api, session: Session) -> bool:
    """Return whether a session belongs to the repository here. What is in no repository is not one project's."""
    project = (await api.current_project()).id
    return session.project_id == project != GLOBAL_PROJECT


async def _unknown(request: Request, _: Exception) -> Response:
    return _refused(404, "NotFoundError", f"there is no path {request.url.path[:200]!r}")


async def _wrong_method(request: Request, _: Exception) -> Response:
    return _refused(405, "MethodError", f"{request.method} is not for {request.url.path[:200]!r}")


def _refused(status: int, name: str, message: str) -> Response:
    refusal = Refusal(status=status, name=name, message=message)
    return Response(refusal.body(), status_code=status, media_type="application/json")
