"""Tokens in a store: their hashes, whom they belong to, and when they expire; and browser logins that were ended early."""

import hmac
import os
import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

from msgspec.structs import replace

from weft.errors import InvalidInputError, NotFoundError
from weft.model.principal import (
    ADMINISTRATOR,
    Caller,
    NewToken,
    Principal,
    PrincipalChange,
    PrincipalTokens,
    Token,
    TokenInput,
    check_directories,
    check_limits,
    check_revocable,
    check_token_input,
    check_workspaces,
    list_hidden,
)
from weft.model.wire import Wire, always, from_plain, to_plain
from weft.share.records import ShareRecords
from weft.store.contract import Store

# All tokens are stored as one value: an update can then check that names are unique and that an administrator remains.
TOKENS_KEY: Final = ("token", "list")
LOGINS_KEY: Final = ("login", "ended")
SECRET_BEGIN: Final = "weft"
ID_BYTES: Final = 4
SECRET_BYTES: Final = 32


class StoredToken(Wire, frozen=True, kw_only=True):
    """A token and the hash of its secret. The secret is random and long, so that one round of SHA-256 is enough."""

    token: Token
    hash: str


class StoredTokens(Wire, frozen=True, kw_only=True):
    tokens: tuple[StoredToken, ...] = always(())
    principals: tuple[Principal, ...] = always(())

    def to_public(self) -> PrincipalTokens:
        return PrincipalTokens(tokens=tuple(each.token for each in self.tokens), principals=self.principals)


