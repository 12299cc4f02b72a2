"""`weft mcp add`: a server into the configuration."""

import argparse
import asyncio
from typing import Any

from weft.cli.exit import Exit
from weft.cli.mcp.opened import opened
from weft.cli.paint import plain
from weft.errors import ConflictError, InvalidInputError


def add_server(chosen: argparse.Namespace) -> int:
    return asyncio.run(_add(chosen, to_entry(chosen)))


async def _add(chosen: argparse.Namespace, entry: dict[str, Any]) -> int:
    async with opened(chosen) as api:
        if chosen.name in await api.mcp.list_servers():
            # What is said twice is merged: headers and variables of the old one would go to the new one.
            raise ConflictError(
                "MCP server",
                chosen.name,
                "is configured already",
                hint="choose another name, or change it where weft config says that it stands",
            )
        await api.configuration.update({"mcp": {chosen.name: entry}}, own=not chosen.project)
    print(f"{plain(chosen.name)} is configured; weft mcp debug {plain(chosen.name)} connects to it")
    return Exit.DONE


def to_entry(chosen: argparse.Namespace) -> dict[str, Any]:
    """A server as the configuration has it: a program, or an address."""
    if bool(chosen.url) == bool(chosen.command):
        raise InvalidInputError(
            "command",
            "a server is either a program or an address",
            hint="weft mcp add NAME -- PROGRAM ARGUMENTS…, or weft mcp add NAME --url URL",
        )
    if chosen.url:
        if not chosen.url.startswith(("http://", "https://")):
            raise InvalidInputError("--url", f"{chosen.url!r} is no http address")
        headers = _pairs("--header", chosen.header)
        return {"type": "remote", "url": chosen.url, **({"headers": headers} if headers else {})}
    environment = _pairs("--env", chosen.env)
    more = {"environment": environment} if environment else {}
    return {"type": "local", "command": chosen.command, **more}


def _pairs(option: str, given: list[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise InvalidInputError(option, "write it as NAME=VALUE")
    return {name: value for name, _, value in pairs}
