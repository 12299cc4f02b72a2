"""Tickets: a short-lived way in to one address, for browsers, whose sockets cannot send a password."""

import asyncio
import secrets
from typing import Final

SECONDS: Final = 60
MOST: Final = 1000


class Tickets:
    """Each is good once, for one address, for a minute."""

    def __init__(self) -> None:
        self._good: dict[str, tuple[str, float]] = {}

    def give(self, path: str) -> str:
        now = asyncio.get_running_loop().time()
        self._good = {ticket: for_ for ticket, for_ in self._good.items() if for_[1] > now}
        while len(self._good) >= MOST:
            del self._good[next(iter(self._good))]
        ticket = secrets.token_urlsafe(32)
        self._good[ticket] = path, now + SECONDS
        return ticket

    def take(self, ticket: str, path: str) -> bool:
        """Whether it is good for this address. It is not, the next time."""
        found = self._good.pop(ticket, None)
        return found is not None and found[0] == path and found[1] > asyncio.get_running_loop().time()
