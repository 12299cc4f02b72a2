"""Several nodes that serve the same sessions, as a server sees them."""

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from weft.model.ids import MessageID, SessionID
from weft.model.session import AnyStatus
from weft.model.wire import Wire


class SharedEvent(Struct, frozen=True, kw_only=True):
    """An event that all nodes see, as `{"type", "properties"}`. Its position is the same on all of them.

    `own` is True if the server that receives it wrote it itself.
    """

    position: int
    directory: str
    session: SessionID | None
    body: bytes
    own: bool


class NodeStatus(Wire, frozen=True, kw_only=True):
    """One node. `roots` are the directories that it serves; `seconds` is the age of its last heartbeat."""

    id: str
    name: str
    url: str
    version: str
    roots: tuple[str, ...]
    alive: bool
    draining: bool
    seconds: float
    sessions: int


class LeaseStatus(Wire, frozen=True, kw_only=True):
    """A running session: who runs it, for how long, and in how many seconds its lease expires without a heartbeat."""

    session: SessionID
    owner: str
    age: float
    left: float


class ClusterStatus(Wire, frozen=True, kw_only=True):
    """All nodes and leases; how many deliveries wait in the inbox and the age of the oldest; how many events are in the log, how
    many of these have no position yet, and the age of the oldest of those."""

    nodes: tuple[NodeStatus, ...]
    leases: tuple[LeaseStatus, ...]
    queued: int
    queue_seconds: float
    events: int
    unplaced: int
    lag_seconds: float


class Cluster(Protocol):
    """The other nodes, for the server of one node.

    * `follow` calls a function with every event of all nodes, in the order of their positions, until it is cancelled. It raises
      `CursorLostError` if it fell behind further than the log reaches, and can then be called again.
    * `position` is that of the last event that was passed on.
    * `read` returns the events after one position up to another. It raises `CursorLostError` if the log no longer has them all.
    * `catch_up` returns when everything that this node has stored so far was passed on.
    * `wait_for` returns True when everything up to a position was passed on, False if that takes too long.
    * `list_status` returns the sessions of a directory that other nodes run.
    * `claim_key` returns the message that a key stands for: the given one if the key is new.
    * `check` raises `StoreError` if this node cannot work, because the database does not answer. It does not wait for it.
    * `metrics` returns what is measured, each with its name, help text and value. It raises `StoreError` as `check` does.
    * `workspace_roots` are the directories below which callers have checkouts of git workspaces.
    """

    @property
    def name(self) -> str: ...

    @property
    def position(self) -> int: ...

    @property
    def workspace_roots(self) -> Sequence[str]: ...

    async def follow(self, deliver: Callable[[SharedEvent], None]) -> None: ...

    async def read(self, after: int, till: int) -> Sequence[SharedEvent]: ...

    async def catch_up(self) -> None: ...

    async def wait_for(self, position: int) -> bool: ...

    async def list_status(self, directory: str) -> dict[SessionID, AnyStatus]: ...

    async def claim_key(self, session: SessionID, key: str, message: MessageID) -> MessageID: ...

    async def check(self) -> None: ...

    async def metrics(self) -> Sequence[tuple[str, str, float]]: ...
