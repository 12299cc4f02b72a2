"""The MCP servers of a directory in this process, as front ends see them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from weft.app.mcp.servers import Base, McpSettings, read_server, to_configured
from weft.errors import ConflictError, InvalidInputError
from weft.host.browser import open_browser
from weft.host.tasks import open_tasks
from weft.model.around.place import AnyMcpStatus, McpConnected, McpResource
from weft.model.event import Event
from weft.model.surroundings import McpBrowserFailed, McpToolsChanged
from weft.tool.mcp.auth.book import Book
from weft.tool.mcp.auth.callback import open_callback, redirect_uri
from weft.tool.mcp.auth.login import PendingLogin
from weft.tool.mcp.entry import Patience, RemoteEntry
from weft.tool.mcp.library import Dialling
from weft.tool.mcp.pool import Pool, open_pool
from weft.tool.mcp.server import Server

Tell = Callable[[Event], Awaitable[None]]


class KeptServers:
    """`Mcp` over a pool."""

    def __init__(self, pool: Pool, book: Book, settings: McpSettings, base: Base, tell: Tell) -> None:
        self.pool = pool
        self._book = book
        self._settings = settings
        self._base = base
        self._tell = tell
        self._logins: dict[str, PendingLogin] = {}
        self._listening: dict[str, asyncio.Task[None]] = {}

    # --- as they stand ---

    async def list_servers(self, *, connect: bool = False) -> dict[str, AnyMcpStatus]:
        if connect:
            await self.pool.settled()
        return self.pool.list_status()

    async def list_resources(self) -> dict[str, McpResource]:
        return self.pool.list_resources()

    async def add_server(self, name: str, config: dict[str, Any]) -> AnyMcpStatus:
        said = read_server(name, config)
        if name in self.pool.servers:
            await self.pool.servers[name].leave()
        server = self.pool.put(to_configured(name, said, self._base, call=self._settings.call))
        return await self._settled(server) if said.enabled is not False else server.status

    async def connect(self, name: str) -> bool:
        return isinstance(await self._settled(self.pool.get(name)), McpConnected)

    async def disconnect(self, name: str) -> bool:
        await self.pool.get(name).leave()
        return True

    async def _settled(self, server: Server) -> AnyMcpStatus:
        server.begin()
        await server.settled()
        self.pool.note_said(server)  # by what is given back here
        return server.status

    # --- logging in ---

    async def start_login(self, name: str) -> str:
        server = self.pool.get(name)
        if not isinstance(server.entry, RemoteEntry) or server.entry.oauth is None:
            raise InvalidInputError("name", f"MCP server {name} does not support OAuth")
        await server.leave(off=False)
        self._logins[name] = login = PendingLogin()
        server.begin(login)
        listening = self._listening.pop(name, None)
        if listening is not None:
            listening.cancel()
        async with open_tasks() as tasks:
            settled = tasks.create_task(server.settled())
            either: list[asyncio.Future[Any]] = [settled, login.shown]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            settled.cancel()
        if not login.shown.done():
            login.shown.cancel()
            del self._logins[name]
            return ""
        self._listening[name] = self.pool.tasks.create_task(self._listen(server, login))
        await login.listened.wait()
        return login.shown.result()

    async def _listen(self, server: Server, login: PendingLogin) -> None:
        """Wait for the browser to come back. If the port is taken, the code can still be handed over."""
        try:
            async with open_callback(login, self._settings.port):
                login.listened.set()
                await server.settled()
        except OSError as error:
            login.trouble = error.strerror or str(error)
            login.listened.set()

    async def finish_login(self, name: str, code: str | None = None) -> AnyMcpStatus:
        server, login = self.pool.get(name), self._logins.get(name)
        if login is None:
            raise InvalidInputError("name", f"no login at {name} is under way", hint="start one first")
        if code is not None:
            login.take(code)
        elif login.trouble:
            raise ConflictError(
                "port",
                str(self._settings.port),
                f"cannot be listened at ({login.trouble}), and a browser comes back to it",
                hint="end the other login, or set experimental.weft.mcp.callbackPort",
            )
        await server.settled()
        self._logins.pop(name, None)
        return server.status

    async def log_in(self, name: str) -> AnyMcpStatus:
        url = await self.start_login(name)
        if not url:
            return self.pool.get(name).status
        if not await open_browser(url, self._base.environment):
            await self._tell(McpBrowserFailed(mcp_name=name, url=url))
        return await self.finish_login(name)

    async def remove_login(self, name: str) -> None:
        server = self.pool.get(name)
        await asyncio.to_thread(self._book.remove, name)
        self._logins.pop(name, None)
        if isinstance(server.entry, RemoteEntry):
            await server.leave(off=False)


@asynccontextmanager
async def open_mcp(
    settings: McpSettings, base: Base, tell: Tell, *, reserved: frozenset[str]
) -> AsyncIterator[KeptServers]:
    """The configured servers, none of them started (unless that is configured, too). Leaving ends them all."""

    async def changed(name: str) -> None:
        await tell(McpToolsChanged(server=name))

    book = Book(settings.auth_file)
    servers = tuple(
        to_configured(name, said, base, call=settings.call) for name, said in settings.servers.items()
    )
    dial = Dialling(book, redirect_uri(settings.port))
    patience = Patience(wait=settings.wait, notice=settings.notice)
    async with open_pool(servers, dial, changed, reserved=reserved, patience=patience) as pool:
        if settings.eager:
            pool.begin()
        yield KeptServers(pool, book, settings, base, tell)
