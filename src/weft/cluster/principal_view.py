"""The cluster as the server of one principal sees it: its own events, at positions of its own, and its own part of the inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from weft.api.cluster import Cluster, SharedEvent
from weft.cluster.follower import read_missed
from weft.errors import CursorLostError
from weft.model.ids import MessageID, SessionID
from weft.model.session import AnyStatus
from weft.store.cluster import InboxStore
from weft.store.event_log import LoggedEvent, SessionLog

if TYPE_CHECKING:  # for types alone: few nodes have git workspaces
    from weft.cluster.git_workspace import Workspaces

Deliver = Callable[[SharedEvent], None]
ListStatus = Callable[[InboxStore, str], Awaitable[dict[SessionID, AnyStatus]]]


def is_for_administrator(logged: LoggedEvent) -> bool:
    """Return True if the administrator's server shows an event: it is the administrator's, or the administrator caused it (pure)."""
    return not (logged.owner and logged.by_owner)


def to_shared(logged: LoggedEvent, position: int, *, own: bool) -> SharedEvent:
    """Return an event of the log as a server gets it (pure)."""
    return SharedEvent(
        position=position,
        directory=logged.directory,
        session=None if logged.session is None else SessionID(logged.session),
        body=logged.body,
        own=own,
    )


class PrincipalView:
    """The `Cluster` of a principal's server. A node follows the log once, for all; each view gets what belongs to its owner.

    What a listener missed is read through the principal's own store, which contains nothing of other principals.
    """

    def __init__(
        self, node: Cluster, owner: str, log: SessionLog, *, writer: str, list_status: ListStatus
    ) -> None:
        self._node = node
        self._owner = owner
        self._log = log
        self._writer = writer
        self._list_status = list_status
        self.workspaces: Workspaces | None = None
        self._deliver: Deliver | None = None
        self._lost: asyncio.Future[None] | None = None
        self.position = 0

    @property
    def name(self) -> str:
        return self._node.name

    @property
    def workspace_roots(self) -> Sequence[str]:
        return () if self.workspaces is None else self.workspaces.roots

    async def start(self) -> None:
        """Find out where the node is in the log of the principal. Events that the node passes on meanwhile have later positions."""
        last = await self._log.find_own_last(self._owner, self._node.position)
        self.position = max(self.position, last)

    def deliver(self, logged: LoggedEvent) -> None:
        """Pass on an event of this principal."""
        self.position = logged.owner_position
        if self._deliver is not None:
            self._deliver(self._to_shared(logged))

    def _to_shared(self, logged: LoggedEvent) -> SharedEvent:
        own = logged.by_owner and logged.writer == self._writer
        return to_shared(logged, logged.owner_position, own=own)

    def lose(self, error: CursorLostError) -> None:
        """Note that the node missed events of the log."""
        if self._lost is not None and not self._lost.done():
            self._lost.set_exception(error)

    async def follow(self, deliver: Deliver) -> None:
        self._deliver, self._lost = deliver, asyncio.get_running_loop().create_future()
        try:
            await self._lost
        except CursorLostError:
            await self.start()
            raise
        finally:
            self._deliver = None

    async def read(self, after: int, till: int) -> Sequence[SharedEvent]:
        missed = await read_missed(
            lambda last, most: self._log.read_own(self._owner, last, limit=most), after, till
        )
        return [self._to_shared(logged) for logged in missed]

    async def catch_up(self) -> None:
        await self._node.catch_up()

    async def wait_for(self, position: int) -> bool:
        if position > self.position:
            await self._node.catch_up()
        return position <= self.position

    async def list_status(self, directory: str) -> dict[SessionID, AnyStatus]:
        return await self._list_status(self._log.inbox, directory)

    async def claim_key(self, session: SessionID, key: str, message: MessageID) -> MessageID:
        return await self._log.inbox.claim_key(session, key, message)

    async def check(self) -> None:
        await self._node.check()

    async def metrics(self) -> Sequence[tuple[str, str, float]]:
        return ()  # they are about everybody
