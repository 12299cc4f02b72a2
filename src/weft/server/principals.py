"""The servers of principals. Each principal has a server of its own inside of this one: directories, sessions, events, terminals,
tickets and idempotency keys of one are out of reach of every other, so that no route can forget to ask whose they are."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

from msgspec.structs import replace

from weft.api import Api
from weft.api.cluster import Cluster
from weft.errors import NotFoundError, WeftError
from weft.model.principal import Caller
from weft.server.http_server import HttpServer

UNCHECKED_ADMIN_ROUTES: Final = frozenset({"pty.connect", "weft.metrics"})

BuildApp = Callable[[HttpServer], Any]


class PrincipalServer:
    """The server of one principal, for as long as its directories and limits stay as they are."""

    def __init__(self, caller: Caller, main: HttpServer, build: BuildApp) -> None:
        self.caller = caller
        self._main = main
        self._build = build
        self._closing = asyncio.Event()
        self._opened: asyncio.Future[tuple[HttpServer, Any]] = asyncio.get_running_loop().create_future()
        self._task = main.tasks.create_task(self._serve())

    async def _serve(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                open_cluster, cluster = self._main.setup.open_cluster, None
                if open_cluster is not None:
                    cluster = await stack.enter_async_context(open_cluster(self.caller))
                server = self._make_server(cluster)
                app = self._build(server)
                await stack.enter_async_context(server.run(app))
                self._opened.set_result((server, app))
                await self._closing.wait()
        except WeftError as error:  # the database does not answer: the next request tries again
            if self._opened.done():
                raise
            self._opened.set_exception(error)
            self._opened.exception()  # marks it as retrieved: perhaps nobody waits

    def _make_server(self, cluster: Cluster | None) -> HttpServer:
        main, principal = self._main, self.caller.principal
        assert principal is not None, "administrators use the main server"
        assert main.setup.open_for is not None, (
            "a server that checks tokens can open directories for principals"
        )
        setup = replace(
            main.setup,
            open=main.setup.open_for(self.caller),
            default_directory=principal.directories[0],
            allowed=principal.directories[1:],
            confined=True,
            tokens=None,
            cluster=cluster,
            change_log=None,
        )
        # These have endpoints of their own, which check no scope, so they are left out. All other routes check it.
        routes = [route for route in main.routes if route.name not in UNCHECKED_ADMIN_ROUTES]
        server = HttpServer(setup, routes)
        server.event_metrics = main.event_metrics
        server.attempts = main.attempts
        server.shutting_down = main.shutting_down
        return server

    @property
    def has_failed(self) -> bool:
        return self._opened.done() and self._opened.exception() is not None

    @property
    def server(self) -> HttpServer | None:
        """The server, None until it is open."""
        return self._opened.result()[0] if self._opened.done() and not self.has_failed else None

    async def wait_until_open(self) -> tuple[HttpServer, Any]:
        """Return the server and its application. Raise `StoreError` if it cannot be opened."""
        return await asyncio.shield(self._opened)

    async def end(self) -> None:
        """Settle its runs, end its streams, and return when that is done."""
        if self.server is not None and not self._closing.is_set():
            await self.server.shut_down()
        self._closing.set()
        await asyncio.wait([self._task])


class PrincipalServers:
    """Opens the server of a principal with its first request. The server is opened anew if its principal was changed."""

    def __init__(self, main: HttpServer, build: BuildApp) -> None:
        self._main = main
        self._build = build
        self._servers: dict[str, PrincipalServer] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def get_app(self, caller: Caller) -> Any:
        """Return the application that answers requests of a principal."""
        return (await self._get(caller))[1]

    async def get_api(self, principal: str, directory: str) -> Api:
        """Return the `Api` of a directory for a principal, for a request that it made on another node.

        Raise `NotFoundError` if there is no such principal, `DirectoryNotServedError` if it may not work there.
        """
        tokens = self._main.tokens
        caller = None if tokens is None else await tokens.find_principal(principal)
        if caller is None:
            raise NotFoundError("principal", principal)
        server, _ = await self._get(caller)
        return (await server.get_directory(directory)).api

    async def _get(self, caller: Caller) -> tuple[HttpServer, Any]:
        assert caller.principal is not None, "administrators use the main server"
        name, wanted = caller.principal.name, replace(caller, scope="run")
        opened = self._servers.get(name)
        if opened is None or opened.caller != wanted or opened.has_failed:
            async with self._locks.setdefault(name, asyncio.Lock()):
                opened = self._servers.get(name)
                if opened is not None and opened.caller != wanted:
                    await opened.end()
                if opened is None or opened.caller != wanted or opened.has_failed:
                    opened = self._servers[name] = PrincipalServer(wanted, self._main, self._build)
        return await opened.wait_until_open()

    def list_servers(self) -> list[HttpServer]:
        return [each.server for each in self._servers.values() if each.server is not None]

    async def shut_down(self, grace: float) -> None:
        """Take no more work, and close everything after the grace period."""
        await asyncio.gather(*(server.shut_down(grace) for server in self.list_servers()))

    async def end(self) -> None:
        await asyncio.gather(*(each.end() for each in self._servers.values()))
