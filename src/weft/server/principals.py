"""The servers of principals. Each principal has a server of its own inside of this one: directories, sessions, events, terminals,
tickets and idempotency keys of one are out of reach of every other, so that no route can forget to ask whose they are."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from weft.model.principal import Caller
from weft.server.http_server import HttpServer

UNCHECKED_ADMIN_ROUTES: Final = frozenset({"pty.connect", "weft.metrics"})

BuildApp = Callable[[HttpServer], Any]


class PrincipalServer:
    """The server of one principal, for as long as its directories and limits stay as they are."""

    def __init__(self, caller: Caller, server: HttpServer, app: Any, tasks: asyncio.TaskGroup) -> None:
        self.caller = caller
        self.server = server
        self.app = app
        self._closing = asyncio.Event()
        self._ready = asyncio.Event()
        self._task = tasks.create_task(self._serve())

    async def _serve(self) -> None:
        async with self.server.run(self.app):
            self._ready.set()
            await self._closing.wait()

    async def wait_until_ready(self) -> None:
        await self._ready.wait()

    async def end(self) -> None:
        """Settle its runs, end its streams, and return when that is done."""
        if self._ready.is_set() and not self._closing.is_set():
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
        assert caller.principal is not None, "administrators use the main server"
        name, wanted = caller.principal.name, replace(caller, scope="run")
        opened = self._servers.get(name)
        if opened is None or opened.caller != wanted:
            async with self._locks.setdefault(name, asyncio.Lock()):
                opened = self._servers.get(name)
                if opened is not None and opened.caller != wanted:
                    await opened.end()
                if opened is None or opened.caller != wanted:
                    opened = self._servers[name] = self._open(wanted)
        await opened.wait_until_ready()
        return opened.app

    def _open(self, caller: Caller) -> PrincipalServer:
        main, principal = self._main, caller.principal
        assert principal is not None, "administrators use the main server"
        assert main.setup.open_for is not None, (
            "a server that checks tokens can open directories for principals"
        )
        setup = replace(
            main.setup,
            open=main.setup.open_for(caller),
            default_directory=principal.directories[0],
            allowed=principal.directories[1:],
            confined=True,
            tokens=None,
            cluster=None,  # the log has the events of everybody, and a node follows it once
        )
        # These have endpoints of their own, which do not ask for a scope. The other routes answer that they need another.
        routes = [route for route in main.routes if route.name not in UNCHECKED_ADMIN_ROUTES]
        server = HttpServer(setup, routes)
        server.event_metrics = main.event_metrics
        server.attempts = main.attempts
        server.shutting_down = main.shutting_down
        return PrincipalServer(caller, server, self._build(server), main.tasks)

    def list_servers(self) -> list[HttpServer]:
        return [each.server for each in self._servers.values()]

    async def shut_down(self, grace: float) -> None:
        """Take no more work, and close everything after the grace period."""
        await asyncio.gather(*(server.shut_down(grace) for server in self.list_servers()))

    async def end(self) -> None:
        await asyncio.gather(*(each.end() for each in self._servers.values()))
