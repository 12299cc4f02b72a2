"""`weft mcp`: list, add and inspect MCP servers, log in and out."""

import argparse
import asyncio
import os
import shlex
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


def list_servers(args: argparse.Namespace) -> int:
    return asyncio.run(_list(args))


async def _list(args: argparse.Namespace) -> int:
    async with open_for_mcp(args) as api:
        servers = await api.mcp.list_servers(connect=True)
    if args.format == "json":
        write_json(to_plain(servers))
        return ExitCode.DONE
    if not servers:
        print(NO_SERVERS, file=sys.stderr)
        return ExitCode.DONE
    rows = [
        (sanitize(name), format_status(status), sanitize(explain_status(name, status)))
        for name, status in servers.items()
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


def debug_server(args: argparse.Namespace) -> int:
    return asyncio.run(_debug(args))


async def _debug(args: argparse.Namespace) -> int:
    async with open_for_mcp(args) as api:
        if args.name not in await api.mcp.list_servers():
            names = ", ".join(await api.mcp.list_servers())
            raise NotFoundError(
                "MCP server",
                args.name,
                hint=f"there are {names}" if names else "none is configured: weft mcp add",
            )
        connected = await api.mcp.connect(args.name)
        report = await _inspect(api, args.name)
    if args.format == "json":
        write_json(report)
    else:
        print("\n".join(_format_report(args.name, report, Paint(sys.stdout))))
    return ExitCode.DONE if connected else ExitCode.FAILED


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


def _format_report(name: str, report: dict[str, Any], paint: Paint) -> Iterator[str]:
    explanation = f": {sanitize(report['words'])}" if report["words"] else ""
    yield f"{paint.bold(sanitize(name))} {report['status']['status']}{explanation}"
    for kind, rows in (
        ("tools", [(tool["id"], tool["description"]) for tool in report["tools"]]),
        ("prompts", [(_format_usage(prompt), prompt.get("description", "")) for prompt in report["prompts"]]),
        ("resources", [(key, value["uri"]) for key, value in report["resources"].items()]),
    ):
        if rows:
            yield ""
            yield paint.dim(kind)
            yield from (
                f"  {sanitize(key):<32} {shorten_line(sanitize(' '.join(about.split())))}"
                for key, about in rows
            )


def _format_usage(prompt: dict[str, Any]) -> str:
    """Return how a prompt is called, with optional arguments in brackets."""
    arguments = [
        f"{argument['name']}=…" if argument.get("required") else f"[{argument['name']}=…]"
        for argument in prompt.get("arguments", ())
    ]
    return " ".join([prompt["name"], *arguments])


def add_add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", help="the name of the server; its tools are called NAME_TOOL")
    add("--url", help="the address of a remote server")
    add(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header to send with every request (repeatable)",
    )
    add(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an environment variable for a local server (repeatable)",
    )
    add("--project", action="store_true", help="write to the configuration of the project instead of yours")
    parser.usage = (
        "weft mcp add [options] NAME -- PROGRAM [ARGUMENT ...]\n       weft mcp add [options] NAME --url URL"
    )
    command = add("command", nargs="+", help="the program of a local server and its arguments, after --")
    # With nargs="*" argparse would regard it as absent as soon as an option follows the name.
    command.required = False
    add_directory(parser)


def add_server(args: argparse.Namespace) -> int:
    return asyncio.run(_add(args, to_entry(args)))


async def _add(args: argparse.Namespace, entry: dict[str, Any]) -> int:
    async with open_for_mcp(args) as api:
        if args.name in await api.mcp.list_servers():
            # Two entries would be merged, and the new server would get the headers and variables of the old one.
            raise ConflictError(
                "MCP server",
                args.name,
                "is configured already",
                hint="choose another name, or edit the file that weft config shows for it",
            )
        await api.configuration.update({"mcp": {args.name: entry}}, own=not args.project)
    print(
        f"{sanitize(args.name)} is configured; weft mcp debug {shlex.quote(sanitize(args.name))} connects to it"
    )
    return ExitCode.DONE


def to_entry(args: argparse.Namespace) -> dict[str, Any]:
    """Return the server as an entry of the configuration. Raise `InvalidInputError` unless it is either a program or an address."""
    if bool(args.url) == bool(args.command):
        raise InvalidInputError(
            "command",
            "a server is either a program or an address",
            hint="weft mcp add NAME -- PROGRAM ARGUMENTS…, or weft mcp add NAME --url URL",
        )
    if args.url:
        if not args.url.startswith(("http://", "https://")):
            raise InvalidInputError(
                "--url",
                f"{args.url!r} is not an http address",
                hint="write it as https://mcp.example.com/mcp",
            )
        headers = _parse_pairs("--header", args.header)
        return {"type": "remote", "url": args.url, **({"headers": headers} if headers else {})}
    environment = _parse_pairs("--env", args.env)
    variables = {"environment": environment} if environment else {}
    return {"type": "local", "command": args.command, **variables}


def _parse_pairs(option: str, values: list[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in values]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise InvalidInputError(
                option,
                f"{name!r} has no value" if name else "the name is missing",
                hint="write it as NAME=VALUE",
            )
    return {name: value for name, _, value in pairs}


def add_auth_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="the name of the server; if left out, list the logins")
    add_directory(parser)


def log_in(args: argparse.Namespace) -> int:
    if args.name is None:
        return list_logins()
    return asyncio.run(_log_in(args))


def list_logins() -> int:
    names = McpLoginStore(paths_from(os.environ).mcp_auth_file).list_names()
    for name in names:
        print(sanitize(name))
    if not names:
        print("you are not logged in to any MCP server: weft mcp auth NAME logs in", file=sys.stderr)
    return ExitCode.DONE


async def _log_in(args: argparse.Namespace) -> int:
    name = args.name
    async with open_for_mcp(args) as api:
        address = await api.mcp.start_login(name)
        if address:
            print(f"log in to {sanitize(name)} here:\n\n  {sanitize(address)}\n", file=sys.stderr)
            print("waiting for you to log in with the browser (Ctrl-C gives up)", file=sys.stderr)
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


def log_out(args: argparse.Namespace) -> int:
    logins = McpLoginStore(paths_from(os.environ).mcp_auth_file)
    if not logins.remove(args.name):
        names = ", ".join(logins.list_names())
        hint = f"you are logged in to {names}" if names else "you are not logged in to any"
        raise NotFoundError("login at the MCP server", args.name, hint=hint)
    print(f"the login at {sanitize(args.name)} is removed")
    return ExitCode.DONE


@asynccontextmanager
async def open_for_mcp(args: argparse.Namespace) -> AsyncIterator[LocalApi]:
    """Open a directory only for its MCP servers: no session is read or written."""
    options = OpenOptions(directory=args.dir, env=os.environ, store="memory:", warn=warn)
    async with open_directory(options) as api:
        yield api
