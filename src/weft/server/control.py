"""Requests to a screen, for one that asks for them instead of listening to events."""

import asyncio
from typing import Any, Final

from msgspec import Struct

MOST: Final = 64
PATIENCE: Final = 25.0


class Asked(Struct, frozen=True, kw_only=True):
    """What a screen is asked to do: the route that was called, and its body."""

    path: str
    body: Any = None


class Control:
    """A short line of requests for each directory. The oldest go when nobody takes them."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._lines: dict[str, asyncio.Queue[Asked]] = {}

    def put(self, directory: str, asked: Asked) -> None:
        """For a screen that has asked before; others hear of it as an event."""
        line = self._lines.get(directory)
        if line is None:
            return
        if line.full():
            line.get_nowait()
        line.put_nowait(asked)

    async def next(self, directory: str) -> Asked | None:
        """The next request; None when none has come for a while, so that no connection waits for ever."""
        line = self._lines.setdefault(directory, asyncio.Queue(MOST))
        try:
            async with asyncio.timeout(self._patience):
                return await line.get()
        except TimeoutError:
            return None

    def forget(self, directory: str) -> None:
        self._lines.pop(directory, None)
