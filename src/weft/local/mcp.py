"""The configured MCP servers of a directory, as front ends see them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from msgspec import Struct

from weft.config.provider_schema import McpLocal, McpOAuth, McpRemote, McpServer
from weft.config.schema import Config, Experimental, Own
from weft.errors import ConflictError, InvalidInputError
from weft.host.machine import open_browser
from weft.host.tasks import open_tasks
from weft.model.event import Event
from weft.model.workspace import AnyMcpStatus, McpConnected, McpResource
from weft.model.workspace_event import McpBrowserFailed, McpToolsChanged
from weft.sandbox.policy import OPEN, Sandbox
from weft.tool.mcp.entry import (
    CALL_SECONDS,
    CONNECT_SECONDS,
    WAIT_SECONDS,
    LocalEntry,
    OAuthTerms,
    Patience,
    RemoteEntry,
)
from weft.tool.mcp.link import Dialling
from weft.tool.mcp.login import PORT, Book, PendingLogin, open_callback, redirect_uri
from weft.tool.mcp.pool import Configured, Pool, open_pool
from weft.tool.mcp.server import Server

LONGEST_NAME: Final = 100


class McpSettings(Struct, frozen=True, kw_only=True):
    """Which servers there are, how long a first run waits for them (None: until each has connected or failed) and when it
    says so, how long a call waits for an answer, whether to connect on opening; where logins are kept, and where they
    come back to."""

    servers: Mapping[str, McpServer] = {}
    wait: float | None = WAIT_SECONDS
    notice: float = WAIT_SECONDS
    call: float = CALL_SECONDS
    eager: bool = False
    auth_file: str = ""
    port: int = PORT


class Base(Struct, frozen=True, kw_only=True):
    """Where local servers are started, and what they see."""

    directory: str
    environment: Mapping[str, str]
    sandbox: Sandbox = OPEN


def to_mcp(config: Config, *, auth_file: str, one_shot: bool) -> McpSettings:
    """A `one_shot` run has no later step in which a server that was late could be of use: it waits for all of them."""
    experimental = config.experimental or Experimental()
    own = (experimental.weft or Own()).mcp
    usual = McpSettings()
    return McpSettings(
        servers=config.mcp or {},
        wait=own.wait if own and own.wait is not None else (None if one_shot else usual.wait),
        call=experimental.mcp_timeout / 1000 if experimental.mcp_timeout else usual.call,
        eager=own is not None and own.eager is True,
        auth_file=auth_file,
        port=own.callback_port if own and own.callback_port else usual.port,
    )


def list_enabled(config: Config) -> list[str]:
    """The servers that a run would have set out."""
    return [name for name, said in (config.mcp or {}).items() if said.enabled is not False]


def to_configured(name: str, said: McpServer, base: Base, *, call: float) -> Configured:
    """One server. A local one sees what a tool's process sees and what is named for it; OpenCode shows it everything,
    every provider's key among it."""
    seconds = said.timeout / 1000 if said.timeout else None
    times = {"connect": seconds or CONNECT_SECONDS, "call": seconds or call}
    enabled = said.enabled is not False
    match said:
        case McpLocal(command=command, environment=environment):
            return Configured(
                enabled=enabled,
                entry=LocalEntry(
                    name=name,
                    argv=base.sandbox.around(command) if command else (),
                    directory=base.directory,
                    environment={**base.environment, **(environment or {})},
                    refusal=base.sandbox.refusal or ("" if command else "its command is empty"),
                    **times,
                ),
            )
        case McpRemote(url=url, headers=headers, oauth=oauth):
            return Configured(
                enabled=enabled,
                entry=RemoteEntry(name=name, url=url, headers=headers or {}, oauth=_terms(oauth), **times),
            )


def _terms(said: McpOAuth | bool | None) -> OAuthTerms | None:
    if said is False:
        return None
    oauth = said if isinstance(said, McpOAuth) else McpOAuth()
    return OAuthTerms(
        client_id=oauth.client_id or "", client_secret=oauth.client_secret or "", scope=oauth.scope or ""
    )


def read_server(name: str, given: dict[str, Any]) -> McpServer:
    """A server that somebody names at run time. Raises `InvalidInputError`."""
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidInputError("name", f"{name[:80]!r} is no name of a server")
    try:
        found: McpServer = msgspec.convert(given, McpServer)
    except msgspec.ValidationError as error:
        raise InvalidInputError("config", str(error)) from error
    return found


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
