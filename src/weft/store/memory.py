"""A store in dictionaries: the reference for every other backend, and the fastest store for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from weft.errors import ConflictError, LeaseLostError, NotFoundError, SessionBusyError
from weft.host.now import now
from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    ProjectUpdated,
    SessionCreated,
    SessionDeleted,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import MessageWithParts, find_end
from weft.model.project import Project
from weft.model.search import Figures, Hit
from weft.model.session import SessionInfo, Todo, TrashBundle, make_bundle_name, newest_sort_key
from weft.model.session_query import SessionQuery, select_sessions
from weft.model.transcript import Transcript
from weft.model.transfer import SessionExport
from weft.model.wire import encode, parse
from weft.store.chain import (
    HASH_BYTES,
    ChainLines,
    collect_changes,
    encode_documents,
    encode_entry,
    get_root,
    link,
    to_line,
)
from weft.store.contract import NO_LEASES, Key, LogExtender, SessionEditor
from weft.store.lease import LeaseToken

if TYPE_CHECKING:  # for types alone: few runs search anything
    from weft.store.files.index_database import IndexDatabase
    from weft.store.statistics import StatisticsQuery

Tables = tuple[dict[SessionID, Any], ...]


class MemoryStore:
    """Keeps everything in memory. Its contents end with the process."""

    event_log = None
    change_log = None

    def __init__(self) -> None:
        self._projects: dict[ProjectID, Project] = {}
        self._sessions: dict[SessionID, SessionInfo] = {}
        self._transcripts: dict[SessionID, Transcript] = {}
        self._diffs: dict[SessionID, tuple[FileDiff, ...]] = {}
        self._todos: dict[SessionID, tuple[Todo, ...]] = {}
        self._values: dict[Key, bytes] = {}
        self._trash: dict[str, tuple[TrashBundle, Tables]] = {}
        self._logs: dict[Key, list[bytes]] = {}
        self._leases: dict[SessionID, tuple[LeaseToken, str]] = {}
        self._generation = 0
        self._chains: dict[SessionID, list[bytes]] = {}

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        self._check_leases(leases)
        for event in events:
            match event:
                case ProjectUpdated(info=project):
                    self._projects[project.id] = project
                case SessionCreated(info=session) | SessionUpdated(info=session):
                    self._sessions[session.id] = session
                case SessionDeleted(info=session):
                    self._take([session.id])
                case SessionDiffed(session_id=id, diff=diff):
                    self._diffs[id] = diff
                case TodoUpdated(session_id=id, todos=todos):
                    self._todos[id] = todos
                case MessageUpdated(info=message):
                    self._get_transcript(message.session_id).feed(event)
                case PartUpdated(part=part):
                    self._get_transcript(part.session_id).feed(event)
                case MessageRemoved() | PartRemoved() | PartGrew():
                    self._get_transcript(event.session_id).feed(event)
        for id, changes in collect_changes(events, encode_documents(events)).items():
            chain = self._chains.setdefault(id, [])
            before = bytes.fromhex(chain[-1][: 2 * HASH_BYTES].decode()) if chain else get_root(id)
            body = encode_entry(changes, now=now())
            chain.append(to_line(link(before, body), body))

    async def edit(
        self,
        session: SessionID,
        editor: SessionEditor,
        *events: Durable,
        leases: Sequence[LeaseToken] = NO_LEASES,
    ) -> SessionInfo:
        self._check_leases(leases)
        stored = await self.get_session(session)
        edited = editor(stored)
        if events or edited != stored:
            await self.apply(*events, SessionUpdated(info=edited))
        return edited

    async def list_projects(self) -> list[Project]:
        return sorted(self._projects.values(), key=lambda project: (project.time.created, project.id))

    async def find_project(self, id: ProjectID) -> Project | None:
        return self._projects.get(id)

    async def list_sessions(self, project: ProjectID | None = None) -> list[SessionInfo]:
        return sort_oldest_first(s for s in self._sessions.values() if project in (None, s.project_id))

    async def query_sessions(self, query: SessionQuery) -> list[SessionInfo]:
        return select_sessions(self._sessions.values(), query)

    async def get_session(self, id: SessionID) -> SessionInfo:
        if id not in self._sessions:
            raise NotFoundError("session", id)
        return self._sessions[id]

    async def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        messages = self._get_transcript(session).messages()
        messages = messages[: find_end(before, (message.info.id for message in messages))]
        return messages if last is None else messages[max(0, len(messages) - last) :]

    async def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        return self._get_transcript(session).find(id)

    async def list_diff(self, session: SessionID) -> list[FileDiff]:
        return list(self._diffs.get(session, ()))

    async def list_todos(self, session: SessionID) -> list[Todo]:
        return list(self._todos.get(session, ()))

    async def search(self, words: str, *, limit: int, project: ProjectID | None = None) -> list[Hit]:
        from weft.store.files.index_query import search_index  # noqa: PLC0415  few runs search anything

        with self._build_index() as database:
            return search_index(database, words, limit=limit, project=project)

    async def figures(self, query: StatisticsQuery) -> Figures:
        from weft.store.files.index_query import compute_figures  # noqa: PLC0415  few runs count anything

        with self._build_index() as database:
            return compute_figures(database, query)

    async def update_index(self, changed: Mapping[SessionID, Collection[MessageID]]) -> None:
        """Do nothing: the index is built for each search."""

    async def discard(self, sessions: Sequence[SessionID], *, at: int) -> TrashBundle:
        found = [await self.get_session(id) for id in sessions]
        trashed = TrashBundle(id=make_bundle_name(at, sessions[0]), time=at, sessions=tuple(found))
        if trashed.id in self._trash:
            raise ConflictError("bundle in the trash", trashed.id, "exists")
        self._trash[trashed.id] = trashed, self._take(sessions)
        return trashed

    async def restore(self, bundle: str) -> TrashBundle:
        trashed, aside = self._get_bundle(bundle)
        for session in trashed.sessions:
            if session.id in self._sessions:
                raise ConflictError("session", session.id, "exists again")
        for table, removed in zip(self._tables(), aside, strict=True):
            table.update(removed)
        del self._trash[bundle]
        return trashed

    async def purge(self, bundle: str) -> None:
        self._get_bundle(bundle)
        del self._trash[bundle]

    async def read_bundle(self, bundle: str) -> list[SessionExport]:
        trashed, (_, transcripts, diffs, todos, _) = self._get_bundle(bundle)
        return [
            SessionExport(
                info=session,
                messages=tuple(transcripts[session.id].messages()) if session.id in transcripts else (),
                diff=diffs.get(session.id, ()),
                todos=todos.get(session.id, ()),
            )
            for session in trashed.sessions
        ]

    async def list_trash(self) -> list[TrashBundle]:
        return sorted((trashed for trashed, _ in self._trash.values()), key=lambda it: (it.time, it.id))

    async def put_value(self, key: Key, value: Any) -> None:
        if value is None:
            self._values.pop(key, None)
        else:
            # Encoded, so that later changes to the caller's value have no effect here.
            self._values[key] = encode(value)

    async def find_value(self, key: Key) -> Any:
        raw = self._values.get(key)
        return None if raw is None else parse(raw)

    async def update_value(
        self, key: Key, change: Callable[[Any], Any], *, leases: Sequence[LeaseToken] = NO_LEASES
    ) -> Any:
        self._check_leases(leases)
        new_value = change(await self.find_value(key))
        await self.put_value(key, new_value)
        return new_value

    async def list_keys(self, prefix: Key = ()) -> list[Key]:
        return sorted(key for key in self._values if key[: len(prefix)] == prefix)

    async def append_log(self, log: Key, extend: LogExtender) -> None:
        lines = self._logs.get(log, [])
        added = extend(lines[-1] if lines else None)
        if added:
            self._logs[log] = [*lines, *added]

    async def read_log(self, log: Key) -> list[bytes]:
        return list(self._logs.get(log, ()))

    async def list_logs(self, prefix: Key = ()) -> list[Key]:
        return sorted(log for log in self._logs if log[: len(prefix)] == prefix)

    async def trim_log(self, log: Key, *, keep: int) -> int:
        lines = self._logs.get(log, [])
        removed = max(0, len(lines) - keep)
        if removed:
            self._logs[log] = lines[removed:]
        return removed

    @asynccontextmanager
    async def lease(self, session: SessionID, owner: str) -> AsyncIterator[LeaseToken]:
        if session in self._leases:
            raise SessionBusyError(session, self._leases[session][1])
        self._generation += 1
        token = LeaseToken(session, self._generation)
        self._leases[session] = token, owner
        try:
            yield token
        finally:
            del self._leases[session]

    async def find_holder(self, session: SessionID) -> str | None:
        held = self._leases.get(session)
        return None if held is None else held[1]

    async def list_abandoned(self) -> list[SessionID]:
        return []  # leases end with the process, so none can be left behind

    async def read_chain(self, session: SessionID) -> ChainLines:
        return ChainLines(list(self._chains.get(session, ())))

    async def damage(self) -> list[Damage]:
        return []

    def _check_leases(self, leases: Iterable[LeaseToken]) -> None:
        for token in leases:
            held = self._leases.get(token.session)
            if held is None or held[0] != token:
                raise LeaseLostError(token.session, "" if held is None else held[1])

    @contextmanager
    def _build_index(self) -> Generator[IndexDatabase]:
        """Build an index like that of the file store. A store in memory holds few sessions."""
        from weft.store.files.index import UNKNOWN_STAMP, StampedSession, replace_session  # noqa: PLC0415  few runs search anything
        from weft.store.files.index_database import open_in_memory  # noqa: PLC0415  few runs search anything
        from weft.store.search import to_entry  # noqa: PLC0415  few runs search anything

        with open_in_memory("") as database:
            for session in self._sessions.values():
                entries = [to_entry(message) for message in self._get_transcript(session.id).messages()]
                replace_session(database, StampedSession(session, UNKNOWN_STAMP, entries))
            yield database

    def _get_transcript(self, session: SessionID) -> Transcript:
        return self._transcripts.setdefault(session, Transcript())

    def _take(self, sessions: Iterable[SessionID]) -> Tables:
        """Remove everything that belongs to these sessions and return it."""
        return tuple({id: table.pop(id) for id in sessions if id in table} for table in self._tables())

    def _tables(self) -> Tables:
        return self._sessions, self._transcripts, self._diffs, self._todos, self._chains

    def _get_bundle(self, id: str) -> tuple[TrashBundle, Tables]:
        if id not in self._trash:
            raise NotFoundError("bundle in the trash", id)
        return self._trash[id]


def sort_oldest_first(sessions: Iterable[SessionInfo]) -> list[SessionInfo]:
    return sorted(sessions, key=newest_sort_key, reverse=True)
