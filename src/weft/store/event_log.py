"""The event log of a store that several nodes share: what a store with one offers besides the contract of every store.

Memory, files and SQLite have no event log: all who listen are in one process, whose bus is the log. SQLite has a change log instead
(`store/change_log.py`), from which they resume after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from weft.errors import LeaseLostError
from weft.model.event import Durable
from weft.model.ids import SessionID
from weft.model.session import SessionInfo, TrashBundle
from weft.store.lease import LeaseToken

if TYPE_CHECKING:  # for types alone: few stores have a cluster
    from weft.store.cluster import ClusterStore, InboxStore


class LogEntry(NamedTuple):
    """An event that is to be written to the log: its session, if it has one, and the encoded event."""

    session: str | None
    body: bytes


class LogBatch(NamedTuple):
    """Events of one directory, in their order.

    With `place_now` they get their positions from the transaction that logs them, unless another transaction is giving positions
    at that moment. Use it only for what is written at intervals, because each such transaction notifies every node.
    """

    directory: str
    entries: Sequence[LogEntry]
    place_now: bool = False


class LoggedEvent(NamedTuple):
    """An event in the log.

    `writer` is the process that wrote it, and `seconds` is how long ago that was when it was read. A message between nodes has
    no directory. `owner` is the principal to whom it belongs, "" for the administrator, and `owner_position` its position among
    those of the principal. `by_owner` is False for what an administrator did to a session of a principal.
    """

    position: int
    writer: str
    directory: str
    session: str | None
    body: bytes
    seconds: float
    owner: str = ""
    owner_position: int = 0
    by_owner: bool = True


class LogHead(NamedTuple):
    """The name of a log, its last position, and the last position that was trimmed. Positions have no gaps."""

    name: str
    last: int
    trimmed: int


class SessionLog(Protocol):
    """What everybody may do with the log of a store, principals too: write to it, and read their own events.

    * The writing methods are those of the store. What one changes and what it logs is stored by one transaction: both or neither.
    * `read_own` returns the events of a principal after one of its own positions, at most `limit`, and raises `CursorLostError` if
      the log no longer has them all. `find_own_last` returns the last of these positions up to a position of the whole log.
    * `watch_leases` calls a function for each lease that this process held and lost, as soon as that is noticed: when
      it renews its leases. Writes are refused at once. `unwatch_leases` ends that.
    * `inbox` is what is wanted of sessions. `shared_log` is the log of everybody, None for a principal.
    """

    @property
    def inbox(self) -> InboxStore: ...

    @property
    def shared_log(self) -> EventLog | None: ...

    def watch_leases(self, lost: Callable[[LeaseLostError], None]) -> None: ...

    def unwatch_leases(self, lost: Callable[[LeaseLostError], None]) -> None: ...

    async def apply(
        self, *events: Durable, leases: Sequence[LeaseToken] = (), log: LogBatch | None = None
    ) -> None: ...

    async def edit(
        self,
        session: SessionID,
        editor: Callable[[SessionInfo], SessionInfo],
        *events: Durable,
        leases: Sequence[LeaseToken] = (),
        log: Callable[[SessionInfo], LogBatch] | None = None,
    ) -> SessionInfo: ...

    async def discard(
        self,
        sessions: Sequence[SessionID],
        *,
        at: int,
        log: Callable[[TrashBundle], LogBatch] | None = None,
    ) -> TrashBundle: ...

    async def restore(
        self, bundle: str, *, log: Callable[[TrashBundle], LogBatch] | None = None
    ) -> TrashBundle: ...

    async def read_own(self, owner: str, after: int, *, limit: int) -> list[LoggedEvent]: ...

    async def find_own_last(self, owner: str, position: int) -> int: ...


class EventLog(SessionLog, Protocol):
    """The log of a store, with the events of everybody, for nodes.

    * Every logged event gets a position. Positions mean the same to every reader, and an event never gets a position before
      one that a reader has seen. Events of one session have the order in which they were logged.
    * `place` gives positions to all events that have none yet, and returns the last one. It happens by itself soon after
      something was logged; a node also does so every second, for others that died before.
    * `read` returns events after a position, at most `limit`, and raises `CursorLostError` if the log no longer has them all.
    * `trim` removes what was logged more than `seconds` ago, and all but the last `most` events.
    * `listen` calls a function each time that events got positions, and once when the connection was made. Calls can be lost
      with the connection: listeners also look every `poll_seconds`.
    """

    @property
    def cluster(self) -> ClusterStore: ...

    @property
    def poll_seconds(self) -> float: ...

    async def place(self) -> int: ...

    async def read(self, after: int, *, limit: int) -> list[LoggedEvent]: ...

    async def get_head(self) -> LogHead: ...

    async def trim(self, *, seconds: float, most: int) -> int: ...

    def listen(self, wake: Callable[[], None]) -> AbstractAsyncContextManager[None]: ...
