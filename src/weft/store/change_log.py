"""The change log of a store, as its writers see it, and the position up to which changes were published."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from weft.api.change_log import ChangeLog


class StoreChangeLog(ChangeLog, Protocol):
    """The change log of a store. What a store changes and what it logs is one transaction.

    Whoever publishes what it stores does both within `publishing`, or publishes without awaiting anything in between: until the
    block ends, `position` stays below what is stored in it.
    """

    def publishing(self) -> AbstractContextManager[None]: ...


class PublishedPosition:
    """Finds the position up to which everything that was stored here was published (pure).

    A write gets positions after those that are known when it begins. So as long as it is not published, all up to the last position
    that was known at its beginning is safe.
    """

    def __init__(self) -> None:
        self._stored = 0
        self._unpublished: dict[
            object, int
        ] = {}  # the oldest first, so that the lowest position is that of the first

    def note_stored(self, position: int) -> None:
        self._stored = max(self._stored, position)

    @contextmanager
    def publishing(self) -> Generator[None]:
        write = object()
        self._unpublished[write] = self._stored
        try:
            yield
        finally:
            del self._unpublished[write]

    def find(self) -> int:
        return next(iter(self._unpublished.values()), self._stored)
