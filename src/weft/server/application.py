"""Build the ASGI application: access checks, then routes, streams, sockets and pages."""

from collections.abc import Iterable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, WebSocketRoute
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive as StarletteReceive
from starlette.types import Scope as StarletteScope
from starlette.types import Send as StarletteSend

from weft.errors import EndingError, StoreError
from weft.model.ids import SessionID
from weft.server.access import AccessMiddleware, Callers, get_caller
from weft.server.http_server import HttpServer
from weft.server.metrics import format_metric
from weft.server.page_files import PageEndpoint, PartFileEndpoint, SessionPageEndpoint
from weft.server.page_login import LOGIN_PATH, PAGE_ROOT, LoginEndpoint
from weft.server.principals import PrincipalServers
from weft.server.request import BodyTooLargeError, decode_body, decode_query, find_directory, read_body
from weft.server.response import (
    ErrorResponse,
    Receive,
    Scope,
    Send,
    make_error_response,
    read_headers,
    send_error,
    send_result,
)
from weft.server.route import DirectoryCall, Route, RouteResult, ServerCall
from weft.server.routes.pty import PTY, PtySocket
from weft.server.routes.sharing import SHARE_PATH, SHARE_ROOT
from weft.server.routes.views import PART_FILE, SESSION_PAGE
from weft.server.scopes import refuse_scope
from weft.server.streams import DirectoryEventsEndpoint, GlobalEventsEndpoint, ViewEventsEndpoint

METRICS_PATH = "/weft/metrics"
# For a client that should send its request again. On a new connection it may reach another node.
RETRY_HEADERS = {"retry-after": "1", "connection": "close"}
TOO_LARGE = ErrorResponse(status=413, name="TooLargeError", message="the body is larger than 32 MB")


def build_app(server: HttpServer) -> Any:
    """Return the ASGI application. It serves terminals and share pages only if the server has their routes."""
    app = build_routes(server)
    route_paths = list_route_paths(app)
    principals = None
    if server.tokens is not None:

        def build_for_principal(other: HttpServer) -> Starlette:
            built = build_routes(other)
            route_paths.update(list_route_paths(built))
            return built

        principals = server.principals = PrincipalServers(server, build_for_principal)
    return AccessMiddleware(
        app,
        server.setup.access,
        server.tickets,
        logins=server.logins,
        attempts=server.attempts,
        on_request=server.record_request,
        route_paths=route_paths,
        callers=None
        if server.tokens is None or principals is None
        else Callers(server.tokens, principals.get_app),
    )


def list_route_paths(app: Starlette) -> dict[Any, str]:
    """Return the pattern of the path of each endpoint."""
    routes = [
        route for each in app.routes for route in (each.routes if isinstance(each, RouteTable) else [each])
    ]
    return {each.endpoint: each.path for each in routes if isinstance(each, StarletteRoute | WebSocketRoute)}


class RouteTable(BaseRoute):
    """Finds a route by the first segment of the path and its number of segments.

    Starlette asks one route after the other. With more than a hundred of them, that takes as long as all the rest of a small request.
    """

    def __init__(self, routes: Iterable[StarletteRoute]) -> None:
        self.routes = list(routes)
        self._by_shape: dict[tuple[str, int], list[StarletteRoute]] = {}
        for route in self.routes:
            self._by_shape.setdefault(_to_shape(route.path), []).append(route)

    def matches(self, scope: StarletteScope) -> tuple[Match, StarletteScope]:
        partial: tuple[Match, StarletteScope] = (Match.NONE, {})
        for route in self._by_shape.get(_to_shape(scope["path"]), ()):
            match, found = route.matches(scope)
            if match is Match.FULL:
                return match, {**found, "route": route}
            if match is Match.PARTIAL and partial[0] is Match.NONE:
                partial = match, {**found, "route": route}
        return partial

    async def handle(self, scope: StarletteScope, receive: StarletteReceive, send: StarletteSend) -> None:
        await scope["route"].handle(scope, receive, send)


def _to_shape(path: str) -> tuple[str, int]:
    return path[1:].partition("/")[0], path.count("/")


def build_routes(server: HttpServer) -> Starlette:
    """Return the application behind the access checks."""
    by_path: dict[str, list[Route]] = {}
    for route in server.routes:
        if isinstance(route, Route):
            by_path.setdefault(route.path, []).append(route)
    special = _list_special_routes(server)
    table = RouteTable(
        [
            *(each for each in special if isinstance(each, StarletteRoute) and ":path}" not in each.path),
            *(
                StarletteRoute(
                    path, RouteEndpoint(server, routes), methods=[route.method for route in routes]
                )
                for path, routes in sorted(by_path.items(), key=lambda each: each[0].count("{"))
            ),
        ]
    )
    app = Starlette(
        routes=[table, *(each for each in special if each not in table.routes)],
        lifespan=server.run,
        exception_handlers={404: _answer_unknown_path, 405: _answer_wrong_method},
    )
    app.router.redirect_slashes = False
    return app


