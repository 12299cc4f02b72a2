"""MCP servers as configured, on their way to being connected. Those of an untrusted project are in no configuration."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from weft.config.provider_schema import McpLocal, McpOAuth, McpRemote, McpServer
from weft.config.schema import Config, Experimental, Own
from weft.errors import InvalidInputError
from weft.host.sandbox.wall import OPEN, Sandbox
from weft.tool.mcp.auth.callback import PORT
from weft.tool.mcp.entry import (
    CALL_SECONDS,
    CONNECT_SECONDS,
    WAIT_SECONDS,
    LocalEntry,
    OAuthTerms,
    RemoteEntry,
)
from weft.tool.mcp.pool import Configured

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
