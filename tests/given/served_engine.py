"""An in-memory engine served over real HTTP in the event loop of the test, and a client for it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from msgspec import Struct

from given.engine import Engine, open_engine
from weft.api import Api
from weft.cli.serve import UvicornServer, to_uvicorn_config
from weft.client.api import RemoteApi, open_remote
from weft.client.http import ConnectionOptions
from weft.host.clock import SystemClock
from weft.provider.scripted import AnyMove
from weft.server.access import AccessPolicy
from weft.server.application import build_app
from weft.server.http_server import HttpServer, ServerSetup
from weft.server.routes.table import list_routes

OpenDirectory = Callable[[str], AbstractAsyncContextManager[Api]]


class ServedEngine(Struct, frozen=True, kw_only=True):
    """An engine, the URL that serves it, and a client."""

    url: str
    engine: Engine
    api: RemoteApi


@asynccontextmanager
async def open_server(
    open: OpenDirectory,
    *,
    name: str = "boot",
    port: int = 0,
    access: AccessPolicy | None = None,
    default_directory: str = "/nowhere",
) -> AsyncIterator[str]:
    """Run a server until the end of the block, and yield its URL."""
    setup = ServerSetup(
        open=open,
        default_directory=default_directory,
        access=access or AccessPolicy(password=None),
        name=name,
        note=print,
        now=SystemClock().now,
    )
    server = HttpServer(setup, list_routes())
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))
        bound.listen(128)
        listener = UvicornServer(to_uvicorn_config(build_app(server)))
        serving = asyncio.ensure_future(listener.serve(sockets=[bound]))
        await listener.ready.wait()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            await server.shut_down()
            listener.should_exit = True
            await serving


def always_open(engine: Engine) -> OpenDirectory:
    """Return an opener that yields the same engine for every directory, and does not close it."""

    @asynccontextmanager
    async def opened(_: str) -> AsyncIterator[Api]:
        yield engine.api

    return opened


@asynccontextmanager
async def open_served_engine(
    *script: Sequence[AnyMove], options: ConnectionOptions | None = None, **more: Any
) -> AsyncIterator[ServedEngine]:
    async with (
        open_engine(*script, **{"clock": SystemClock(), **more}) as engine,
        open_server(always_open(engine)) as url,
        open_remote(url, options or ConnectionOptions(), env={}) as api,
    ):
        yield ServedEngine(url=url, engine=engine, api=api)
