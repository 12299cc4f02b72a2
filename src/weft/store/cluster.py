"""Nodes and their inbox: what a store that several nodes share offers to them, besides the event log."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from weft.api.cluster import ClusterStatus
from weft.model.ids import MessageID, SessionID


class NodeRecord(NamedTuple):
    """A node that joins. `owner` is its name in leases; `roots` are the directories that it serves with everything below."""

    id: str
    owner: str
    name: str
    url: str
    version: str
    roots: tuple[str, ...]


class NewDelivery(NamedTuple):
    """What a caller wants of a session. The same request sent twice has the same `key`.

    One that is not `repeatable` is not done by another node if the node that began it dies.
    """

    key: str
    session: SessionID
    directory: str
    kind: str
    repeatable: bool
    body: bytes


class Delivery(NamedTuple):
    """A delivery that a node has taken. `takes` counts how often it was taken; `outcome` is what the caller was told already.

    `owner` is the principal who wants it, "" for the administrator.
    """

    number: int
    key: str
    session: SessionID
    directory: str
    kind: str
    repeatable: bool
    body: bytes
    takes: int
    outcome: bytes | None
    owner: str = ""


class AbandonedSession(NamedTuple):
    """A session whose node died, with its directory and its owner."""

    session: SessionID
    directory: str
    owner: str


class DeliveryState(NamedTuple):
    """What became of a delivery: the outcome for its caller if there is one, and whether a live node has taken it."""

    outcome: bytes | None
    taken: bool


class InboxStore(Protocol):
    """The inbox of a store, for callers that want something done in a session. A principal's inbox has only its own sessions.

    * `put` stores a delivery and wakes the nodes through the event log. It returns False if there is one with this key.
    * `find_state` returns what became of the delivery with a key, None if there is none.
    * `withdraw` removes a delivery that nobody has taken, and returns whether it did. `withdraw_all` ends all deliveries of a session
      that have one of the `kinds` or `keys` and that no live node has taken: their callers get the `outcome`. It returns whether there
      was any. A delivery is either withdrawn or taken, never both. Listeners who know that it waits are told by the same transaction.
    * `is_begun` returns True if a live node has taken a delivery of a session and may not yet have its lease.
    * `is_run_outside` returns True if a process that is no node of this cluster holds the lease of a session.
    * `list_running` returns the sessions of a directory that run, each with the process that holds its lease. `list_waiting`
      returns those for which something is stored that no live node can do.
    * `claim_key` returns the message that a key stands for: the given one if the key is new.
    """

    async def put(self, delivery: NewDelivery) -> bool: ...

    async def withdraw(self, key: str) -> bool: ...

    async def withdraw_all(
        self, session: SessionID, *, kinds: Sequence[str] = (), keys: Sequence[str] = (), outcome: bytes
    ) -> bool: ...

    async def is_begun(self, session: SessionID) -> bool: ...

    async def find_state(self, key: str) -> DeliveryState | None: ...

    async def is_run_outside(self, session: SessionID) -> bool: ...

    async def list_running(self, directory: str) -> dict[SessionID, str]: ...

    async def list_waiting(self, directory: str) -> list[SessionID]: ...

    async def claim_key(self, session: SessionID, key: str, message: MessageID) -> MessageID: ...


class ClusterStore(InboxStore, Protocol):
    """Nodes and what they do. Every time is that of the store: the clocks of nodes may be wrong.

    * A node is alive as long as its last heartbeat is not older than a lease lasts. `beat` returns whether the node is to drain,
      None if the store does not know it (any more). It raises `NewerFormatError` if the store was upgraded to a format that this
      version cannot use; the heartbeat counts even then.
    * `take` gives a node the deliveries of sessions that it runs. Unless the node is draining, it also gets those of sessions that
      nobody runs, in directories that it serves. No two nodes get the same one. A delivery whose taker died is taken again. It also
      returns what the node has taken and not finished, except the numbers that are `known`: an earlier reply may have been lost.
    * `finish` stores an outcome for the caller, and whether anything is left to do. It returns False, and stores nothing, if the
      node is no longer the taker. `give_back` opens deliveries for others.
    * `list_untold` returns the sessions that wait for a node and whose listeners were not told yet, with their directories.
      `tell_waiting` sends the listeners the encoded event, once, unless a live node can do the work by now.
    * `list_orphaned` returns the sessions that no longer exist but have open deliveries, which no live node can carry out.
    * `list_abandoned` returns the sessions whose nodes died and that have no open delivery.
    * `can_hand_over` returns True if another live node would take over the sessions of a directory.
    """

    async def join(self, node: NodeRecord) -> None: ...

    async def beat(self, node: str) -> bool | None: ...

    async def leave(self, node: str) -> None: ...

    async def drain(self, node: str) -> list[str]: ...

    async def take(self, node: str, *, most: int, known: Collection[int] = ()) -> list[Delivery]: ...

    async def finish(self, node: str, delivery: Delivery, outcome: bytes | None, *, done: bool) -> bool: ...

    async def give_back(self, node: str, *numbers: int) -> None: ...

    async def list_untold(self, kinds: Sequence[str]) -> dict[SessionID, str]: ...

    async def tell_waiting(self, session: SessionID, event: bytes) -> bool: ...

    async def list_orphaned(self, kinds: Sequence[str]) -> list[SessionID]: ...

    async def list_abandoned(self) -> list[AbandonedSession]: ...

    async def can_hand_over(self, node: str, directory: str) -> bool: ...

    async def get_status(self) -> ClusterStatus: ...

    async def tidy(self) -> None: ...
