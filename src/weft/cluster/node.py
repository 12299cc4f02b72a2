"""A node: a process that serves sessions together with others on the same store.

It sends heartbeats, follows the log, does deliveries, and settles what nodes that died left open.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from weft.api.cluster import ClusterStatus, SharedEvent
from weft.cluster.follower import LogFollower, read_missed
from weft.cluster.inbox import Inbox
from weft.cluster.node_api import NodeApi
from weft.cluster.operation import PATIENT, encode_error
from weft.cluster.principal_view import PrincipalView, is_for_administrator, to_shared
from weft.errors import (
    CursorLostError,
    DirectoryNotServedError,
    DocumentError,
    NewerFormatError,
    NotFoundError,
    SessionBusyError,
    StoreError,
    WeftError,
)
from weft.host.clock import Clock
from weft.host.tasks import open_tasks
from weft.local.api import LocalApi
from weft.model.event import StatusChanged
from weft.model.event_wire import encode_event, event_from_json
from weft.model.ids import MessageID, SessionID
from weft.model.principal import Caller, Principal
from weft.model.project import is_within
from weft.model.session import AnyStatus, Busy, Idle
from weft.store.cluster import AbandonedSession, Delivery, InboxStore, NodeRecord
from weft.store.contract import Store
from weft.store.event_log import EventLog, LoggedEvent
from weft.store.url import open_owned_store
from weft.version import VERSION

if TYPE_CHECKING:  # for types alone: few nodes have git workspaces
    from weft.api import Api
    from weft.cluster.git_workspace import Workspaces

BEAT_SECONDS: Final = 1.0
# A node whose last heartbeat was stored longer ago than this is not ready. Probes and balancers wait a few seconds for an answer,
# but a statement is repeated for longer, and one that is never answered takes a minute to fail. So readiness asks for none.
STALE_SECONDS: Final = 5.0
RECOVER_SECONDS: Final = 1.0
TIDY_SECONDS: Final = 30.0
# What the log keeps: a listener that was away for longer reads its sessions again.
LOG_WINDOW_SECONDS: Final = 900.0
LOG_WINDOW_EVENTS: Final = 500_000
STATUS_PREFIX: Final = b'{"type":"' + StatusChanged.type.encode() + b'"'

Note = Callable[[str], None]
# Opens a directory for an owner.
OpenForOwner = Callable[[str, str], Awaitable["Api"]]


def is_served(directory: str, roots: Sequence[str]) -> bool:
    """Return True if a directory is one of the roots or below one (pure)."""
    return any(is_within(directory, root) for root in roots)


def to_waiting(directory: str) -> Busy:
    """Return the status of a session for which something is stored that no live node can do (pure)."""
    return Busy(waits=f"a node that serves {directory}")


class ClusterNode:
    """One node of a cluster. Create one with `open_node`. It is the `Cluster` of the server on this node."""

    def __init__(self, log: EventLog, clock: Clock, record: NodeRecord, note: Note) -> None:
        self.record = record
        self._log = log
        self._clock = clock
        self._note = note
        self._store = log.cluster
        self._apis: dict[tuple[str, str], NodeApi] = {}  # by directory and owner
        self._open: OpenForOwner | None = None
        self._views: dict[str, PrincipalView] = {}
        self._statuses: dict[SessionID, AnyStatus] = {}
        self._reported: set[SessionID] = set()
        self._beaten = asyncio.get_running_loop().time()
        self.inbox = Inbox(self._store, clock, node=record.id, perform=self._perform)
        self.follower = LogFollower(log, clock, writer=record.owner, on_message=self.inbox.notice)
        self.draining = asyncio.Event()
        self.workspaces: Workspaces | None = None

    # --- directories ---

    def attach(self, open_api: OpenForOwner) -> None:
        """Set the function that opens a directory for an owner. It has to return what `join_api` yields."""
        self._open = open_api

    @asynccontextmanager
    async def join_api(self, local: LocalApi, directory: str, owner: str = "") -> AsyncIterator[NodeApi]:
        """Make the `Api` of a directory part of the cluster while it is open. `owner` is the principal for whom it is."""
        await self._serve(directory)
        api = NodeApi(
            runtime=local.runtime,
            runner=local.runner,
            bus=local.bus,
            statuses=local.statuses,
            parts=local.parts,
            sharing=local.sharing,
            inbox=self.inbox,
            directory=directory,
            serves=self.serves,
            workspaces=self.find_workspaces(owner),
            open_api=lambda other: self._get_api(other, owner),
        )
        self._apis[directory, owner] = api
        try:
            yield api
        finally:
            del self._apis[directory, owner]

    def find_workspaces(self, owner: str) -> Workspaces | None:
        """Return the git workspaces of a principal whose server is open, or of the administrator; None if this node has none."""
        return self._views[owner].workspaces if owner else self.workspaces

    def serves(self, directory: str) -> bool:
        """Return True if sessions of a directory may run here."""
        return is_served(directory, self.record.roots)

    async def _serve(self, directory: str) -> None:
        """Say that we serve a directory, if we did not say so when we joined: callers may also name known projects."""
        if not self.serves(directory):
            self.record = self.record._replace(roots=(*self.record.roots, directory))
            await self._store.join(self.record)

    async def _get_api(self, directory: str, owner: str) -> NodeApi:
        """Return the `Api` of a directory for an owner. Raise `NotFoundError` if there is no such principal (any more)."""
        assert self._open is not None, "work begins when directories can be opened"
        api = await self._open(directory, owner)
        assert isinstance(api, NodeApi), "it was opened with `join_api`"
        return api

    async def _perform(self, delivery: Delivery, tell: Callable[[bytes], Awaitable[None]]) -> bytes:
        return await (await self._get_api(delivery.directory, delivery.owner)).perform(delivery, tell)

    # --- the server's view ---

    @property
    def name(self) -> str:
        return self.follower.name

    @property
    def position(self) -> int:
        return self.follower.position

    @property
    def workspace_roots(self) -> Sequence[str]:
        return () if self.workspaces is None else self.workspaces.roots

    async def follow(self, deliver: Callable[[SharedEvent], None]) -> None:
        def pass_on(logged: LoggedEvent) -> None:
            if logged.body.startswith(STATUS_PREFIX):
                self._track(logged)
            if is_for_administrator(logged):
                deliver(to_shared(logged, logged.position, own=logged.writer == self.record.owner))
            if (view := self._views.get(logged.owner)) is not None:
                view.deliver(logged)

        try:
            await self.follower.follow(pass_on)
        except CursorLostError as error:
            for view in self._views.values():
                view.lose(error)
            raise

    def _track(self, logged: LoggedEvent) -> None:
        try:
            event = event_from_json(logged.body)
        except DocumentError:
            return  # a newer node may have kinds of status that we do not know
        assert isinstance(event, StatusChanged)
        if isinstance(event.status, Idle):
            self._statuses.pop(event.session_id, None)
        else:
            self._statuses[event.session_id] = event.status

    async def read(self, after: int, till: int) -> Sequence[SharedEvent]:
        missed = await read_missed(lambda last, most: self._log.read(last, limit=most), after, till)
        return [
            to_shared(logged, logged.position, own=logged.writer == self.record.owner)
            for logged in missed
            if is_for_administrator(logged)
        ]

    async def catch_up(self) -> None:
        await self.follower.catch_up()

    async def wait_for(self, position: int) -> bool:
        return await self.follower.wait_for(position)

    async def list_status(self, directory: str) -> dict[SessionID, AnyStatus]:
        return await self._list_status_of(self._store, directory)

    async def _list_status_of(self, inbox: InboxStore, directory: str) -> dict[SessionID, AnyStatus]:
        """Return the sessions that other nodes run, and those that wait for one. `inbox` is the caller's own part."""
        running = await inbox.list_running(directory)
        statuses: dict[SessionID, AnyStatus] = {
            session: self._statuses.get(session, Busy())
            for session, owner in running.items()
            if owner != self.record.owner
        }
        return statuses | dict.fromkeys(await inbox.list_waiting(directory), to_waiting(directory))

    async def claim_key(self, session: SessionID, key: str, message: MessageID) -> MessageID:
        return await self._store.claim_key(session, key, message)

    async def check(self) -> None:
        silent = asyncio.get_running_loop().time() - self._beaten
        if silent > STALE_SECONDS:
            raise StoreError(
                f"the database has not answered for {silent:.0f} seconds",
                hint="the node is ready again as soon as it does",
            )

    async def get_status(self) -> ClusterStatus:
        return await self._store.get_status()

    async def metrics(self) -> Sequence[tuple[str, str, float]]:
        await self.check()  # whoever scrapes does not wait for long either
        status = await self._store.get_status()
        delay, self.follower.delay = self.follower.delay, 0.0
        alive = [node for node in status.nodes if node.alive]
        oldest = max((lease.age for lease in status.leases), default=0.0)
        return (
            ("weft_cluster_nodes", "Nodes that are alive.", len(alive)),
            ("weft_cluster_sessions", "Sessions that run on all nodes.", len(status.leases)),
            ("weft_cluster_lease_age_seconds", "Age of the oldest lease.", oldest),
            ("weft_inbox_length", "Deliveries that nobody has taken yet.", status.queued),
            ("weft_inbox_age_seconds", "Age of the oldest delivery that waits.", status.queue_seconds),
            ("weft_inbox_working", "Deliveries that this node is doing.", self.inbox.working),
            ("weft_outbox_events", "Events in the log.", status.events),
            ("weft_outbox_unplaced", "Events that have no position yet.", status.unplaced),
            ("weft_outbox_lag_seconds", "Age of the oldest event without a position.", status.lag_seconds),
            ("weft_fanout_delay_seconds", "Largest delay of another node's event since the last scrape.", delay),
        )  # fmt: skip

    # --- principals ---

    @asynccontextmanager
    async def open_view(self, url: str, store: Store, caller: Caller) -> AsyncIterator[PrincipalView]:
        """Show the cluster to the server of a principal: its own part of the log and of the inbox of the store, which is at a URL."""
        assert caller.principal is not None, "administrators use the main server"
        async with (
            open_owned_store(url, caller.principal, opened=store) as owned,
            self._open_view(caller.principal, owned) as view,
        ):
            yield view

    @asynccontextmanager
    async def _open_view(self, principal: Principal, store: Store) -> AsyncIterator[PrincipalView]:
        assert store.event_log is not None, "the store of a node has a log"
        owner = principal.name
        view = self._views[owner] = PrincipalView(
            self, owner, store.event_log, writer=self.record.owner, list_status=self._list_status_of
        )
        if self.workspaces is not None:
            view.workspaces = self.workspaces.for_principal(principal, store)
        try:
            await view.start()
            yield view
        finally:
            if self._views.get(owner) is view:
                del self._views[owner]

    # --- work in the background ---

    async def beat_forever(self) -> None:
        """Send heartbeats. Join again if the store has forgotten this node, which was silent for a day.

        Drain if somebody asks for it, or if a newer node has upgraded the store beyond what this version can use.
        """
        while True:
            with suppress(StoreError):
                try:
                    draining = await self._store.beat(self.record.id)
                except NewerFormatError as error:
                    if not self.draining.is_set():
                        self._note(f"this node ends, because a newer one upgraded the store: {error}")
                    self.draining.set()
                else:
                    if draining is None:
                        await self._store.join(self.record)
                    elif draining:
                        self.draining.set()
                    self._beaten = asyncio.get_running_loop().time()
            await self._clock.sleep(BEAT_SECONDS)

    async def recover_forever(self) -> None:
        """Settle the sessions of dead nodes in directories that we serve, and report deliveries that no live node can do."""
        while True:
            if not self.draining.is_set():
                with suppress(StoreError):
                    for abandoned in await self._store.list_abandoned():
                        if self.serves(abandoned.directory):
                            await self._settle(abandoned)
                    for orphaned in await self._store.list_orphaned(PATIENT):
                        await self._withdraw_orphaned(orphaned)
                    for waiting, directory in (await self._store.list_untold(PATIENT)).items():
                        await self._tell_waiting(waiting, directory)
            await self._clock.sleep(RECOVER_SECONDS)

    async def _withdraw_orphaned(self, session: SessionID) -> None:
        """Fail the deliveries of a session that is gone. Those from before its removal were withdrawn by whoever removed it."""
        outcome = encode_error(NotFoundError("session", session))
        await self._store.withdraw_all(session, kinds=PATIENT, outcome=outcome)

    async def _tell_waiting(self, session: SessionID, directory: str) -> None:
        """Tell listeners on all nodes that a session waits for a node. The store tells them when it no longer does."""
        waits = StatusChanged(session_id=session, status=to_waiting(directory))
        if await self._store.tell_waiting(session, encode_event(waits)):
            self._note(f"session {session} waits for a node that serves {directory}")

    async def _find_settler(self, abandoned: AbandonedSession) -> NodeApi:
        """Return the `Api` of the owner of a session; of the administrator if there is no such principal any more."""
        try:
            return await self._get_api(abandoned.directory, abandoned.owner)
        except (NotFoundError, DirectoryNotServedError):
            return await self._get_api(abandoned.directory, "")

    async def _settle(self, abandoned: AbandonedSession) -> None:
        session = abandoned.session
        try:
            await (await self._find_settler(abandoned)).runner.settle(session)
        except (SessionBusyError, NotFoundError):
            pass  # another node was first, or the session is gone
        except WeftError as error:
            if session not in self._reported:  # it is tried again every second
                self._reported.add(session)
                self._note(f"session {session} of a dead node is not settled yet: {error}")
        else:
            self._note(f"session {session} of a dead node is settled")

    async def tidy_forever(self) -> None:
        """Remove what nobody needs any more: old events, old outcomes, old keys and dead nodes."""
        while True:
            await self._clock.sleep(TIDY_SECONDS)
            with suppress(StoreError):
                await self._log.trim(seconds=LOG_WINDOW_SECONDS, most=LOG_WINDOW_EVENTS)
                await self._store.tidy()
                if self.workspaces is not None:
                    await self.workspaces.tidy()

    # --- the end ---

    async def drain(self) -> None:
        """Take nothing new. Runs end after their step if another node can continue them; the others go on here."""
        self.draining.set()
        await self._store.drain(self.record.id)
        for (directory, _), api in list(self._apis.items()):
            if await self._store.can_hand_over(self.record.id, directory):
                api.runner.hand_over()


