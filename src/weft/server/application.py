"""The whole application: every route, the streams and the sockets, behind the door."""

from typing import Any

from starlette.routing import BaseRoute, WebSocketRoute
from starlette.routing import Route as At

from weft.server.asgi import Server, build
from weft.server.pages import SHARE, SHARES, Data, Gallery, Live, Nothing, Page
from weft.server.routes.pty import PTY, PtySocket
from weft.server.streams import EventsOfAll, EventsOfOne, Numbers


def build_app(server: Server) -> Any:
    """An ASGI application. Sockets are there if their routes are."""
    paths = {route.path for route in server.routes}
    more: list[BaseRoute] = [
        At("/event", EventsOfOne(server), methods=["GET"]),
        At("/global/event", EventsOfAll(server), methods=["GET"]),
        At("/weft/metrics", Numbers(server), methods=["GET"]),
    ]
    if f"{PTY}/connect" in paths:
        more.append(WebSocketRoute(f"{PTY}/connect", PtySocket(server)))
    if SHARE in paths:
        gallery = Gallery(server)
        more += [
            At(SHARE, Page(gallery), methods=["GET"]),
            At(f"{SHARE}/data", Data(gallery), methods=["GET"]),
            At(f"{SHARE}/live", Live(gallery), methods=["GET"]),
            At(f"{SHARES}{{shareID:path}}", Nothing(gallery), methods=["GET"]),
        ]
    return build(server, more)
