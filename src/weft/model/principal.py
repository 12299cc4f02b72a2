"""Principals, their tokens and limits: who may do what on a server that several people share (pure)."""

import re
from decimal import Decimal
from typing import Final, Literal

from msgspec import Struct

from weft.errors import InvalidInputError, NotFoundError
from weft.model.wire import Wire, always

TokenScope = Literal["read", "run", "admin"]
# Each scope includes those before it.
TOKEN_SCOPES: Final[tuple[TokenScope, ...]] = ("read", "run", "admin")
MAX_PRINCIPAL_NAME: Final = 63
_NAME = rf"[a-z0-9][a-z0-9._-]{{0,{MAX_PRINCIPAL_NAME - 1}}}"
NAME_HINT: Final = f"up to {MAX_PRINCIPAL_NAME} small letters, digits, dots, hyphens and underscores, such as ada or ci-nightly"


class PrincipalLimits(Wire, frozen=True, kw_only=True):
    """What a principal may use: sessions that run at the same time, and tokens and dollars a day. None is no limit."""

    sessions: int | None = None
    tokens: int | None = None
    cost: Decimal | None = None


NO_LIMITS: Final = PrincipalLimits()


class Principal(Wire, frozen=True, kw_only=True):
    """Somebody who uses a server: a person or a program. It sees its own sessions, and works in its `directories` only, and in
    checkouts of its own of the git `workspaces` that a cluster offers."""

    name: str
    directories: tuple[str, ...] = always(())
    limits: PrincipalLimits = always(NO_LIMITS)
    workspaces: tuple[str, ...] = ()


class Token(Wire, frozen=True, kw_only=True):
    """A token, without its secret. `id` is the beginning of the secret text, by which a person recognises it.

    An `admin` token sees everything on the server. It has no limits, and its principal is a name for the list only.
    """

    id: str
    name: str
    principal: str
    scope: TokenScope
    created: int
    expires: int | None = None

    def is_expired(self, now: int) -> bool:
        return self.expires is not None and self.expires <= now


class TokenInput(Wire, frozen=True, kw_only=True):
    """A token to create. Its principal is called like the token unless it is named.

    Directories, workspaces and limits belong to the principal: they are given with its first token, and changed by `PrincipalChange`.
    """

    name: str
    principal: str = ""
    scope: TokenScope = "run"
    expires: int | None = None
    directories: tuple[str, ...] = ()
    limits: PrincipalLimits = NO_LIMITS
    workspaces: tuple[str, ...] = ()


class PrincipalChange(Wire, frozen=True, kw_only=True):
    """New directories, workspaces or limits of a principal. A field that is None leaves the old value."""

    directories: tuple[str, ...] | None = None
    limits: PrincipalLimits | None = None
    workspaces: tuple[str, ...] | None = None


class NewToken(Wire, frozen=True, kw_only=True):
    """A token that was created, with its `secret`. The secret is shown once: only its hash is stored."""

    secret: str
    token: Token


class PrincipalTokens(Wire, frozen=True, kw_only=True):
    """All tokens, oldest first, and the principals they belong to, by name."""

    tokens: tuple[Token, ...] = always(())
    principals: tuple[Principal, ...] = always(())


class Caller(Struct, frozen=True, kw_only=True):
    """Who sends a request. Without a principal it is the administrator, who sees everything.

    `hidden` are the directories of other principals.
    """

    principal: Principal | None
    scope: TokenScope
    hidden: tuple[str, ...] = ()


ADMINISTRATOR: Final = Caller(principal=None, scope="admin")


def includes(granted: TokenScope, needed: TokenScope) -> bool:
    """Return True if a scope allows what needs another one."""
    return TOKEN_SCOPES.index(granted) >= TOKEN_SCOPES.index(needed)


def check_principal_name(field: str, name: str) -> str:
    """Return a name of a token or principal. Raise `InvalidInputError` if it is not valid."""
    if re.fullmatch(_NAME, name) is None:
        raise InvalidInputError(field, f"{name[:80]!r} is not a name", hint=NAME_HINT)
    return name


