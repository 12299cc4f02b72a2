"""The store of one principal, inside a store that several share. Only this module decides what belongs to whom.

What belongs to another principal does not exist here: lists leave it out, and its id gets the same answer as an unknown one.
Sessions carry their owner, which is hidden from readers of this store. Values, logs and projects have keys that begin
with `principal` and its name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.errors import (
    ConflictError,
    InvalidInputError,
    LimitReachedError,
    NotFoundError,
    UnreadableError,
)
from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.event import (
    Durable,
    MessageUpdated,
    PartUpdated,
    ProjectUpdated,
    SessionDeleted,
    SessionEvent,
    session_of,
)
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import MessageWithParts, find_end
from weft.model.principal import check_principal_name
from weft.model.project import Project
from weft.model.search import Figures, Hit
from weft.model.session import SessionInfo, Todo, TrashBundle, get_owner, with_owner
from weft.model.session_query import SessionQuery, to_cursor
from weft.model.transfer import SessionExport
from weft.model.wire import from_plain, to_plain
from weft.store.chain import ChainLines
from weft.store.contract import NO_LEASES, Key, LogExtender, PartsByMessage, SessionEditor, Store
from weft.store.lease import LeaseToken

if TYPE_CHECKING:  # for types alone: most processes use neither a cluster nor statistics
    from weft.errors import LeaseLostError
    from weft.store.cluster import DeliveryState, InboxStore, NewDelivery
    from weft.store.event_log import LogBatch, LoggedEvent, SessionLog
    from weft.store.statistics import StatisticsQuery

# The first word of every key of a principal. Nobody else has such keys.
PRINCIPAL_KEY: Final = "principal"
PROJECT_KEY: Final = "project"
RUNNING_KEY: Final = ("running",)
MIN_PAGE: Final = 50
SEARCH_GROWTH: Final = 4


def to_owned_key(owner: str, *key: str) -> Key:
    """Return the key under which the whole store has a principal's value; that of the administrator if the owner is "" (pure)."""
    return (PRINCIPAL_KEY, owner, *key) if owner else key


