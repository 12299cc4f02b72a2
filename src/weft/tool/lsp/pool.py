"""Start language servers when they are first needed, and collect their diagnostics."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct

from weft.tool.diagnostic import Diagnostic, Diagnostics
from weft.tool.lsp.connection import LanguageServerError
from weft.tool.lsp.known_servers import KnownServer, find_launches
from weft.tool.lsp.server import LanguageServer
from weft.tool.programs import ProgramContext

SILENT_LOOKS: Final = 2


class LspTimeouts(Struct, frozen=True, kw_only=True):
    """How many seconds a call waits.

    `warm` applies once to a server that is starting, `look` to the diagnostics of a file, and `silent` to a server that
    did not report anything lately.
    """

    warm: float = 5.0
    look: float = 3.0
    silent: float = 0.5


DEFAULT_TIMEOUTS: Final = LspTimeouts()


class LanguageServerPool:
    """The language servers of a directory, started on demand in tasks of the given group. One that breaks is not started again.

    `close` ends all of them.
    """

    def __init__(
        self,
        servers: tuple[KnownServer, ...],
        context: ProgramContext,
        tasks: asyncio.TaskGroup,
        timeouts: LspTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._known = servers
        self._timeouts = timeouts
        self._context = context
        self._tasks = tasks
        self._servers: dict[tuple[str, str], LanguageServer] = {}
        self._running: list[asyncio.Task[None]] = []
        self._waited: set[LanguageServer] = set()
        self._silent: dict[LanguageServer, int] = {}

    async def diagnose(self, *paths: str) -> Diagnostics:
        async with asyncio.TaskGroup() as tasks:
            for path in dict.fromkeys(paths):
                for server in await self._for(path):
                    tasks.create_task(self._examine(server, path))
        found: dict[str, tuple[Diagnostic, ...]] = {}
        for server in self._servers.values():
            for path, diagnostics in server.diagnostics().items():
                found[path] = (*found.get(path, ()), *diagnostics)
        return found

    def warm_up(self, path: str) -> None:
        if any(path.lower().endswith(server.endings) for server in self._known):
            self._start(self._warm(path))

    async def request(self, path: str, method: str, params: dict[str, Any]) -> list[Any] | None:
        servers = await self._for(path)
        answers = [await self._answer(server, path, method, params) for server in servers]
        return [each for answer in answers for each in answer] if servers else None

    def list_servers(self) -> list[tuple[str, str, bool]]:
        """Return the servers that were started: name, root directory, and whether it broke."""
        return [(name, root, server.is_broken) for (name, root), server in self._servers.items()]

    def close(self) -> None:
        for task in self._running:
            task.cancel()

    async def _for(self, path: str) -> list[LanguageServer]:
        """Return the servers for a file, starting them if necessary."""
        launches = await asyncio.to_thread(lambda: list(find_launches(path, self._known, self._context)))
        servers = []
        for launch in launches:
            key = (launch.name, launch.root)
            if key not in self._servers:
                self._servers[key] = LanguageServer(launch)
                self._start(self._servers[key].run())
            servers.append(self._servers[key])
        return [server for server in servers if not server.is_broken]

    def _start(self, coroutine: Any) -> None:
        task = self._tasks.create_task(coroutine)
        self._running.append(task)
        task.add_done_callback(self._running.remove)

    async def _warm(self, path: str) -> None:
        for server in await self._for(path):
            with suppress(LanguageServerError):
                await server.ready()
                await server.show(path)

    async def _examine(self, server: LanguageServer, path: str) -> None:
        """Let one server check a file, within its time limit."""
        try:
            if not server.is_ready:
                await self._wait_once(server)
            is_silent = self._silent.get(server, 0) >= SILENT_LOOKS
            async with asyncio.timeout(self._timeouts.silent if is_silent else self._timeouts.look):
                await server.examine(path)
            self._silent[server] = 0
        except TimeoutError:
            # Some servers report nothing for a file without problems. They must not delay every change by seconds.
            self._silent[server] = self._silent.get(server, 0) + 1
        except LanguageServerError:
            pass

    async def _wait_once(self, server: LanguageServer) -> None:
        if server in self._waited:
            raise LanguageServerError("it is still starting")
        self._waited.add(server)
        async with asyncio.timeout(self._timeouts.warm):
            await server.ready()

    async def _answer(
        self, server: LanguageServer, path: str, method: str, params: dict[str, Any]
    ) -> list[Any]:
        try:
            await server.ready()
            await server.show(path)
            answer = await server.ask(method, params)
        except LanguageServerError:
            return []
        return answer if isinstance(answer, list) else [] if answer is None else [answer]
