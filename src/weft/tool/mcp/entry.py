"""An MCP server as it is to be reached, and how long one is waited for."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

CONNECT_SECONDS: Final = 30.0
CALL_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 5.0
LOGIN_SECONDS: Final = 300.0


class Patience(Struct, frozen=True, kw_only=True):
    """How many seconds a run waits for servers that are starting; None until each has connected or failed. After `notice`
    seconds it says that it waits."""

    wait: float | None = WAIT_SECONDS
    notice: float = WAIT_SECONDS


USUAL: Final = Patience()


class LocalEntry(Struct, frozen=True, kw_only=True):
    """A server that we start: a program that is talked with over its standard input and output.

    `environment` is all that it sees. With a `refusal` it may not be run at all.
    """

    name: str
    argv: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    connect: float = CONNECT_SECONDS
    call: float = CALL_SECONDS
    refusal: str = ""


class OAuthTerms(Struct, frozen=True, kw_only=True):
    """How to log in: as a client the server knows already, or else as one that is registered with it first."""

    client_id: str = ""
    client_secret: str = ""
    scope: str = ""

    def __repr__(self) -> str:
        return f"OAuthTerms(client_id={self.client_id!r})"


class RemoteEntry(Struct, frozen=True, kw_only=True):
    """A server that we call. Without `oauth` no login is tried."""

    name: str
    url: str
    headers: Mapping[str, str] = {}
    oauth: OAuthTerms | None = None
    connect: float = CONNECT_SECONDS
    call: float = CALL_SECONDS

    def __repr__(self) -> str:
        return f"RemoteEntry(name={self.name!r}, url={self.url!r})"


AnyEntry = LocalEntry | RemoteEntry