class OwnedStore:
    """A `Store` that contains what belongs to one principal. At most `max_running` of its sessions run at the same time.

    If the whole store has an event log, this is also the principal's part of that log.
    """

    shared_log = None
    change_log = None

    def __init__(self, store: Store, owner: str, *, max_running: int | None = None) -> None:
        self.owner = check_principal_name("principal", owner)
        self._store = store
        self._max_running = max_running
        self._prefix = to_owned_key(owner)

    # --- sharing ---

    @property
    def event_log(self) -> OwnedStore | None:
        return None if self._store.event_log is None else self

    @property
    def _log(self) -> SessionLog:
        assert self._store.event_log is not None, "callers check `event_log` first"
        return self._store.event_log

    @property
    def inbox(self) -> OwnedInbox:
        return OwnedInbox(self._log.inbox, self)

    def watch_leases(self, lost: Callable[[LeaseLostError], None]) -> None:
        self._log.watch_leases(lost)

    def unwatch_leases(self, lost: Callable[[LeaseLostError], None]) -> None:
        self._log.unwatch_leases(lost)

    async def read_own(self, owner: str, after: int, *, limit: int) -> list[LoggedEvent]:
        return await self._log.read_own(self._check_name(owner), after, limit=limit)

    async def find_own_last(self, owner: str, position: int) -> int:
        return await self._log.find_own_last(self._check_name(owner), position)

    def _check_name(self, owner: str) -> str:
        """Return the name of this principal. Raise `NotFoundError` for any other."""
        if owner != self.owner:
            raise NotFoundError("principal", owner)
        return owner

    # --- sessions: writing ---

    async def apply(
        self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES, log: LogBatch | None = None
    ) -> None:
        # Whoever holds the lease of a session was found to own it when the lease was taken.
        known = {token.session for token in leases}
        stamped: list[Durable] = []
        for event in events:
            if isinstance(event, ProjectUpdated):
                continue
            if isinstance(event, SessionEvent) and not isinstance(event, SessionDeleted):
                if event.info.id not in known:
                    await self._check_free(event.info.id)
                known.add(event.info.id)
                event = replace(event, info=with_owner(event.info, self.owner))  # noqa: PLW2901
            elif (session := session_of(event)) not in known:
                assert session is not None, "every other durable event is about a session"
                if isinstance(event, SessionDeleted) and not await self.owns(session):
                    continue  # deleting what is not there does nothing
                await self._check_own(session)
                known.add(session)
            stamped.append(event)
        await self._check_parts(stamped)
        if log is not None:
            await self._log.apply(*stamped, leases=leases, log=log)
        elif stamped or leases:
            await self._store.apply(*stamped, leases=leases)
        for event in events:
            if isinstance(event, ProjectUpdated):
                await self.put_value((PROJECT_KEY, event.info.id), to_plain(event.info))

    async def _check_own(self, session: SessionID) -> None:
        """Raise `NotFoundError` if a session is not one of this principal."""
        await self.get_session(session)

    async def _check_free(self, session: SessionID) -> None:
        """Raise `ConflictError` if somebody else has a session with this id.

        A client that chooses the id of a new session learns here that it is taken. Ids that weft makes cannot be guessed.
        """
        try:
            taken = get_owner(await self._store.get_session(session)) != self.owner
        except UnreadableError:
            taken = True
        except NotFoundError:
            taken = False
        if taken:
            raise ConflictError("session", session, "cannot be created", hint="create one with another id")

    async def _check_parts(self, events: Iterable[Durable]) -> None:
        """Raise `ConflictError` if a message would share its parts with one of somebody else."""
        if not isinstance(self._store, PartsByMessage):
            return
        sessions: dict[MessageID, SessionID] = {}
        for event in events:
            if isinstance(event, MessageUpdated):
                sessions[event.info.id] = event.info.session_id
            elif isinstance(event, PartUpdated):
                sessions[event.part.message_id] = event.part.session_id
        for message, session in (await self._store.owners(list(sessions))).items() if sessions else ():
            if session != sessions[message] and not await self.owns(session):
                raise ConflictError("message", message, "cannot be stored", hint="send it with another id")

    async def edit(
        self,
        session: SessionID,
        editor: SessionEditor,
        *events: Durable,
        leases: Sequence[LeaseToken] = NO_LEASES,
        log: Callable[[SessionInfo], LogBatch] | None = None,
    ) -> SessionInfo:
        def edit_own(stored: SessionInfo) -> SessionInfo:
            return with_owner(editor(self._show(stored)), self.owner)

        await self._check_parts(events)
        try:
            if log is None:
                return self._show(await self._store.edit(session, edit_own, *events, leases=leases))
            edited = await self._log.edit(
                session, edit_own, *events, leases=leases, log=lambda stored: log(self._show(stored))
            )
            return self._show(edited)
        except UnreadableError as error:
            raise NotFoundError("session", session) from error

    def _show(self, session: SessionInfo) -> SessionInfo:
        """Return a session as its principal sees it. Raise `NotFoundError` if it is somebody else's."""
        if get_owner(session) != self.owner:
            raise NotFoundError("session", session.id)
        return with_owner(session, "")

    def _select(self, sessions: Iterable[SessionInfo]) -> list[SessionInfo]:
        return [with_owner(session, "") for session in sessions if get_owner(session) == self.owner]

    # --- sessions: reading ---

    async def list_sessions(self, project: ProjectID | None = None) -> list[SessionInfo]:
        return self._select(await self._store.list_sessions(project))

    async def query_sessions(self, query: SessionQuery) -> list[SessionInfo]:
        if query.limit is None:
            return self._select(await self._store.query_sessions(query))
        found: list[SessionInfo] = []
        page = replace(query, limit=max(query.limit, MIN_PAGE))
        while True:
            sessions = await self._store.query_sessions(page)
            found += self._select(sessions)
            if len(found) >= query.limit or len(sessions) < (page.limit or 0):
                return found[: query.limit]
            page = replace(page, after=to_cursor(sessions[-1], page.order))

    async def get_session(self, id: SessionID) -> SessionInfo:
        try:
            return self._show(await self._store.get_session(id))
        except UnreadableError as error:  # nobody knows whose it is
            raise NotFoundError("session", id) from error

    async def owns(self, session: SessionID) -> bool:
        """Return True if a session exists and belongs to this principal."""
        try:
            await self.get_session(session)
        except NotFoundError:
            return False
        return True

    async def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        if await self.owns(session):
            return await self._store.list_messages(session, last=last, before=before)
        find_end(before, ())  # raises as for a session without messages
        return []

    async def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        return await self._store.find_message(session, id) if await self.owns(session) else None

    async def list_diff(self, session: SessionID) -> list[FileDiff]:
        return await self._store.list_diff(session) if await self.owns(session) else []

    async def list_todos(self, session: SessionID) -> list[Todo]:
        return await self._store.list_todos(session) if await self.owns(session) else []

    async def read_chain(self, session: SessionID) -> ChainLines:
        if not await self.owns(session):
            return ChainLines([])
        return replace(await self._store.read_chain(session), owner=self.owner)

    # --- projects ---

    async def list_projects(self) -> list[Project]:
        found = [await self._read_project(key) for key in await self.list_keys((PROJECT_KEY,))]
        projects = [project for project in found if project is not None]
        return sorted(projects, key=lambda project: (project.time.created, project.id))

    async def find_project(self, id: ProjectID) -> Project | None:
        return await self._read_project((PROJECT_KEY, id))

    async def _read_project(self, key: Key) -> Project | None:
        stored = await self.find_value(key)
        return None if stored is None else from_plain(stored, Project, where="/".join(key))

    # --- search ---

    async def search(self, words: str, *, limit: int, project: ProjectID | None = None) -> list[Hit]:
        own, asked = await self._list_own_ids(), limit
        while True:
            hits = await self._store.search(words, limit=asked, project=project)
            found = [hit for hit in hits if hit.session_id in own]
            if len(found) >= limit or len(hits) < asked:
                return found[: max(0, limit)]
            asked *= SEARCH_GROWTH

    async def figures(self, query: StatisticsQuery) -> Figures:
        return await self._store.figures(replace(query, sessions=await self._list_own_ids()))

    async def _list_own_ids(self) -> frozenset[SessionID]:
        return frozenset(session.id for session in await self.list_sessions())

    async def update_index(self, changed: Mapping[SessionID, Collection[MessageID]]) -> None:
        await self._store.update_index(changed)

    # --- trash ---

    async def discard(
        self,
        sessions: Sequence[SessionID],
        *,
        at: int,
        log: Callable[[TrashBundle], LogBatch] | None = None,
    ) -> TrashBundle:
        for session in sessions:
            await self._check_own(session)
        if log is None:
            return self._show_bundle(await self._store.discard(sessions, at=at))
        show = self._show_bundle
        return show(await self._log.discard(sessions, at=at, log=lambda bundle: log(show(bundle))))

    async def restore(
        self, bundle: str, *, log: Callable[[TrashBundle], LogBatch] | None = None
    ) -> TrashBundle:
        await self._check_bundle(bundle)
        if log is None:
            return self._show_bundle(await self._store.restore(bundle))
        show = self._show_bundle
        return show(await self._log.restore(bundle, log=lambda found: log(show(found))))

    async def purge(self, bundle: str) -> None:
        await self._check_bundle(bundle)
        await self._store.purge(bundle)

    async def read_bundle(self, bundle: str) -> list[SessionExport]:
        await self._check_bundle(bundle)
        return [
            replace(export, info=self._show(export.info)) for export in await self._store.read_bundle(bundle)
        ]

    async def list_trash(self) -> list[TrashBundle]:
        return [
            self._show_bundle(bundle)
            for bundle in await self._store.list_trash()
            if all(get_owner(session) == self.owner for session in bundle.sessions)
        ]

    async def _check_bundle(self, id: str) -> None:
        if all(bundle.id != id for bundle in await self.list_trash()):
            raise NotFoundError("bundle in the trash", id)

    def _show_bundle(self, bundle: TrashBundle) -> TrashBundle:
        return replace(bundle, sessions=tuple(self._show(session) for session in bundle.sessions))

    # --- values and logs ---

    async def put_value(self, key: Key, value: Any) -> None:
        await self._store.put_value(self._to_own("key", key), value)

    async def find_value(self, key: Key) -> Any:
        return await self._store.find_value(self._to_own("key", key))

    async def update_value(
        self, key: Key, change: Callable[[Any], Any], *, leases: Sequence[LeaseToken] = NO_LEASES
    ) -> Any:
        return await self._store.update_value(self._to_own("key", key), change, leases=leases)

    async def list_keys(self, prefix: Key = ()) -> list[Key]:
        keys = await self._store.list_keys((*self._prefix, *prefix))
        return [key[len(self._prefix) :] for key in keys]

    async def append_log(self, log: Key, extend: LogExtender) -> None:
        await self._store.append_log(self._to_own("log", log), extend)

    async def read_log(self, log: Key) -> list[bytes]:
        return await self._store.read_log(self._to_own("log", log))

    async def list_logs(self, prefix: Key = ()) -> list[Key]:
        logs = await self._store.list_logs((*self._prefix, *prefix))
        return [log[len(self._prefix) :] for log in logs]

    async def trim_log(self, log: Key, *, keep: int) -> int:
        return await self._store.trim_log(self._to_own("log", log), keep=keep)

    def _to_own(self, kind: str, key: Key) -> Key:
        if not key:
            raise InvalidInputError(kind, "it is empty")
        return (*self._prefix, *key)

    # --- running ---

    @asynccontextmanager
    async def lease(self, session: SessionID, owner: str) -> AsyncIterator[LeaseToken]:
        info = await self.get_session(session)
        async with self._store.lease(session, owner) as token:
            if self._max_running is None or await self._runs_inside(info):
                yield token
                return
            await self._count_in(session, self._max_running)
            try:
                yield token
            finally:
                await self.update_value(RUNNING_KEY, lambda stored: _without(stored, {session}))

    async def _runs_inside(self, session: SessionInfo) -> bool:
        """Return True if a session is a child whose parent runs, which was counted."""
        if not session.parent_id:
            return False
        return await self.find_holder(session.parent_id) is not None

    async def _count_in(self, session: SessionID, limit: int) -> None:
        """Add a session, whose lease is held, to those that run. Raise `LimitReachedError` if there are too many."""

        def add(stored: Any) -> list[str]:
            others = _without(stored, {session})
            if len(others) >= limit:
                raise LimitReachedError("sessions", f"{limit} of your sessions run already", hint=BUSY_HINT)
            return [*others, session]

        try:
            await self.update_value(RUNNING_KEY, add)
        except LimitReachedError:
            running = _without(await self.find_value(RUNNING_KEY), {session})
            # A process that died could not remove its sessions from the count.
            ended = {each for each in running if await self._store.find_holder(SessionID(each)) is None}
            if not ended:
                raise
            await self.update_value(RUNNING_KEY, lambda stored: _without(stored, ended))
            await self.update_value(RUNNING_KEY, add)

    async def find_holder(self, session: SessionID) -> str | None:
        return await self._store.find_holder(session) if await self.owns(session) else None

    async def list_abandoned(self) -> list[SessionID]:
        return [session for session in await self._store.list_abandoned() if await self.owns(session)]

    async def damage(self) -> list[Damage]:
        """Return nothing: only the administrator is told of damage, because nobody knows whose document an unreadable one is."""
        return []


