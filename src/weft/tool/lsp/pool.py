"""Start language servers when a file of theirs turns up, and collect their diagnostics."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from msgspec import Struct

from weft.host.tasks import open_tasks
from weft.tool.diagnostic import Diagnostic, Diagnostics
from weft.tool.lsp.connection import PeerError
from weft.tool.lsp.server import Server
from weft.tool.lsp.servers import Known, launches_for
from weft.tool.programs import Ground

SILENT: Final = 2


class Patience(Struct, frozen=True, kw_only=True):
    """For how many seconds a call waits: for a server that is only starting, once; for what it thinks of a file; and
    for one that has had nothing to say of late."""

    warm: float = 5.0
    look: float = 3.0
    silent: float = 0.5


USUAL: Final = Patience()


class Watch:
    """A `Lookout` over language servers. One that breaks is not started again."""

    def __init__(
        self, servers: tuple[Known, ...], ground: Ground, tasks: asyncio.TaskGroup, patience: Patience
    ) -> None:
        self._known = servers
        self._patience = patience
        self._ground = ground
        self._tasks = tasks
        self._servers: dict[tuple[str, str], Server] = {}
        self._running: list[asyncio.Task[None]] = []
        self._waited: set[Server] = set()
        self._silent: dict[Server, int] = {}

    async def look(self, *paths: str) -> Diagnostics:
        async with asyncio.TaskGroup() as tasks:
            for path in dict.fromkeys(paths):
                for server in await self._for(path):
                    tasks.create_task(self._examine(server, path))
        found: dict[str, tuple[Diagnostic, ...]] = {}
        for server in self._servers.values():
            for path, diagnostics in server.diagnostics().items():
                found[path] = (*found.get(path, ()), *diagnostics)
        return found

    def warm(self, path: str) -> None:
        if any(path.lower().endswith(server.endings) for server in self._known):
            self._start(self._warm(path))

    async def ask(self, path: str, method: str, params: dict[str, Any]) -> list[Any] | None:
        servers = await self._for(path)
        answers = [await self._answer(server, path, method, params) for server in servers]
        return [each for answer in answers for each in answer] if servers else None

    def list_servers(self) -> list[tuple[str, str, bool]]:
        """Those that were started: name, the directory it looks after, whether it broke."""
        return [(name, root, server.is_broken) for (name, root), server in self._servers.items()]

    def close(self) -> None:
        for task in self._running:
            task.cancel()

    async def _for(self, path: str) -> list[Server]:
        """The servers for a file, started if need be."""
        launches = await asyncio.to_thread(lambda: list(launches_for(path, self._known, self._ground)))
        servers = []
        for launch in launches:
            key = (launch.name, launch.root)
            if key not in self._servers:
                self._servers[key] = Server(launch)
                self._start(self._servers[key].run())
            servers.append(self._servers[key])
        return [server for server in servers if not server.is_broken]

    def _start(self, life: Any) -> None:
        task = self._tasks.create_task(life)
        self._running.append(task)
        task.add_done_callback(self._running.remove)

    async def _warm(self, path: str) -> None:
        for server in await self._for(path):
            with suppress(PeerError):
                await server.ready()
                await server.show(path)

    async def _examine(self, server: Server, path: str) -> None:
        """Have one server look at a file, for as long as it deserves."""
        try:
            if not server.is_ready:
                await self._wait_once(server)
            quick = self._silent.get(server, 0) >= SILENT
            async with asyncio.timeout(self._patience.silent if quick else self._patience.look):
                await server.examine(path)
            self._silent[server] = 0
        except TimeoutError:
            # Some say nothing of a file that is well. They are not to cost seconds with every change.
            self._silent[server] = self._silent.get(server, 0) + 1
        except PeerError:
            pass

    async def _wait_once(self, server: Server) -> None:
        if server in self._waited:
            raise PeerError("it is still starting")
        self._waited.add(server)
        async with asyncio.timeout(self._patience.warm):
            await server.ready()

    async def _answer(self, server: Server, path: str, method: str, params: dict[str, Any]) -> list[Any]:
        try:
            await server.ready()
            await server.show(path)
            answer = await server.ask(method, params)
        except PeerError:
            return []
        return answer if isinstance(answer, list) else [] if answer is None else [answer]


@asynccontextmanager
async def open_lookout(
    servers: tuple[Known, ...], ground: Ground, patience: Patience = USUAL
) -> AsyncIterator[Watch]:
    """Nothing runs until a file asks for it. Leaving ends every server."""
    async with open_tasks() as tasks:
        watch = Watch(servers, ground, tasks, patience)
        try:
            yield watch
        finally:
            watch.close()
