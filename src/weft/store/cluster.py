"""Nodes and their inbox: what a store that several nodes share offers to them, besides the event log."""

from __future__ import annotations

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
    """A delivery that a node has taken. `takes` counts how often it was taken; `outcome` is what the caller was told already."""

    number: int
    key: str
    session: SessionID
    directory: str
    kind: str
    repeatable: bool
    body: bytes
    takes: int
    outcome: bytes | None


class DeliveryState(NamedTuple):
    """What became of a delivery: the outcome for its caller if there is one, and whether a live node has taken it."""

    outcome: bytes | None
    taken: bool


class ClusterStore(Protocol):
    """Nodes, deliveries and keys. Every time is that of the store: the clocks of nodes may be wrong.

    * A node is alive while it sends heartbeats, three for each time that a lease lasts. `beat` returns whether the node is to
      drain, None if the store does not know it (any more).
    * `put` stores a delivery and wakes the nodes through the event log. It returns False if there is one with this key.
    * `take` gives a node the deliveries of sessions that it runs, and unless it drains those of sessions that nobody runs in
      directories that it serves. No two nodes get the same one. A delivery whose taker died is taken again. After an answer of
      the store was lost, it returns everything that the node has taken and not finished.
    * `finish` stores an outcome for the caller, and whether anything is left to do. It returns False, and stores nothing, if the
      node is no longer the taker. `give_back` opens deliveries for others.
    * `withdraw` removes a delivery that nobody has taken, and returns whether it did.
    * `is_run_elsewhere` returns True if a process that is no node holds the lease of a session.
    * `list_running` returns the sessions of a directory that run, with their owners. `list_waiting` returns those for which
      something is stored that no live node can do. `list_abandoned` returns the sessions whose
      nodes died and about which nothing is to be delivered, with their directories.
    * `can_hand_over` returns True if another live node would take over the sessions of a directory.
    """

    async def join(self, node: NodeRecord) -> None: ...

    async def beat(self, node: str) -> bool | None: ...

    async def leave(self, node: str) -> None: ...

    async def drain(self, node: str) -> list[str]: ...

    async def put(self, delivery: NewDelivery) -> bool: ...

    async def take(self, node: str, *, most: int) -> list[Delivery]: ...

    async def finish(self, node: str, delivery: Delivery, outcome: bytes | None, *, done: bool) -> bool: ...

    async def give_back(self, node: str, *numbers: int) -> None: ...

    async def withdraw(self, key: str) -> bool: ...

    async def find_state(self, key: str) -> DeliveryState | None: ...

    async def is_run_elsewhere(self, session: SessionID) -> bool: ...

    async def list_running(self, directory: str) -> dict[SessionID, str]: ...

    async def list_waiting(self, directory: str) -> list[SessionID]: ...

    async def list_abandoned(self) -> dict[SessionID, str]: ...

    async def can_hand_over(self, node: str, directory: str) -> bool: ...

    async def claim_key(self, session: SessionID, key: str, message: MessageID) -> MessageID: ...

    async def get_status(self) -> ClusterStatus: ...

    async def tidy(self) -> None: ...