@asynccontextmanager
async def open_node(
    store: Store, clock: Clock, *, owner: str, name: str, url: str, roots: Sequence[str], note: Note
) -> AsyncIterator[ClusterNode]:
    """Join the cluster of a store. Leaving the context leaves it, and gives back what is not done.

    `owner` is the name of this process in leases and in the log.
    """
    assert store.event_log is not None, "only a store with a log has a cluster"
    log = store.event_log.shared_log
    assert log is not None, "a principal runs no node"
    id = f"node_{secrets.token_hex(6)}"
    record = NodeRecord(id, owner, name, url, VERSION, tuple(roots))
    node = ClusterNode(log, clock, record, note)
    await node.follower.start()
    await log.cluster.join(record)
    try:
        yield node
    finally:
        with suppress(StoreError):
            await log.cluster.leave(id)


@asynccontextmanager
async def run_node(node: ClusterNode) -> AsyncIterator[None]:
    """Do the work of a node during the block. Directories can be opened meanwhile."""
    async with open_tasks() as tasks:
        background = [
            tasks.create_task(node.beat_forever()),
            tasks.create_task(node.recover_forever()),
            tasks.create_task(node.tidy_forever()),
            tasks.create_task(node.inbox.work(tasks)),
        ]
        try:
            yield
        finally:
            for task in background:
                task.cancel()
            await node.inbox.close()
