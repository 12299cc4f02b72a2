"""`weft mcp`: list, add and inspect MCP servers, log in and out."""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from weft.cli.arguments import add_directory, add_format
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, sanitize, shorten_line, to_table, warn, write_json
from weft.errors import ConflictError, InvalidInputError, McpError, NotFoundError
from weft.host.paths import paths_from
from weft.local.api import LocalApi
from weft.local.open import OpenOptions, open_directory
from weft.model.wire import to_plain
from weft.model.workspace import (
    AnyMcpStatus,
    McpConnected,
    McpDisabled,
    McpFailed,
    McpNeedsAuth,
    McpNeedsRegistration,
)
from weft.tool.mcp.login import McpLoginStore

NO_SERVERS = "no MCP servers are configured: weft mcp add --help says how"


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    add_directory(parser)


def list_servers(chosen: argparse.Namespace) -> int:
    return asyncio.run(_list(chosen))


async def _list(chosen: argparse.Namespace) -> int:
    async with open_for_mcp(chosen) as api:
        found = await api.mcp.list_servers(connect=True)
    if chosen.format == "json":
        write_json(to_plain(found))
        return ExitCode.DONE
    if not found:
        print(NO_SERVERS, file=sys.stderr)
        return ExitCode.DONE
    rows = [
        (sanitize(name), format_status(status), sanitize(explain_status(name, status)))
        for name, status in found.items()
    ]
    print("\n".join(to_table(("server", "status", ""), rows, Paint(sys.stdout))))
    return ExitCode.DONE


def format_status(status: AnyMcpStatus) -> str:
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


def explain_status(name: str, status: AnyMcpStatus) -> str:
    """Return why a server has this status, and what to do about it."""
    match status:
        case McpConnected(note=note) | McpDisabled(note=note):
            return note or ""
        case McpFailed(error=error):
            return error
        case McpNeedsAuth():
            return f"weft mcp auth {name}"
        case McpNeedsRegistration(error=error):
            return f'set mcp.{name}.oauth to {{"clientId": "…"}} ({error})'


def add_debug_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the name of the server")
    add_directory(parser)
    add_format(parser)


def debug_server(chosen: argparse.Namespace) -> int:
    return asyncio.run(_debug(chosen))


async def _debug(chosen: argparse.Namespace) -> int:
    async with open_for_mcp(chosen) as api:
        if chosen.name not in await api.mcp.list_servers():
            there = ", ".join(await api.mcp.list_servers())
            raise NotFoundError("MCP server", chosen.name, hint=f"there are {there or 'none'}")
        is_there = await api.mcp.connect(chosen.name)
        found = await _inspect(api, chosen.name)
    if chosen.format == "json":
        write_json(found)
    else:
        print("\n".join(_lines(chosen.name, found, Paint(sys.stdout))))
    return ExitCode.DONE if is_there else ExitCode.FAILED


async def _inspect(api: LocalApi, name: str) -> dict[str, Any]:
    status = (await api.mcp.list_servers())[name]
    tools = [tool for tool in await api.workspace.list_tools() if tool.id in api.runtime.mcp().tools()]
    own = {command.name for command in api.runtime.commands.values()}
    return {
        "status": to_plain(status),
        "words": explain_status(name, status),
        "tools": [to_plain(tool) for tool in tools],
        "prompts": [to_plain(each) for each in await api.list_commands() if each.name not in own],
        "resources": {key: to_plain(each) for key, each in (await api.mcp.list_resources()).items()},
    }


def _lines(name: str, found: dict[str, Any], paint: Paint) -> Iterator[str]:
    words = f": {sanitize(found['words'])}" if found["words"] else ""
    yield f"{paint.bold(sanitize(name))} {found['status']['status']}{words}"
    for kind, each in (
        ("tools", [(tool["id"], tool["description"]) for tool in found["tools"]]),
        ("prompts", [(_format_usage(prompt), prompt.get("description", "")) for prompt in found["prompts"]]),
        ("resources", [(key, value["uri"]) for key, value in found["resources"].items()]),
    ):
        if each:
            yield ""
            yield paint.dim(kind)
            yield from (
                f"  {sanitize(key):<32} {shorten_line(sanitize(' '.join(about.split())))}"
                for key, about in each
            )


