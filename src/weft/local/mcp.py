"""The configured MCP servers of a directory, as front ends see them."""

import asyncio
from typing import Any, Final

import msgspec

from weft.config.schema import McpLocalConfig, McpOAuthConfig, McpRemoteConfig, McpServerConfig
from weft.errors import ConflictError, InvalidInputError
from weft.host.machine import open_browser
from weft.host.tasks import open_tasks
from weft.local.mcp_settings import McpLaunch, McpSettings
from weft.model.event import Publish
from weft.model.workspace import AnyMcpStatus, McpConnected, McpResource
from weft.model.workspace_event import McpBrowserFailed, McpToolsChanged
from weft.tool.mcp.connection import SdkConnector
from weft.tool.mcp.contract import CONNECT_TIMEOUT_SECONDS, McpTimeouts
from weft.tool.mcp.entry import LocalEntry, OAuthSettings, RemoteEntry
from weft.tool.mcp.login import McpLoginStore, PendingLogin, make_redirect_uri, open_callback
from weft.tool.mcp.pool import ConfiguredServer, McpPool
from weft.tool.mcp.server import McpServerContext, McpServerRunner

MAX_NAME_LENGTH: Final = 100


def to_configured_server(
    name: str, config: McpServerConfig, launch: McpLaunch, *, call: float
) -> ConfiguredServer:
    """Return the entry of a server.

    A local server gets the environment of tools and its own variables. OpenCode gives it the whole environment, with the
    keys of all providers.
    """
    seconds = config.timeout / 1000 if config.timeout else None
    times = {"connect": seconds or CONNECT_TIMEOUT_SECONDS, "call": seconds or call}
    enabled = config.enabled is not False
    match config:
        case McpLocalConfig(command=command, environment=environment):
            return ConfiguredServer(
                enabled=enabled,
                entry=LocalEntry(
                    name=name,
                    argv=launch.sandbox.wrap(command) if command else (),
                    directory=launch.directory,
                    environment={**launch.environment, **(environment or {})},
                    refusal=launch.sandbox.refusal or ("" if command else "the command is empty"),
                    **times,
                ),
            )
        case McpRemoteConfig(url=url, headers=headers, oauth=oauth):
            return ConfiguredServer(
                enabled=enabled,
                entry=RemoteEntry(
                    name=name, url=url, headers=headers or {}, oauth=_to_oauth_settings(oauth), **times
                ),
            )


def _to_oauth_settings(config: McpOAuthConfig | bool | None) -> OAuthSettings | None:
    if config is False:
        return None
    oauth = config if isinstance(config, McpOAuthConfig) else McpOAuthConfig()
    return OAuthSettings(
        client_id=oauth.client_id or "", client_secret=oauth.client_secret or "", scope=oauth.scope or ""
    )


def parse_server(name: str, given: dict[str, Any]) -> McpServerConfig:
    """Check a server that is added at run time. Raise `InvalidInputError` if it is not valid."""
    if not name.strip() or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidInputError("name", f"{name[:80]!r} is not a valid server name")
    try:
        found: McpServerConfig = msgspec.convert(given, McpServerConfig)
    except msgspec.ValidationError as error:
        raise InvalidInputError("config", str(error)) from error
    return found


