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

from weft.api import Api
from weft.errors import InvalidInputError
from weft.model.surroundings import GlobalDisposed
from weft.server.control import Control
from weft.server.directories import LONGEST_REST, Directories, Open, Terms
from weft.server.door import Door
from weft.server.feed import Numbering
from weft.server.guarded import Guarded
from weft.server.openapi import to_document
from weft.server.reading import TooLargeError, directory_in, read_body, to_query, to_value
from weft.server.refusal import Refusal, to_refusal
from weft.server.repeats import Repeats
from weft.server.route import Answer, Call, Route, Wide
from weft.server.sending import Receive, Scope, Send, headers_of, refuse, respond
from weft.server.tickets import Tickets
from weft.version import VERSION

Log = Callable[[str], None]

IDLE_CHECK = 60.0
LONGEST_PATH = 4096


def unheard(_: str) -> None:
    pass


class Setup(Struct, frozen=True, kw_only=True):
    """What a server is made with. `here` is the directory of who names none; `note` takes lines for the log, `access`
    one for each request. `now` is the time in milliseconds."""

    open: Open
    here: str
    door: Door
    name: str
    note: Log
    now: Callable[[], int]
    access: Log = unheard
    rest: float = LONGEST_REST


class Server:
    """The routes at work: finds the directory, reads, calls, writes."""

    def __init__(self, setup: Setup, routes: Iterable[Route]) -> None:
        self.setup = setup
        self.routes = tuple(routes)
        self.numbering = Numbering(setup.name)
        self.directories: Directories | None = None
        self.control = Control()
        self.repeats = Repeats(setup.now)
        self.tickets = Tickets()

    @asynccontextmanager
    async def running(self, _: Starlette) -> AsyncIterator[None]:
        terms = Terms(open=self.setup.open, note=self.setup.note, rest=self.setup.rest)
        async with asyncio.TaskGroup() as tasks:
            self.directories = Directories(terms, self.numbering, tasks)
            tidying = tasks.create_task(self._tidy(self.directories))
            try:
                yield
            finally:
                tidying.cancel()
                await self.directories.close_all()

    async def _tidy(self, directories: Directories) -> None:
        while True:
            await asyncio.sleep(IDLE_CHECK)
            await directories.close_idle()

    def opened(self) -> Directories:
        assert self.directories is not None, "the server is running while it answers"
        return self.directories

    def directory_of(self, scope: Scope) -> str:
        """The directory a request is about, by its one real name: asked for by two names, it is opened once."""
        given = directory_in(scope["query_string"], headers_of(scope), self.setup.here)
        try:
            if len(given) <= LONGEST_PATH:
                return os.path.realpath(os.path.join(self.setup.here, given))
        except (OSError, ValueError):  # a NUL in it, or half a character
            pass
        raise InvalidInputError("directory", f"{given[:80]!r} is not a path")

    # --- what routes ask of it ---

    async def open(self, directory: str) -> Api:
        return (await self.opened().get(directory)).api

    async def dispose(self, directory: str) -> bool:
        self.control.forget(directory)
        return await self.opened().close(directory)

    async def dispose_all(self) -> None:
        for directory in await self.opened().close_all():
            self.control.forget(directory)
        self.opened().shared.take(GlobalDisposed())

    async def leave(self) -> None:
        """Close everything, and end every stream: nothing is to keep a connection open."""
        await self.opened().close_all()
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
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        try:
            answer = await self._answer(self._routes[method], scope, receive)
        except TooLargeError:
            refusal = Refusal(status=413, name="TooLargeError", message="the body is larger than 32 MB")
            await refuse(send, refusal)
        except Exception as error:  # noqa: BLE001  a fault in one call is told to its caller, and never ends the server
            refusal = to_refusal(error)
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
        given = await (route.run(Wide(**asked)) if route.wide else self._call(route, asked))
        if isinstance(given, Answer):
            return given
        return Answer(value=given, status=204 if route.gives is None else 200)

    async def _call(self, route: Route, asked: dict[str, Any]) -> Any:
        opened = await self._server.opened().get(asked["directory"])
        opened.calls += 1
        try:
            given = await route.run(Call(api=opened.api, **asked))
        finally:
            opened.calls -= 1
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
    return Guarded(app, server.setup.door, server.tickets, server.setup.access)


async def _unknown(request: Request, _: Exception) -> Response:
    return _refused(404, "NotFoundError", f"there is no path {request.url.path[:200]!r}")


async def _wrong_method(request: Request, _: Exception) -> Response:
    return _refused(405, "MethodError", f"{request.method} is not for {request.url.path[:200]!r}")


def _refused(status: int, name: str, message: str) -> Response:
    refusal = Refusal(status=status, name=name, message=message)
    return Response(refusal.body(), status_code=status, media_type="application/json")