class OwnedInbox:
    """A principal's part of the inbox: an `InboxStore` in which only its own sessions exist."""

    def __init__(self, inbox: InboxStore, store: OwnedStore) -> None:
        self._inbox = inbox
        self._store = store

    async def _check(self, session: SessionID) -> SessionID:
        return (await self._store.get_session(session)).id

    async def _check_key(self, key: str) -> None:
        await self._check(SessionID(key.partition("/")[0]))  # every key begins with its session

    async def put(self, delivery: NewDelivery) -> bool:
        await self._check(delivery.session)
        return await self._inbox.put(delivery)

    async def withdraw(self, key: str) -> bool:
        await self._check_key(key)
        return await self._inbox.withdraw(key)

    async def withdraw_all(
        self, session: SessionID, *, kinds: Sequence[str] = (), keys: Sequence[str] = (), outcome: bytes
    ) -> bool:
        return await self._inbox.withdraw_all(
            await self._check(session), kinds=kinds, keys=keys, outcome=outcome
        )

    async def is_begun(self, session: SessionID) -> bool:
        return await self._inbox.is_begun(await self._check(session))

    async def find_state(self, key: str) -> DeliveryState | None:
        await self._check_key(key)
        return await self._inbox.find_state(key)

    async def is_run_outside(self, session: SessionID) -> bool:
        return await self._inbox.is_run_outside(await self._check(session))

    async def list_running(self, directory: str) -> dict[SessionID, str]:
        running = await self._inbox.list_running(directory)
        return {session: owner for session, owner in running.items() if await self._store.owns(session)}

    async def list_waiting(self, directory: str) -> list[SessionID]:
        waiting = await self._inbox.list_waiting(directory)
        return [session for session in waiting if await self._store.owns(session)]

    async def claim_key(self, session: SessionID, key: str, message: MessageID) -> MessageID:
        return await self._inbox.claim_key(await self._check(session), key, message)


BUSY_HINT: Final = "wait until one ends, or abort it"


def _without(stored: Any, sessions: Collection[str]) -> list[str]:
    return [each for each in stored or () if each not in sessions]
