"""Start language servers when they are first needed, and collect their diagnostics."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct

from weft.tool.language_servers import Diagnostic, Diagnostics
from weft.tool.lsp.connection import LanguageServerError
from weft.tool.lsp.known_servers import KnownServer, find_launches
from weft.tool.lsp.server import LanguageServer
from weft.tool.programs import ProgramContext

# A server that let this many calls in a row time out counts as silent.
SILENT_AFTER_TIMEOUTS: Final = 2


class LspTimeouts(Struct, frozen=True, kw_only=True):
    """How many seconds a call waits.

    `start` applies once to a server that is starting, `diagnosis` to the diagnostics of a file, and `silent` to the
    diagnostics of a server that did not report any lately.
    """

    start: float = 5.0
    diagnosis: float = 3.0
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
        self._known_servers = servers
        self._timeouts = timeouts
        self._context = context
        self._tasks = tasks
        self._servers: dict[tuple[str, str], LanguageServer] = {}
        self._running_tasks: list[asyncio.Task[None]] = []
        self._waited: set[LanguageServer] = set()
        self._timeout_counts: dict[LanguageServer, int] = {}

    async def diagnose(self, *paths: str) -> Diagnostics:
        async with asyncio.TaskGroup() as tasks:
            for path in dict.fromkeys(paths):
                for server in await self._get_servers(path):
                    tasks.create_task(self._diagnose_file(server, path))
        all_diagnostics: dict[str, tuple[Diagnostic, ...]] = {}
        for server in self._servers.values():
            for path, diagnostics in server.list_diagnostics().items():
                all_diagnostics[path] = (*all_diagnostics.get(path, ()), *diagnostics)
        return all_diagnostics

    def warm_up(self, path: str) -> None:
        if any(path.lower().endswith(server.extensions) for server in self._known_servers):
            self._start(self._warm_up_file(path))

    async def request(self, path: str, method: str, params: dict[str, Any]) -> list[Any] | None:
        servers = await self._get_servers(path)
        answers = [await self._request_from(server, path, method, params) for server in servers]
        return [item for answer in answers for item in answer] if servers else None

    def list_servers(self) -> list[tuple[str, str, bool]]:
        """Return the servers that were started: name, root directory, and whether it broke."""
        return [(name, root, server.is_broken) for (name, root), server in self._servers.items()]

    def close(self) -> None:
        for task in self._running_tasks:
            task.cancel()

    async def _get_servers(self, path: str) -> list[LanguageServer]:
        """Return the servers for a file, starting them if necessary."""
        launches = await asyncio.to_thread(
            lambda: list(find_launches(path, self._known_servers, self._context))
        )
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
        self._running_tasks.append(task)
        task.add_done_callback(self._running_tasks.remove)

    async def _warm_up_file(self, path: str) -> None:
        for server in await self._get_servers(path):
            with suppress(LanguageServerError):
                await server.wait_until_ready()
                await server.send_file(path)

    async def _diagnose_file(self, server: LanguageServer, path: str) -> None:
        """Let one server check a file, within a time limit. Ignore failures."""
        try:
            if not server.is_ready:
                await self._wait_for_start(server)
            is_silent = self._timeout_counts.get(server, 0) >= SILENT_AFTER_TIMEOUTS
            async with asyncio.timeout(self._timeouts.silent if is_silent else self._timeouts.diagnosis):
                await server.diagnose(path)
            self._timeout_counts[server] = 0
        except TimeoutError:
            # Some servers report nothing for a file without problems. They must not delay every change by seconds.
            self._timeout_counts[server] = self._timeout_counts.get(server, 0) + 1
        except LanguageServerError:
            pass

    async def _wait_for_start(self, server: LanguageServer) -> None:
        """Wait for a server that is starting, but only once for each server."""
        if server in self._waited:
            raise LanguageServerError("it is still starting")
        self._waited.add(server)
        async with asyncio.timeout(self._timeouts.start):
            await server.wait_until_ready()

    async def _request_from(
        self, server: LanguageServer, path: str, method: str, params: dict[str, Any]
    ) -> list[Any]:
        try:
            await server.wait_until_ready()
            await server.send_file(path)
            answer = await server.request(method, params)
        except LanguageServerError:
            return []
        return answer if isinstance(answer, list) else [] if answer is None else [answer]