class LocalMcp:
    """The MCP servers of a directory, over a pool of connections."""

    def __init__(
        self,
        pool: McpPool,
        login_store: McpLoginStore,
        settings: McpSettings,
        launch: McpLaunch,
        publish: Publish,
    ) -> None:
        self.pool = pool
        self._login_store = login_store
        self._settings = settings
        self._launch = launch
        self._publish = publish
        self._logins: dict[str, PendingLogin] = {}
        self._listening: dict[str, asyncio.Task[None]] = {}

    # --- servers ---

    async def list_servers(self, *, connect: bool = False) -> dict[str, AnyMcpStatus]:
        if connect:
            await self.pool.wait_until_settled()
        return self.pool.list_status()

    async def list_resources(self) -> dict[str, McpResource]:
        return self.pool.list_resources()

    async def add_server(self, name: str, config: dict[str, Any]) -> AnyMcpStatus:
        parsed = parse_server(name, config)
        if name in self.pool.servers:
            await self.pool.servers[name].disconnect()
        server = self.pool.put(to_configured_server(name, parsed, self._launch, call=self._settings.call))
        return await self._connect(server) if parsed.enabled is not False else server.status

    async def connect(self, name: str) -> bool:
        return isinstance(await self._connect(self.pool.get(name)), McpConnected)

    async def disconnect(self, name: str) -> bool:
        await self.pool.get(name).disconnect()
        return True

    async def _connect(self, server: McpServerRunner) -> AnyMcpStatus:
        server.start_connecting()
        await server.wait_until_settled()
        self.pool.mark_reported(server)  # the caller gets the status, so it need not be reported again
        return server.status

    # --- logging in ---

    async def start_login(self, name: str) -> str:
        server = self.pool.get(name)
        if not isinstance(server.entry, RemoteEntry) or server.entry.oauth is None:
            raise InvalidInputError("name", f"MCP server {name} does not support OAuth")
        await server.disconnect(off=False)
        self._logins[name] = login = PendingLogin()
        server.start_connecting(login)
        listening = self._listening.pop(name, None)
        if listening is not None:
            listening.cancel()
        async with open_tasks() as tasks:
            settled = tasks.create_task(server.wait_until_settled())
            futures: list[asyncio.Future[Any]] = [settled, login.url]
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
            settled.cancel()
        if not login.url.done():
            login.url.cancel()
            del self._logins[name]
            return ""
        self._listening[name] = self.pool.tasks.create_task(self._listen(server, login))
        await login.listening.wait()
        return login.url.result()

    async def _listen(self, server: McpServerRunner, login: PendingLogin) -> None:
        """Wait for the browser to return. If the port is in use, the person can still enter the code."""
        try:
            async with open_callback(login, self._settings.port):
                login.listening.set()
                await server.wait_until_settled()
        except OSError as error:
            login.listen_error = error.strerror or str(error)
            login.listening.set()

    async def finish_login(self, name: str, code: str | None = None) -> AnyMcpStatus:
        server, login = self.pool.get(name), self._logins.get(name)
        if login is None:
            raise InvalidInputError("name", f"no login at {name} was started", hint="start one first")
        if code is not None:
            login.accept_code(code)
        elif login.listen_error:
            raise ConflictError(
                "port",
                str(self._settings.port),
                f"cannot be opened ({login.listen_error}), but the browser returns to it",
                hint="end the other login, or set experimental.weft.mcp.callbackPort",
            )
        await server.wait_until_settled()
        self._logins.pop(name, None)
        return server.status

    async def log_in(self, name: str) -> AnyMcpStatus:
        url = await self.start_login(name)
        if not url:
            return self.pool.get(name).status
        if not await open_browser(url, self._launch.environment):
            await self._publish(McpBrowserFailed(mcp_name=name, url=url))
        return await self.finish_login(name)

    async def remove_login(self, name: str) -> None:
        server = self.pool.get(name)
        await asyncio.to_thread(self._login_store.remove, name)
        self._logins.pop(name, None)
        if isinstance(server.entry, RemoteEntry):
            await server.disconnect(off=False)


def make_mcp(
    settings: McpSettings,
    launch: McpLaunch,
    publish: Publish,
    tasks: asyncio.TaskGroup,
    *,
    reserved: frozenset[str],
) -> LocalMcp:
    """Return the configured servers, which run in tasks of the given group. They connect now only if `settings.eager` is set."""

    async def report_changed(name: str) -> None:
        await publish(McpToolsChanged(server=name))

    login_store = McpLoginStore(settings.auth_file)
    connector = SdkConnector(login_store, make_redirect_uri(settings.port))
    context = McpServerContext(connector=connector, on_change=report_changed, tasks=tasks)
    timeouts = McpTimeouts(wait=settings.wait, notice=settings.notice)
    pool = McpPool(context, reserved, timeouts)
    for name, config in settings.servers.items():
        pool.put(to_configured_server(name, config, launch, call=settings.call))
    if settings.eager:
        pool.start_connecting()
    return LocalMcp(pool, login_store, settings, launch, publish)
