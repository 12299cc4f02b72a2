"""`weft token`: let others use a server of yours, each with sessions, directories and limits of their own."""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Final, TypeVar

from weft.api.tokens import TokenAdministration
from weft.cli.arguments import add_format, add_store, parse_age, parse_dollars, parse_positive
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, format_time_left, to_table, write_json
from weft.config.store_address import resolve_store_url
from weft.errors import InvalidInputError
from weft.host.now import now as read_clock
from weft.host.paths import paths_from
from weft.model.principal import (
    TOKEN_SCOPES,
    NewToken,
    Principal,
    PrincipalChange,
    PrincipalLimits,
    PrincipalTokens,
    Token,
    TokenInput,
)

T = TypeVar("T")

NEVER: Final = "never"
DEFAULT_EXPIRY: Final = "90d"


def _parse_expiry(text: str) -> int | None:
    """Return an age in milliseconds, None for `never`."""
    return None if text == NEVER else parse_age(text)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--directory",
        action="append",
        metavar="PATH",
        help="a directory that the principal may use, with everything below it and the checkout it is in (repeatable)",
    )
    add(
        "--workspace",
        action="append",
        metavar="NAME",
        help="a git workspace of the cluster in which the principal may have checkouts of its own (repeatable)",
    )
    add("--max-sessions", type=parse_positive, metavar="N", help="at most N sessions run at the same time")
    add("--tokens-per-day", type=parse_positive, metavar="N", help="at most N tokens of models a day")
    add("--cost-per-day", type=parse_dollars, metavar="DOLLARS", help="at most this much a day, such as 5.00")


def _add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        metavar="URL",
        help="manage the tokens of this server, with its password or an admin token in WEFT_TOKEN; without it, those of the store",
    )
    add_store(parser)


def add_create_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", help="the name of the token, such as ada or ci-nightly")
    add(
        "--scope",
        choices=TOKEN_SCOPES,
        default="run",
        help="read: look at sessions; run: also prompt; admin: everything, with the sessions of others (default: run)",
    )
    add(
        "--expires",
        type=_parse_expiry,
        default=DEFAULT_EXPIRY,
        metavar="AGE",
        help=f"how long it is valid, such as 30d, or `{NEVER}` (default: {DEFAULT_EXPIRY})",
    )
    add(
        "--principal",
        default="",
        metavar="NAME",
        help="whose token it is; several tokens can belong to one principal (default: one of the same name)",
    )
    _add_limits(parser)
    add_format(parser, ("default", "json"))
    _add_where(parser)


def create_token(args: argparse.Namespace) -> int:
    input = TokenInput(
        name=args.name,
        principal=args.principal,
        scope=args.scope,
        expires=None if args.expires is None else read_clock() + args.expires,
        directories=_read_directories(args) or (),
        limits=_read_limits(args),
        workspaces=tuple(args.workspace or ()),
    )
    created: NewToken = _call(args, lambda tokens: tokens.create(input))
    if args.format == "json":
        write_json(created)
        return ExitCode.DONE
    print(created.secret)
    token = created.token
    until = (
        "it never expires"
        if token.expires is None
        else f"it expires {format_time_left(token.expires - read_clock())}"
    )
    _note(f"this is the only time it is shown; {until}")
    _note(
        "send it as Authorization: Bearer, or set WEFT_TOKEN for weft and OPENCODE_SERVER_PASSWORD for OpenCode"
    )
    return ExitCode.DONE


def _note(line: str) -> None:
    print(line, file=sys.stderr)


def _read_directories(args: argparse.Namespace) -> tuple[str, ...] | None:
    """Return the directories as absolute paths. On this machine they must exist."""
    if args.directory is None:
        return None
    if args.server is not None:
        return tuple(args.directory)
    for path in args.directory:
        if not os.path.isdir(path):
            raise InvalidInputError("--directory", f"{path} is not a directory")
    return tuple(os.path.realpath(path) for path in args.directory)


def _read_limits(args: argparse.Namespace) -> PrincipalLimits:
    return PrincipalLimits(
        sessions=args.max_sessions,
        tokens=args.tokens_per_day,
        cost=None if args.cost_per_day is None else Decimal(args.cost_per_day),
    )


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    _add_where(parser)