class TokenStore:
    """Implements `TokenCheck` over a store. `now` is the time in milliseconds."""

    def __init__(self, store: Store, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now

    async def create(self, input: TokenInput) -> NewToken:
        id, now = secrets.token_hex(ID_BYTES), self._now()
        check_token_input(input, (await self._read()).to_public(), now)
        await self._check_offered(input.workspaces)
        secret = f"{SECRET_BEGIN}_{id}_{secrets.token_urlsafe(SECRET_BYTES)}"
        token = Token(
            id=f"{SECRET_BEGIN}_{id}",
            name=input.name,
            principal=input.principal or input.name,
            scope=input.scope,
            created=now,
            expires=input.expires,
        )

        def add(stored: StoredTokens) -> StoredTokens:
            principal = check_token_input(input, stored.to_public(), now)
            tokens = (*stored.tokens, StoredToken(token=token, hash=hash_secret(secret)))
            return StoredTokens(tokens=tokens, principals=_put(stored.principals, principal))

        await self._update(add)
        return NewToken(secret=secret, token=token)

    async def list_all(self) -> PrincipalTokens:
        return (await self._read()).to_public()

    async def revoke(self, name: str, *, force: bool = False) -> Token:
        revoked: list[Token] = []

        def remove(stored: StoredTokens) -> StoredTokens:
            named = [each.token for each in stored.tokens if name in (each.token.name, each.token.id)]
            token = named[0] if force and named else check_revocable(name, stored.to_public(), self._now())
            revoked.append(token)
            tokens = tuple(each for each in stored.tokens if each.token.id != token.id)
            used = {each.token.principal for each in tokens if each.token.scope != "admin"}
            return StoredTokens(
                tokens=tokens, principals=tuple(each for each in stored.principals if each.name in used)
            )

        await self._update(remove)
        return revoked[-1]

    async def change_principal(self, name: str, change: PrincipalChange) -> Principal:
        await self._check_offered(check_workspaces(change.workspaces or ()))

        def apply(stored: StoredTokens) -> StoredTokens:
            present = next((each for each in stored.principals if each.name == name), None)
            if present is None:
                raise NotFoundError("principal", name[:80], hint="weft token list shows them")
            directories, limits, workspaces = change.directories, change.limits, change.workspaces
            changed = replace(
                present,
                directories=present.directories if directories is None else check_directories(directories),
                limits=present.limits if limits is None else check_limits(limits),
                workspaces=present.workspaces if workspaces is None else check_workspaces(workspaces),
            )
            return replace(stored, principals=_put(stored.principals, changed))

        updated = await self._update(apply)
        return next(each for each in updated.principals if each.name == name)

    async def find_caller(self, secret: str) -> Caller | None:
        stored, hashed = await self._read(), hash_secret(secret)
        # Every hash is compared, each in constant time, so that the time tells nothing.
        found = [each.token for each in stored.tokens if hmac.compare_digest(each.hash, hashed)]
        if not found:
            return None
        (token,) = found
        if token.is_expired(self._now()):
            raise InvalidInputError(
                "token", "it has expired", hint="ask the administrator of the server for another"
            )
        if token.scope == "admin":
            return ADMINISTRATOR
        return _to_caller(token.principal, stored, token)

    async def find_principal(self, name: str) -> Caller | None:
        stored = await self._read()
        if all(each.name != name for each in stored.principals):
            return None
        return replace(_to_caller(name, stored), scope="run")

    async def find_share_owner(self, share: str) -> Caller | None:
        from weft.store.ownership import OwnedStore  # noqa: PLC0415  few servers have principals

        stored = await self._read()
        for principal in stored.principals:
            if await ShareRecords(OwnedStore(self._store, principal.name)).find(share) is not None:
                return _to_caller(principal.name, stored)
        return None

    async def _check_offered(self, workspaces: tuple[str, ...]) -> None:
        """Raise `InvalidInputError` for a git workspace that no running node offers. While no node runs, accept any name."""
        if not workspaces:
            return
        log = self._store.event_log
        if log is None or log.shared_log is None:
            raise InvalidInputError(
                "workspaces",
                "this store has no nodes that could offer git workspaces",
                hint="leave out --workspace, or use a Postgres store",
            )
        nodes = [node for node in (await log.shared_log.cluster.get_status()).nodes if node.alive]
        # The checkouts of a workspace are in a directory that has its name.
        offered = {os.path.basename(root) for node in nodes for root in node.roots}
        unknown = next((name for name in workspaces if name not in offered), None)
        if nodes and unknown is not None:
            raise InvalidInputError(
                "workspaces",
                f"no running node offers the git workspace {unknown!r}",
                hint=f"correct the name, or start a node with it first: weft serve --workspace {unknown}=URL",
            )

    async def _read(self) -> StoredTokens:
        return _from_stored(await self._store.find_value(TOKENS_KEY))

    async def _update(self, change: Callable[[StoredTokens], StoredTokens]) -> StoredTokens:
        return _from_stored(
            await self._store.update_value(TOKENS_KEY, lambda stored: to_plain(change(_from_stored(stored))))
        )


class EndedLoginStore:
    """Implements `EndedLogins` over a store. Only hashes are stored. `now` is the time in milliseconds, `expires` is in seconds."""

    def __init__(self, store: Store, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now

    async def end(self, login: str, expires: int) -> None:
        def add(stored: Any) -> dict[str, int]:
            known = {hash: time for hash, time in (stored or {}).items() if time * 1000 > self._now()}
            return {**known, hash_secret(login): expires}

        await self._store.update_value(LOGINS_KEY, add)

    async def is_ended(self, login: str) -> bool:
        return hash_secret(login) in (await self._store.find_value(LOGINS_KEY) or {})


def hash_secret(secret: str) -> str:
    return sha256(secret.encode("utf-8", "replace")).hexdigest()


def _from_stored(stored: Any) -> StoredTokens:
    return StoredTokens() if stored is None else from_plain(stored, StoredTokens, where="/".join(TOKENS_KEY))


def _put(principals: tuple[Principal, ...], changed: Principal | None) -> tuple[Principal, ...]:
    """Return the principals with one added or replaced, sorted by name."""
    by_name = {each.name: each for each in principals}
    if changed is not None:
        by_name[changed.name] = changed
    return tuple(by_name[name] for name in sorted(by_name))


def _to_caller(name: str, stored: StoredTokens, token: Token | None = None) -> Caller:
    principal = next(each for each in stored.principals if each.name == name)
    hidden = list_hidden(principal, stored.to_public())
    return Caller(principal=principal, scope=token.scope if token else "read", hidden=hidden)
