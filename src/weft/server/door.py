"""The door: who may come in. A web page in the person's browser and other programs on the machine may not.

The password is asked for on every request. `Host` is checked because a page can point a name of its own at this machine,
`Origin` because a browser sends requests for any page; OpenCode 1.1.34 checks neither, and any page could run commands.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from weft.server.refusal import Refusal

LOCAL: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
WRONG_PASSWORDS_FREE: Final = 5
LONGEST_PAUSE: Final = 5.0


class Door(Struct, frozen=True, kw_only=True):
    """`hosts` are the names we answer to beside those of this machine, `origins` the pages that may call us. What lies
    below `open_to_all` may be looked at without a password."""

    password: str | None
    username: str = "opencode"
    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    open_to_all: str = ""

    def refuse(self, method: str, headers: Mapping[str, str], path: str = "") -> Refusal | None:
        """Why a request may not come in; None if it may."""
        host = headers.get("host", "")
        if bare_host(host) not in LOCAL | self.hosts:
            return Refusal(
                status=403, name="ForbiddenError", message=f"this server does not answer to {host[:200]!r}"
            )
        origin = headers.get("origin")
        if origin is not None and origin not in self.origins:
            return Refusal(
                status=403,
                name="ForbiddenError",
                message=f"pages of {origin[:200]!r} may not call this server",
            )
        if (
            method == "OPTIONS"
            or self._is_open(method, path)
            or self._knows(headers.get("authorization", ""))
        ):
            return None
        return Refusal(
            status=401, name="UnauthorizedError", message="a password is needed: HTTP Basic, on every request"
        )

    def _is_open(self, method: str, path: str) -> bool:
        return bool(self.open_to_all) and method in ("GET", "HEAD") and path.startswith(self.open_to_all)

    def _knows(self, given: str) -> bool:
        if self.password is None:
            return True
        wanted = f"{self.username}:{self.password}".encode()
        return hmac.compare_digest(credentials_in(given), wanted)

    def shown_to(self, origin: str | None) -> dict[str, str]:
        """The headers that let a listed page read an answer."""
        if origin is None or origin not in self.origins:
            return {}
        return {"access-control-allow-origin": origin, "vary": "Origin"}


def bare_host(host: str) -> str:
    """A host without its port, in small letters. What is no host stays as it is, and is nobody's name."""
    name = host.lower()
    bare, colon, port = name.rpartition(":")
    return bare if colon and (port.isdecimal() or not port) and not bare.endswith(":") else name


def credentials_in(header: str) -> bytes:
    """What `Basic …` says; empty when it is something else."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


class Patience:
    """Wrong passwords cost time: the more of them in a row, the longer the next answer waits."""

    def __init__(self) -> None:
        self._wrong = 0

    def failed(self) -> float:
        """How many seconds to wait before saying no."""
        self._wrong += 1
        return min(LONGEST_PAUSE, 0.1 * max(0, self._wrong - WRONG_PASSWORDS_FREE))

    def succeeded(self) -> None:
        self._wrong = 0