def list_tokens(args: argparse.Namespace) -> int:
    found: PrincipalTokens = _call(args, lambda tokens: tokens.list_all())
    if args.format == "json":
        write_json(found)
        return ExitCode.DONE
    if not found.tokens:
        _note("there is no token: weft token create NAME --directory PATH makes one")
        return ExitCode.DONE
    now, paint = read_clock(), Paint(sys.stdout)
    header = ("Name", "Token", "Scope", "Principal", "Expires")
    rows = [
        (token.name, f"{token.id}_…", token.scope, token.principal, _format_expiry(token, now))
        for token in found.tokens
    ]
    print("\n".join(to_table(header, rows, paint)))
    if found.principals:
        limits = [(each.name, *_format_principal(each)) for each in found.principals]
        header_of_limits = (
            "Principal",
            "Sessions",
            "Tokens a day",
            "Dollars a day",
            "Directories",
            "Workspaces",
        )
        print()
        print("\n".join(to_table(header_of_limits, limits, paint)))
    return ExitCode.DONE


def _format_expiry(token: Token, now: int) -> str:
    if token.expires is None:
        return NEVER
    return "expired" if token.is_expired(now) else format_time_left(token.expires - now)


def _format_principal(principal: Principal) -> tuple[str, ...]:
    limits = principal.limits
    return (
        "-" if limits.sessions is None else f"{limits.sessions:,}",
        "-" if limits.tokens is None else f"{limits.tokens:,}",
        "-" if limits.cost is None else f"{limits.cost:,.2f}",
        ", ".join(principal.directories),
        ", ".join(principal.workspaces) or "-",
    )


def add_revoke_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="the name of the token, or the beginning that the list shows"
    )
    parser.add_argument("--force", action="store_true", help="revoke the last admin token, too")
    _add_where(parser)


def revoke_token(args: argparse.Namespace) -> int:
    revoked: Token = _call(args, lambda tokens: tokens.revoke(args.name.removesuffix("_…"), force=args.force))
    print(f"{Paint(sys.stdout).bold(revoked.name)} is revoked; its sessions stay")
    return ExitCode.DONE


def add_limit_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "principal", metavar="PRINCIPAL", help="whose limits, directories and workspaces to change"
    )
    _add_limits(parser)
    parser.add_argument("--no-workspaces", action="store_true", help="take all git workspaces away")
    parser.add_argument("--unlimited", action="store_true", help="remove the limits that are not given")
    _add_where(parser)


def limit_principal(args: argparse.Namespace) -> int:
    changed: Principal = _call(args, lambda tokens: _change_limits(tokens, args))
    *limits, directories, workspaces = _format_principal(changed)
    sessions, tokens, cost = ("unlimited" if each == "-" else each for each in limits)
    also = f" and the workspaces {workspaces}" if changed.workspaces else ""
    print(
        f"{changed.name}: {sessions} sessions, {tokens} tokens and {cost} dollars a day, in {directories}{also}"
    )
    return ExitCode.DONE


async def _change_limits(tokens: TokenAdministration, args: argparse.Namespace) -> Principal:
    given = _read_limits(args)
    if args.no_workspaces and args.workspace is not None:
        raise InvalidInputError("--workspace", "it contradicts --no-workspaces", hint="leave out one of them")
    if not args.unlimited:
        known = await tokens.list_all()
        present = next((each.limits for each in known.principals if each.name == args.principal), given)
        given = PrincipalLimits(
            sessions=given.sessions or present.sessions,
            tokens=given.tokens or present.tokens,
            cost=given.cost or present.cost,
        )
    workspaces = () if args.no_workspaces else None if args.workspace is None else tuple(args.workspace)
    change = PrincipalChange(directories=_read_directories(args), limits=given, workspaces=workspaces)
    return await tokens.change_principal(args.principal, change)


def _call(args: argparse.Namespace, action: Callable[[TokenAdministration], Awaitable[T]]) -> T:
    async def run() -> T:
        async with _open_tokens(args) as tokens:
            return await action(tokens)

    return asyncio.run(run())


@asynccontextmanager
async def _open_tokens(args: argparse.Namespace) -> AsyncIterator[TokenAdministration]:
    """Open the tokens of a server, or of the store. Raise `InvalidInputError` for a store that ends with this command."""
    if args.server is not None:
        from weft.client.api import open_remote_tokens  # noqa: PLC0415  most need no HTTP

        async with open_remote_tokens(args.server, os.environ) as remote:
            yield remote
        return
    from weft.local.tokens import TokenStore  # noqa: PLC0415  a server has its own
    from weft.store.url import is_persistent, open_store  # noqa: PLC0415  a server has its own

    url = resolve_store_url(os.environ, paths_from(os.environ), args.store)
    if not is_persistent(url):
        raise InvalidInputError(
            "store",
            "it is in memory, and its tokens would end with this command",
            hint="name another with --store",
        )
    async with open_store(url) as store:
        yield TokenStore(store, read_clock)
