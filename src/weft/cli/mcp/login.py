"""`weft mcp auth` and `logout`: logins at MCP servers. No token is ever printed."""

import argparse
import asyncio
import os
import sys

from weft.cli.exit import Exit
from weft.cli.mcp.look import words_for
from weft.cli.mcp.opened import opened
from weft.cli.paint import plain
from weft.errors import McpError, NotFoundError
from weft.host.paths import paths_from
from weft.model.workspace import McpConnected
from weft.tool.mcp.login import Book


def log_in(chosen: argparse.Namespace) -> int:
    if chosen.name is None:
        return list_logins()
    return asyncio.run(_log_in(chosen))


def list_logins() -> int:
    names = Book(paths_from(os.environ).mcp_auth_file).list_names()
    for name in names:
        print(plain(name))
    if not names:
        print("there is no login at any MCP server: weft mcp auth NAME makes one", file=sys.stderr)
    return Exit.DONE


async def _log_in(chosen: argparse.Namespace) -> int:
    name = chosen.name
    async with opened(chosen) as api:
        address = await api.mcp.start_login(name)
        if address:
            print(f"log in to {plain(name)} here:\n\n  {plain(address)}\n", file=sys.stderr)
            print("waiting for the browser to come back (Ctrl-C ends it)", file=sys.stderr)
            status = await api.mcp.finish_login(name)
        else:
            status = (await api.mcp.list_servers())[name]
    if not isinstance(status, McpConnected):
        raise McpError(f"{name} is not connected: {words_for(name, status)}")
    print(f"{plain(name)} is connected")
    return Exit.DONE


def log_out(chosen: argparse.Namespace) -> int:
    book = Book(paths_from(os.environ).mcp_auth_file)
    if not book.remove(chosen.name):
        there = ", ".join(book.list_names())
        hint = f"there are {there}" if there else "there is none at all"
        raise NotFoundError("login at the MCP server", chosen.name, hint=hint)
    print(f"the login at {plain(chosen.name)} is forgotten")
    return Exit.DONE
