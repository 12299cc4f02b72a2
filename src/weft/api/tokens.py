"""Tokens and the principals they belong to, and logins of browsers. A server checks them, and administrators manage tokens."""

from typing import Protocol

from weft.model.principal import (
    Caller,
    NewToken,
    Principal,
    PrincipalChange,
    PrincipalTokens,
    Token,
    TokenInput,
)


class TokenAdministration(Protocol):
    """The tokens of a service.

    * `create` returns the secret of a new token, once; only its hash is stored;
    * `revoke` takes effect at once where it is called, and within a second on every other node; the last admin token is only
      revoked with `force`; a principal that has no token left loses its limits and directories, and keeps its sessions;
    * `change_principal` changes directories and limits;
    * an unknown name raises `NotFoundError`, and any other mistake `InvalidInputError`.
    """

    async def create(self, input: TokenInput) -> NewToken: ...

    async def list_all(self) -> PrincipalTokens: ...

    async def revoke(self, name: str, *, force: bool = False) -> Token: ...

    async def change_principal(self, name: str, change: PrincipalChange) -> Principal: ...


class TokenCheck(TokenAdministration, Protocol):
    """Finds callers by their tokens, and owners by their shares.

    * `find_caller` returns the caller with this token, None if it is unknown or was revoked; an expired one raises `InvalidInputError`;
    * `find_principal` returns a principal as a caller who may run sessions, None if there is none of this name;
    * `find_share_owner` returns the principal whose share has this id, None if there is none or it is the administrator's.
    """

    async def find_caller(self, secret: str) -> Caller | None: ...

    async def find_principal(self, name: str) -> Caller | None: ...

    async def find_share_owner(self, share: str) -> Caller | None: ...


class EndedLogins(Protocol):
    """Logins of browsers to the page that were ended before their time, on any node and also before a restart.

    `expires` is when a login would have ended anyway (seconds since 1970): after that it need not be remembered.
    """

    async def end(self, login: str, expires: int) -> None: ...

    async def is_ended(self, login: str) -> bool: ...