def check_limits(limits: PrincipalLimits) -> PrincipalLimits:
    """Return limits that make sense. Raise `InvalidInputError` for a limit that would allow nothing."""
    for name, limit in (("sessions", limits.sessions), ("tokens", limits.tokens), ("cost", limits.cost)):
        if limit is not None and not (Decimal(limit).is_finite() and limit > 0):
            raise InvalidInputError(
                f"limits.{name}",
                f"{limit} would allow nothing",
                hint="leave it out for no limit; weft token revoke takes the access away",
            )
    return limits


def check_directories(directories: tuple[str, ...]) -> tuple[str, ...]:
    """Return the directories of a principal. Raise `InvalidInputError` if there are none, or one is not below the root."""
    if not directories:
        raise InvalidInputError(
            "directories",
            "a principal works in its own directories only, and has none",
            hint="name at least one: --directory PATH",
        )
    for directory in directories:
        if not directory.startswith("/") or not directory.strip("/") or "\0" in directory:
            raise InvalidInputError(
                "directories", f"{directory[:80]!r} is not the absolute path of a directory below the root"
            )
    return tuple(dict.fromkeys(directories))


def check_workspaces(workspaces: tuple[str, ...]) -> tuple[str, ...]:
    """Return the git workspaces of a principal. Raise `InvalidInputError` for what cannot be the name of one."""
    for name in workspaces:
        if re.fullmatch(_NAME, name) is None:
            raise InvalidInputError(
                "workspaces",
                f"{name[:80]!r} is not the name of a git workspace",
                hint="name one that the nodes offer: weft serve --workspace NAME=REPOSITORY",
            )
    return tuple(dict.fromkeys(workspaces))


def check_token_input(input: TokenInput, known: PrincipalTokens, now: int) -> Principal | None:
    """Return the principal that a new token belongs to, as it is to be stored; None for an admin token.

    Raise `InvalidInputError` if the input makes no sense beside the tokens that are `known`.
    """
    check_principal_name("name", input.name)
    name = check_principal_name("principal", input.principal or input.name)
    if any(token.name == input.name for token in known.tokens):
        raise InvalidInputError(
            "name",
            f"there is a token {input.name!r} already",
            hint="choose another, or revoke that one first",
        )
    if input.expires is not None and input.expires <= now:
        raise InvalidInputError("expires", "that time has passed")
    restricts = bool(input.directories or input.workspaces) or input.limits != NO_LIMITS
    if input.scope == "admin":
        if restricts:
            raise InvalidInputError(
                "scope",
                "an admin token may use every directory and workspace, and has no limits",
                hint="use the scope run, or leave out directories, workspaces and limits",
            )
        return None
    present = next((each for each in known.principals if each.name == name), None)
    if present is None:
        return Principal(
            name=name,
            directories=check_directories(input.directories),
            limits=check_limits(input.limits),
            workspaces=check_workspaces(input.workspaces),
        )
    if restricts:
        raise InvalidInputError(
            "principal",
            f"{name!r} has its directories and limits already",
            hint=f"leave them out, or change them: weft token limit {name}",
        )
    return present


def check_revocable(name: str, known: PrincipalTokens, now: int) -> Token:
    """Return the token with this name or id, if it may be revoked.

    Raise `NotFoundError` if there is none, `InvalidInputError` if it is the last valid one that administers the others.
    """
    token = next((each for each in known.tokens if name in (each.name, each.id)), None)
    if token is None:
        raise NotFoundError("token", name[:80], hint="weft token list shows them")
    admins = [each for each in known.tokens if each.scope == "admin" and not each.is_expired(now)]
    if admins == [token] and len(known.tokens) > 1:
        raise InvalidInputError(
            "name",
            f"{token.name!r} is the last admin token, and others would be left without one",
            hint="create another first: weft token create NAME --scope admin; or pass --force",
        )
    return token


def list_hidden(principal: Principal, known: PrincipalTokens) -> tuple[str, ...]:
    """Return the directories of other principals that are not, and do not contain, a directory of this one."""
    own = [f"{directory.rstrip('/')}/" for directory in principal.directories]
    others = (path for each in known.principals if each.name != principal.name for path in each.directories)
    return tuple(
        dict.fromkeys(
            path
            for path in others
            if not any(
                f"{path.rstrip('/')}/".startswith(top) or top.startswith(f"{path.rstrip('/')}/")
                for top in own
            )
        )
    )
