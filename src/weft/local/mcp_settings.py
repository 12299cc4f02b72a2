"""The configured MCP servers, and how they are used and started."""

from collections.abc import Mapping

from msgspec import Struct

from weft.config.schema import Config, McpServerConfig
from weft.sandbox.policy import NO_SANDBOX, Sandbox
from weft.tool.mcp.contract import CALL_TIMEOUT_SECONDS, CALLBACK_PORT, START_WAIT_SECONDS


class McpSettings(Struct, frozen=True, kw_only=True):
    """The configured servers, and how they are used.

    A first run waits `wait` seconds for the servers (None: until each has connected or failed) and says so after `notice`
    seconds. A tool call waits `call` seconds. `eager` connects on opening. Logins are stored in `auth_file`; the browser
    returns to `port`.
    """

    servers: Mapping[str, McpServerConfig] = {}
    wait: float | None = START_WAIT_SECONDS
    notice: float = START_WAIT_SECONDS
    call: float = CALL_TIMEOUT_SECONDS
    eager: bool = False
    auth_file: str = ""
    port: int = CALLBACK_PORT


class McpLaunch(Struct, frozen=True, kw_only=True):
    """How local servers are started: directory, environment and sandbox."""

    directory: str
    environment: Mapping[str, str]
    sandbox: Sandbox = NO_SANDBOX


def to_mcp_settings(config: Config, *, auth_file: str, one_shot: bool) -> McpSettings:
    """Read the settings. A `one_shot` run waits for all servers: a server that connects later would be of no use."""
    experimental = config.experiments
    own = config.weft_settings.mcp
    defaults = McpSettings()
    return McpSettings(
        servers=config.mcp or {},
        wait=own.wait if own and own.wait is not None else (None if one_shot else defaults.wait),
        call=experimental.mcp_timeout / 1000 if experimental.mcp_timeout else defaults.call,
        eager=own is not None and own.eager is True,
        auth_file=auth_file,
        port=own.callback_port if own and own.callback_port else defaults.port,
    )


def list_enabled_servers(config: Config) -> list[str]:
    """Return the names of the servers that a run would start."""
    return [name for name, server in (config.mcp or {}).items() if server.enabled is not False]