def _format_usage(prompt: dict[str, Any]) -> str:
    """Return how a prompt is called, with optional arguments in brackets."""
    takes = [
        f"{each['name']}=…" if each.get("required") else f"[{each['name']}=…]"
        for each in prompt.get("arguments", ())
    ]
    return " ".join([prompt["name"], *takes])


def add_add_arguments(parser: argparse.ArgumentParser) -> None:
    put = parser.add_argument
    put("name", help="the name of the server; its tools are called NAME_TOOL")
    put("--url", help="the address of a remote server")
    put(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header to send with every request (repeatable)",
    )
    put(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an environment variable for a local server (repeatable)",
    )
    put("--project", action="store_true", help="write to the configuration of the project instead of yours")
    command = put("command", nargs="+", help="the program of a local server and its arguments, after --")
    # With nargs="*" argparse would regard it as absent as soon as an option follows the name.
    command.required = False
    add_directory(parser)


def add_server(chosen: argparse.Namespace) -> int:
    return asyncio.run(_add(chosen, to_entry(chosen)))


async def _add(chosen: argparse.Namespace, entry: dict[str, Any]) -> int:
    async with open_for_mcp(chosen) as api:
        if chosen.name in await api.mcp.list_servers():
            # Two entries would be merged, and the new server would get the headers and variables of the old one.
            raise ConflictError(
                "MCP server",
                chosen.name,
                "is configured already",
                hint="choose another name, or edit the file that weft config shows for it",
            )
        await api.configuration.update({"mcp": {chosen.name: entry}}, own=not chosen.project)
    print(f"{sanitize(chosen.name)} is configured; weft mcp debug {sanitize(chosen.name)} connects to it")
    return ExitCode.DONE


def to_entry(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the server as an entry of the configuration. Raise `InvalidInputError` unless it is one program or address."""
    if bool(chosen.url) == bool(chosen.command):
        raise InvalidInputError(
            "command",
            "a server is either a program or an address",
            hint="weft mcp add NAME -- PROGRAM ARGUMENTS…, or weft mcp add NAME --url URL",
        )
    if chosen.url:
        if not chosen.url.startswith(("http://", "https://")):
            raise InvalidInputError("--url", f"{chosen.url!r} is not an http address")
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


def add_auth_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the name of the server; if left out, list the logins")
    add_directory(parser)


def log_in(chosen: argparse.Namespace) -> int:
    if chosen.name is None:
        return list_logins()
    return asyncio.run(_log_in(chosen))


def list_logins() -> int:
    names = McpLoginStore(paths_from(os.environ).mcp_auth_file).list_names()
    for name in names:
        print(sanitize(name))
    if not names:
        print("there is no login at any MCP server: weft mcp auth NAME makes one", file=sys.stderr)
    return ExitCode.DONE


async def _log_in(chosen: argparse.Namespace) -> int:
    name = chosen.name
    async with open_for_mcp(chosen) as api:
        address = await api.mcp.start_login(name)
        if address:
            print(f"log in to {sanitize(name)} here:\n\n  {sanitize(address)}\n", file=sys.stderr)
            print("waiting for the browser to come back (Ctrl-C ends it)", file=sys.stderr)
            status = await api.mcp.finish_login(name)
        else:
            status = (await api.mcp.list_servers())[name]
    if not isinstance(status, McpConnected):
        raise McpError(f"{name} is not connected: {explain_status(name, status)}")
    print(f"{sanitize(name)} is connected")
    return ExitCode.DONE


def add_logout_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the name of the server")
    add_directory(parser)


def log_out(chosen: argparse.Namespace) -> int:
    book = McpLoginStore(paths_from(os.environ).mcp_auth_file)
    if not book.remove(chosen.name):
        there = ", ".join(book.list_names())
        hint = f"there are {there}" if there else "there is none at all"
        raise NotFoundError("login at the MCP server", chosen.name, hint=hint)
    print(f"the login at {sanitize(chosen.name)} is forgotten")
    return ExitCode.DONE


@asynccontextmanager
async def open_for_mcp(chosen: argparse.Namespace) -> AsyncIterator[LocalApi]:
    """Open a directory only for its MCP servers: no session is read or written."""
    opening = OpenOptions(directory=chosen.dir, env=os.environ, store="memory:", warn=warn)
    async with open_directory(opening) as api:
        yield api
