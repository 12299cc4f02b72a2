"""MCP servers that an editor brings along: for as long as its directory is open, beside those that are configured."""

import asyncio
from collections.abc import Sequence
from typing import Any

from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer

from weft.errors import WeftError
from weft.model.around.place import AnyMcpStatus, McpConnected
from weft.outlook import Mcp

Brought = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio


def to_config(server: Brought) -> dict[str, Any] | None:
    """As one is configured in `opencode.json`; None for one that is reached through the editor, which weft is not."""
    match server:
        case McpServerStdio(command=command, args=args, env=env):
            environment = {each.name: each.value for each in env}
            return {"type": "local", "command": [command, *args], "environment": environment}
        case HttpMcpServer(url=url, headers=headers) | SseMcpServer(url=url, headers=headers):
            return {"type": "remote", "url": url, "headers": {each.name: each.value for each in headers}}
        case AcpMcpServer():
            return None


async def bring(mcp: Mcp, servers: Sequence[Brought]) -> list[str]:
    """Connect them, and give what there is to say of those that are not. One that is known by its name stays as it is:
    an editor brings the same ones to every session."""
    if not servers:
        return []
    known = await mcp.list_servers()
    said = await asyncio.gather(*(_bring(mcp, each) for each in servers if each.name not in known))
    return [words for words in said if words]


async def _bring(mcp: Mcp, server: Brought) -> str:
    config = to_config(server)
    if config is None:
        return f"MCP server {server.name}: weft cannot reach servers through the editor."
    try:
        return _trouble(server.name, await mcp.add_server(server.name, config))
    except WeftError as error:
        return f"MCP server {server.name}: {error}"


def _trouble(name: str, status: AnyMcpStatus) -> str:
    if isinstance(status, McpConnected):
        return ""
    why = getattr(status, "error", "") or str(status.__struct_config__.tag).replace("_", " ")
    return f"MCP server {name} is not connected: {why}"