def _list_special_routes(server: HttpServer) -> list[BaseRoute]:
    """Return the routes that answer with something other than a JSON value: streams, sockets and pages."""
    paths = {route.path for route in server.routes}
    special: list[BaseRoute] = [
        StarletteRoute("/event", DirectoryEventsEndpoint(server), methods=["GET"]),
        StarletteRoute("/global/event", GlobalEventsEndpoint(server), methods=["GET"]),
        StarletteRoute("/weft/view/event", ViewEventsEndpoint(server), methods=["GET"]),
        StarletteRoute(PART_FILE, PartFileEndpoint(server), methods=["GET"]),
        StarletteRoute(SESSION_PAGE, SessionPageEndpoint(server), methods=["GET"]),
        StarletteRoute(LOGIN_PATH, LoginEndpoint(server.logins, server.tickets, server.attempts)),
        StarletteRoute("/", PageEndpoint(), methods=["GET"]),
        StarletteRoute(f"{PAGE_ROOT}{{path:path}}", PageEndpoint(), methods=["GET"]),
    ]
    if METRICS_PATH in paths:
        special.append(StarletteRoute(METRICS_PATH, MetricsEndpoint(server), methods=["GET"]))
    if f"{PTY}/connect" in paths:
        special.append(WebSocketRoute(f"{PTY}/connect", PtySocket(server)))
    if SHARE_PATH in paths:
        from weft.server.share_pages import (  # noqa: PLC0415  most servers show no shares
            MissingShareEndpoint,
            ShareDataEndpoint,
            ShareLiveEndpoint,
            SharePageCache,
            SharePageEndpoint,
        )

        pages = SharePageCache(server)
        special += [
            StarletteRoute(SHARE_PATH, SharePageEndpoint(pages), methods=["GET"]),
            StarletteRoute(f"{SHARE_PATH}/data", ShareDataEndpoint(pages), methods=["GET"]),
            StarletteRoute(f"{SHARE_PATH}/live", ShareLiveEndpoint(pages), methods=["GET"]),
            StarletteRoute(f"{SHARE_ROOT}{{shareID:path}}", MissingShareEndpoint(pages), methods=["GET"]),
        ]
    return special


class RouteEndpoint:
    """Answers the requests to one path, with one route for each method."""

    def __init__(self, server: HttpServer, routes: Iterable[Route]) -> None:
        self._server = server
        self._routes: dict[str, Route] = {route.method: route for route in routes}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes["GET" if scope["method"] == "HEAD" else scope["method"]]
        refusal = refuse_scope(route, get_caller(scope))
        if refusal is not None:
            await send_error(send, refusal)
            return
        if self._server.refuses(route):
            await send_error(send, make_error_response(EndingError()), RETRY_HEADERS)
            return
        try:
            result = await self._run(route, scope, receive)
        except BodyTooLargeError:
            await send_error(send, TOO_LARGE)
        except Exception as error:  # noqa: BLE001  report the error to this caller and keep serving the others
            response = make_error_response(error)
            self._server.event_metrics.store_errors += isinstance(error, StoreError)
            if response.ref is not None:
                self._server.note(f"{response.ref}: {type(error).__name__}: {error}")
            await send_error(send, response, RETRY_HEADERS if isinstance(error, EndingError) else None)
        else:
            await send_result(send, result)

    async def _run(self, route: Route, scope: Scope, receive: Receive) -> RouteResult:
        headers = read_headers(scope)
        fields = {
            "server": self._server,
            "path_params": scope["path_params"],
            "headers": headers,
            "path": scope["path"],
            "body": decode_body(route, await read_body(receive, headers), headers.get("content-type", "")),
            "directory": self._server.resolve_directory(scope),
            "query": decode_query(route.query, scope["query_string"]),
        }
        if route.server_only:
            value = await route.run(ServerCall(**fields))
        else:
            has_directory = bool(find_directory(scope["query_string"], headers))
            value = await self._run_in_directory(route, fields, has_directory=has_directory)
        if isinstance(value, RouteResult):
            return value
        return RouteResult(value=value, status=204 if route.returns is None else 200)

    async def _run_in_directory(self, route: Route, fields: dict[str, Any], *, has_directory: bool) -> Any:
        opened = await self._server.get_directory(fields["directory"])
        if "sessionID" in fields["path_params"] and not has_directory:
            session, default = SessionID(fields["path_params"]["sessionID"]), opened
            opened = await self._server.choose_directory(default, session, route)
            if opened is not default and route.method != "GET":
                opened.relays[session] = default.feed
                fields["directory"] = opened.directory
        with opened.use():
            value = await route.run(DirectoryCall(api=opened.api, **fields))
        if route.method != "GET":
            # Send the events of a call before its answer: a client that has the answer expects to have received the events.
            await self._server.flush_events(opened)
        return value


async def _answer_unknown_path(request: Request, _: Exception) -> Response:
    return _to_response(404, "NotFoundError", f"there is no path {request.url.path[:200]!r}")


async def _answer_wrong_method(request: Request, _: Exception) -> Response:
    return _to_response(405, "MethodError", f"{request.url.path[:200]!r} does not accept {request.method}")


def _to_response(status: int, name: str, message: str) -> Response:
    error = ErrorResponse(status=status, name=name, message=message)
    return Response(error.body(), status_code=status, media_type="application/json")


class MetricsEndpoint:
    """`GET /weft/metrics`: metrics in the text format of Prometheus."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        server = self._server
        directories = len(server.directories.list_open())
        lines = [
            *format_metric("weft_directories", "gauge", "Directories that are open.", directories),
            *format_metric(
                "weft_ending", "gauge", "Whether the server takes no more work.", server.shutting_down
            ),
            *server.event_metrics.lines(),
            *server.request_metrics.lines(),
            *await server.list_cluster_metrics(),
        ]
        headers = [
            (b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": ("\n".join(lines) + "\n").encode()})
