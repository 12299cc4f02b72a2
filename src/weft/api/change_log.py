"""The log of what changed in a store, as a server sees it: its listeners resume from it after a restart."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from weft.model.event import Event


class MissedEvent(Struct, frozen=True, kw_only=True):
    """An event for a listener that missed changes. `directory` and `project` are those of its session."""

    directory: str
    project: str
    event: Event


class ChangeLog(Protocol):
    """What changed last in a store that one server uses.

    * Every change has a position. The log keeps the last ones.
    * This process has published everything that it stored up to `position`.
    * `register` notes that a server of this name begins. Its name must be new.
    * `read` returns what a listener of `server` missed, if it had received everything up to the position `after`: events that lead
      from there to what is stored now. An event may contain what the listener knew already. It raises `CursorLostError` if the log
      does not know the server, no longer has all changes since, or has too many.
    * `list_unsettled` returns the directories of sessions whose runs died with their process and were not settled yet.
    """

    @property
    def position(self) -> int: ...

    async def register(self, server: str) -> None: ...

    async def read(self, server: str, after: int) -> Sequence[MissedEvent]: ...

    async def list_unsettled(self) -> list[str]: ...
