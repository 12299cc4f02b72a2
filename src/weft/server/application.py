"""The whole application: every route, the streams and the sockets, behind the door."""

from typing import Any

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.routing import Route as At

from weft.server.asgi import Server, build
from weft.server.listening import EventsOfAll, EventsOfOne
from weft.server.routes.pty import PTY, PtySocket


def build_app(server: Server) -> Any:
    """An ASGI application. Sockets are there if their routes are."""
    paths = {route.path for route in server.routes}
    more: list[BaseRoute] = [
        At("/event", EventsOfOne(server), methods=["GET"]),
        At("/global/event", EventsOfAll(server), methods=["GET"]),
    ]
    if f"{PTY}/connect" in paths:
        more.append(WebSocketRoute(f"{PTY}/connect", PtySocket(server)))
    return build(server, more)
