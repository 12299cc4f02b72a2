"""`weft mcp list` and `debug`: the MCP servers there are, how they stand, and what one of them brings."""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from typing import Any

from weft.cli.exit import Exit
from weft.cli.mcp.opened import opened
from weft.cli.paint import Paint, plain, write_json
from weft.cli.table import to_table
from weft.errors import NotFoundError
from weft.local.api import Local
from weft.model.wire import to_plain
from weft.model.workspace import (
    AnyMcpStatus,
    McpConnected,
    McpDisabled,
    McpFailed,
    McpNeedsAuth,
    McpNeedsRegistration,
)

NONE = "no MCP servers are configured: weft mcp add --help says how"


def list_servers(chosen: argparse.Namespace) -> int:
    return asyncio.run(_list(chosen))


async def _list(chosen: argparse.Namespace) -> int:
    async with opened(chosen) as api:
        found = await api.mcp.list_servers(connect=True)
    if chosen.format == "json":
        write_json(to_plain(found))
        return Exit.DONE
    if not found:
        print(NONE, file=sys.stderr)
        return Exit.DONE
    rows = [
        (plain(name), status_word(status), plain(words_for(name, status))) for name, status in found.items()
    ]
    print("\n".join(to_table(("server", "status", ""), rows, Paint(sys.stdout))))
    return Exit.DONE


def status_word(status: AnyMcpStatus) -> str:
    match status:
        case McpConnected():
            return "connected"
        case McpDisabled():
            return "off"
        case McpFailed():
            return "failed"
        case McpNeedsAuth():
            return "needs a login"
        case McpNeedsRegistration():
            return "needs a client id"


def words_for(name: str, status: AnyMcpStatus) -> str:
    """Why it stands so, and the way out."""
    match status:
        case McpConnected(note=note) | McpDisabled(note=note):
            return note or ""
        case McpFailed(error=error):
            return error
        case McpNeedsAuth():
            return f"weft mcp auth {name}"
        case McpNeedsRegistration(error=error):
            return f'set mcp.{name}.oauth to {{"clientId": "…"}} ({error})'


def debug_server(chosen: argparse.Namespace) -> int:
    return asyncio.run(_debug(chosen))


async def _debug(chosen: argparse.Namespace) -> int:
    async with opened(chosen) as api:
        if chosen.name not in await api.mcp.list_servers():
            there = ", ".join(await api.mcp.list_servers())
            raise NotFoundError("MCP server", chosen.name, hint=f"there are {there or 'none'}")
        is_there = await api.mcp.connect(chosen.name)
        found = await _gathered(api, chosen.name)
    if chosen.format == "json":
        write_json(found)
    else:
        print("\n".join(_lines(chosen.name, found, Paint(sys.stdout))))
    return Exit.DONE if is_there else Exit.FAILED


async def _gathered(api: Local, name: str) -> dict[str, Any]:
    status = (await api.mcp.list_servers())[name]
    tools = [tool for tool in await api.surroundings.list_tools() if tool.id in api.kit.guests.tools()]
    own = {command.name for command in api.kit.commands.values()}
    return {
        "status": to_plain(status),
        "words": words_for(name, status),
        "tools": [to_plain(tool) for tool in tools],
        "prompts": [to_plain(each) for each in await api.list_commands() if each.name not in own],
        "resources": {key: to_plain(each) for key, each in (await api.mcp.list_resources()).items()},
    }


def _lines(name: str, found: dict[str, Any], paint: Paint) -> Iterator[str]:
    words = f": {plain(found['words'])}" if found["words"] else ""
    yield f"{paint.bold(plain(name))} {found['status']['status']}{words}"
    for kind, each in (
        ("tools", [(tool["id"], tool["description"]) for tool in found["tools"]]),
        ("prompts", [(_usage(prompt), prompt.get("description", "")) for prompt in found["prompts"]]),
        ("resources", [(key, value["uri"]) for key, value in found["resources"].items()]),
    ):
        if each:
            yield ""
            yield paint.dim(kind)
            yield from (f"  {plain(key):<32} {_short(about)}" for key, about in each)


def _usage(prompt: dict[str, Any]) -> str:
    """How a prompt is called: with its arguments, those in brackets that may be left out."""
    takes = [
        f"{each['name']}=…" if each.get("required") else f"[{each['name']}=…]"
        for each in prompt.get("arguments", ())
    ]
    return " ".join([prompt["name"], *takes])


def _short(text: str) -> str:
    line = plain(" ".join(text.split()))
    return line if len(line) <= 80 else line[:79] + "…"  # noqa: PLR2004  the width of a screen
