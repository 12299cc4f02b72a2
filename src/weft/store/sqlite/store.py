"""The SQLite store: one database file as a `Store` that is safe across processes and crashes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import apsw

from weft.errors import ClosedError, ConflictError, DocumentError, NotFoundError, StoreError, UnreadableError
from weft.host.machine import release_free_memory
from weft.host.now import now
from weft.host.tasks import run_to_completion
from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.event import Durable, SessionDeleted, SessionUpdated
from weft.model.ids import MessageID, ProjectID, SessionID, check_file_name
from weft.model.message import MessageWithParts
from weft.model.project import Project
from weft.model.search import Figures, Hit
from weft.model.session import SessionInfo, Todo, TrashBundle, make_bundle_name
from weft.model.session_query import SessionQuery
from weft.model.transfer import SessionExport
from weft.model.wire import decode, encode, parse
from weft.store.chain import ChainLines
from weft.store.contract import NO_LEASES, Key, LogExtender, SessionEditor
from weft.store.lease import LeaseToken
from weft.store.rows import to_integer, to_session_row
from weft.store.sqlite.change_log import log_change, log_deletion
from weft.store.sqlite.change_log_reader import SqliteChangeLog
from weft.store.sqlite.connection import DEFAULT_OPTIONS, SqliteOptions, select, translate_errors
from weft.store.sqlite.database import DatabaseFile, StepProgress, ignore_progress
from weft.store.sqlite.events import EventWriter, is_growth, plan_events
from weft.store.sqlite.inventory import find_damage
from weft.store.sqlite.leases import (
    LeaseHolder,
    check_leases,
    drop_dead_lease,
    give_back,
    list_gone,
    list_leased,
    take_lease,
)
from weft.store.sqlite.reader import SqliteReader, to_key_bytes
from weft.store.sqlite.search import index_batch
from weft.store.sqlite.transcripts import list_cached_messages
from weft.store.sqlite.writer import DatabaseWriter, Operation, Urgency
from weft.store.statistics import StatisticsQuery
from weft.store.transcript_cache import TranscriptCache

T = TypeVar("T")

READER_THREADS = 8
# To encode this many documents takes a moment in which other tasks should run.
MANY_EVENTS = 100

UPSERT_VALUE = "INSERT INTO value (key, document) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET document = excluded.document"


class SqliteStore:
    """Writes in one thread and reads in others. Create one with `open_sqlite_store`, which also upgrades the database."""

    event_log = None

    def __init__(
        self,
        path: str,
        *,
        options: SqliteOptions = DEFAULT_OPTIONS,
        damaged: Callable[[Damage], None] | None = None,
    ) -> None:
        """`damaged` is called once for each document that turns out to be unreadable."""
        self.file = DatabaseFile(path, options)
        self.writer = DatabaseWriter(self.file)
        self._damaged = damaged
        self._problems: list[Damage] = []
        self._reported: set[str] = set()
        self._transcripts = TranscriptCache()
        self._readers: list[SqliteReader] = []  # those that nobody uses now
        self._closed = False
        self._threads = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="weft-sqlite-reader")
        self._holder = LeaseHolder(self.file.locks)
        self.change_log = SqliteChangeLog(self.writer, self._read)

    async def prepare(self, progress: StepProgress = ignore_progress) -> None:
        """Create or upgrade the database. `progress` is called in another thread."""
        await asyncio.to_thread(self._prepare, progress)
        self.writer.attach(asyncio.get_running_loop())

    def _prepare(self, progress: StepProgress) -> None:
        self.file.prepare(progress)
        with suppress(OSError):  # in a directory that we may not write to, reading still works
            self._holder.create()

    async def close(self) -> None:
        """Finish what waits, and close the database. Later calls raise `ClosedError`."""
        self._closed = True
        await asyncio.to_thread(self._close)
        self.writer.detach()

    def _close(self) -> None:
        self.writer.close()
        self._threads.shutdown()
        for reader in self._readers:
            reader.close()
        self._holder.close()

    # --- writing ---

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        many = len(events) > MANY_EVENTS
        steps = await asyncio.to_thread(plan_events, events) if many else plan_events(events)

        def write(connection: apsw.Connection) -> int:
            check_leases(connection, leases)
            writer = EventWriter(connection, now())
            writer.write(steps)
            return writer.position

        if steps or leases:
            position = await self.writer.run(write, "soon" if is_growth(steps) else "durable")
            self.change_log.note_stored(position)
        self._transcripts.forget(event.info.id for event in events if isinstance(event, SessionDeleted))
        if many:
            del events, steps
            await asyncio.to_thread(release_free_memory)

    async def edit(
        self,
        session: SessionID,
        editor: SessionEditor,
        *events: Durable,
        leases: Sequence[LeaseToken] = NO_LEASES,
    ) -> SessionInfo:
        check_file_name("session", session)

        def write(connection: apsw.Connection) -> tuple[SessionInfo, int]:
            check_leases(connection, leases)
            stored = _get_session(connection, session)
            edited = editor(stored)
            writer = EventWriter(connection, now())
            if events or edited != stored:
                writer.write(plan_events([*events, SessionUpdated(info=edited)]))
            return edited, writer.position

        edited, position = await self.writer.run(write)
        self.change_log.note_stored(position)
        return edited

    async def put_value(self, key: Key, value: Any) -> None:
        raw, document = to_key_bytes(key), encode(value)

        def write(connection: apsw.Connection) -> None:
            _put_value(connection, raw, None if value is None else document)

        await self.writer.run(write)

    async def update_value(
        self, key: Key, change: Callable[[Any], Any], *, leases: Sequence[LeaseToken] = NO_LEASES
    ) -> Any:
        raw = to_key_bytes(key)

        def write(connection: apsw.Connection) -> Any:
            check_leases(connection, leases)
            new_value = change(_find_value(connection, raw))
            _put_value(connection, raw, None if new_value is None else encode(new_value))
            return new_value

        return await self.writer.run(write)

    async def append_log(self, log: Key, extend: LogExtender) -> None:
        raw = to_key_bytes(log)

        def write(connection: apsw.Connection) -> None:
            number = _find_log(connection, raw)
            last = select(
                connection, "SELECT line FROM log_line WHERE log = ? ORDER BY number DESC LIMIT 1", (number,)
            )
            added = extend(last[0][0] if last else None)
            if added and number is None:
                connection.execute("INSERT INTO log (key) VALUES (?)", (raw,))
                number = connection.last_insert_rowid()
            connection.executemany(
                "INSERT INTO log_line (log, line) VALUES (?, ?)", [(number, line) for line in added]
            )

        await self.writer.run(write)

    async def trim_log(self, log: Key, *, keep: int) -> int:
        raw = to_key_bytes(log)

        def write(connection: apsw.Connection) -> int:
            connection.execute(
                """DELETE FROM log_line WHERE number IN (SELECT number FROM log_line WHERE log = ?
                ORDER BY number DESC LIMIT -1 OFFSET ?)""",
                (_find_log(connection, raw), max(0, keep)),
            )
            return connection.changes()

        return await self.writer.run(write)

    # --- trash ---

    async def discard(self, sessions: Sequence[SessionID], *, at: int) -> TrashBundle:
        for id in sessions:
            check_file_name("session", id)

        def write(connection: apsw.Connection) -> tuple[TrashBundle, int]:
            found = [_get_session(connection, id) for id in sessions]
            bundle = TrashBundle(id=make_bundle_name(at, sessions[0]), time=at, sessions=tuple(found))
            if select(connection, "SELECT 1 FROM bundle WHERE id = ?", (bundle.id,)):
                raise ConflictError("bundle in the trash", bundle.id, "exists")
            connection.execute("INSERT INTO bundle (id, time) VALUES (?, ?)", (bundle.id, to_integer(at)))
            for position, id in enumerate(sessions):
                connection.execute(
                    """INSERT INTO trashed_session (bundle, position, document)
                    SELECT ?, ?, document FROM session WHERE id = ?""",
                    (bundle.id, position, id),
                )
                connection.execute(
                    "UPDATE history SET bundle = ? WHERE session = ? AND bundle IS NULL", (bundle.id, id)
                )
            position = 0
            for id in reversed(sessions):  # in the order in which it is published
                position = log_deletion(connection, id)
                connection.execute("DELETE FROM session WHERE id = ?", (id,))
            return bundle, position

        bundle, position = await self.writer.run(write)
        self.change_log.note_stored(position)
        self._transcripts.forget(sessions)
        return bundle

    async def restore(self, bundle: str) -> TrashBundle:
        check_file_name("bundle", bundle)

        def write(connection: apsw.Connection) -> tuple[TrashBundle, int]:
            trashed, documents = _get_bundle(connection, bundle)
            writer, position = EventWriter(connection, now()), 0
            for session, document in zip(trashed.sessions, documents, strict=True):
                if select(connection, "SELECT 1 FROM session WHERE id = ?", (session.id,)):
                    raise ConflictError("session", session.id, "exists again")
                if writer.find_history(session.id) is not None:
                    raise StoreError(
                        f"messages of session {session.id} are in the way",
                        hint="weft storage gc removes them, then restore again",
                    )
                writer.put_session(to_session_row(session, document))
                position = log_change(connection, "created", session.id)
            connection.execute("UPDATE history SET bundle = NULL WHERE bundle = ?", (bundle,))
            _delete_bundle(connection, bundle)
            return trashed, position

        trashed, position = await self.writer.run(write)
        self.change_log.note_stored(position)
        return trashed

    async def purge(self, bundle: str) -> None:
        check_file_name("bundle", bundle)

        def write(connection: apsw.Connection) -> None:
            if not select(connection, "SELECT 1 FROM bundle WHERE id = ?", (bundle,)):
                raise NotFoundError("bundle in the trash", bundle)
            histories = select(connection, "SELECT number FROM history WHERE bundle = ?", (bundle,))
            for (number,) in histories:
                EventWriter(connection, now()).delete_history(number)
            _delete_bundle(connection, bundle)

        await self.writer.run(write)

    # --- leases ---

    @asynccontextmanager
    async def lease(self, session: SessionID, owner: str) -> AsyncIterator[LeaseToken]:
        with translate_errors(self.file.path):
            holder = self._holder.name or await asyncio.to_thread(self._holder.create)
        held: list[LeaseToken] = []

        def take(connection: apsw.Connection) -> LeaseToken:
            return take_lease(connection, self.file.locks, session, owner, holder)

        async def remember() -> None:
            held.append(await self.writer.run(take, "soon"))

        try:
            # If we are cancelled meanwhile, we still know which lease to give back.
            await run_to_completion(remember())
            yield held[0]
        finally:
            for token in held:
                await run_to_completion(self._give_back(token))

    async def _give_back(self, token: LeaseToken) -> None:
        self.change_log.note_stored(
            await self.writer.run(lambda connection: give_back(connection, token), "soon")
        )

    async def find_holder(self, session: SessionID) -> str | None:
        return await self._read(lambda reader: reader.find_holder(session))

    async def list_abandoned(self) -> list[SessionID]:
        """List sessions whose holder died, and remove the leases of sessions that no longer exist."""
        abandoned, gone = await self._read(self._find_abandoned)
        if gone:
            await self._write_if_possible(
                lambda connection: [drop_dead_lease(connection, self.file.locks, id) for id in gone]
            )
        return [session for session in abandoned if session not in gone]

    def _find_abandoned(self, reader: SqliteReader) -> tuple[list[SessionID], list[SessionID]]:
        with reader.reading() as connection:
            abandoned = list_leased(connection, self.file.locks, alive=False)
            return abandoned, list(list_gone(connection, abandoned))

    # --- reading ---

    async def list_projects(self) -> list[Project]:
        return await self._read(lambda reader: reader.list_projects())

    async def find_project(self, id: ProjectID) -> Project | None:
        return await self._read(lambda reader: reader.find_project(id))

    async def list_sessions(self, project: ProjectID | None = None) -> list[SessionInfo]:
        return await self._read(lambda reader: reader.list_sessions(project))

    async def query_sessions(self, query: SessionQuery) -> list[SessionInfo]:
        return await self._read(lambda reader: reader.query_sessions(query))

    async def get_session(self, id: SessionID) -> SessionInfo:
        return await self._read(lambda reader: reader.get_session(id))

    async def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        if last is None and before is None:
            return await self._read(lambda reader: list_cached_messages(reader, self._transcripts, session))
        return await self._read(lambda reader: reader.list_messages(session, last=last, before=before))

    async def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        return await self._read(lambda reader: reader.find_message(session, id))

    async def list_diff(self, session: SessionID) -> list[FileDiff]:
        return await self._read(lambda reader: reader.list_diff(session))

    async def list_todos(self, session: SessionID) -> list[Todo]:
        return await self._read(lambda reader: reader.list_todos(session))

    async def read_bundle(self, bundle: str) -> list[SessionExport]:
        check_file_name("bundle", bundle)
        return await self._read(lambda reader: reader.read_bundle(bundle))

    async def list_trash(self) -> list[TrashBundle]:
        return await self._read(lambda reader: reader.list_trash())

    async def find_value(self, key: Key) -> Any:
        return await self._read(lambda reader: reader.find_value(key))

    async def list_keys(self, prefix: Key = ()) -> list[Key]:
        return await self._read(lambda reader: reader.list_keys(prefix))

    async def read_log(self, log: Key) -> list[bytes]:
        return await self._read(lambda reader: reader.read_log(log))

    async def list_logs(self, prefix: Key = ()) -> list[Key]:
        return await self._read(lambda reader: reader.list_logs(prefix))

    async def read_chain(self, session: SessionID) -> ChainLines:
        return await self._read(lambda reader: reader.read_chain(session))

    async def damage(self) -> list[Damage]:
        return await self._read(find_damage)

    # --- searching ---

    async def search(self, words: str, *, limit: int, project: ProjectID | None = None) -> list[Hit]:
        await self.update_index({})
        return await self._read(lambda reader: reader.search_index(words, limit=limit, project=project))

    async def figures(self, query: StatisticsQuery) -> Figures:
        await self.update_index({})
        return await self._read(lambda reader: reader.select_figures(query))

    async def update_index(self, changed: Mapping[SessionID, Collection[MessageID]]) -> None:
        """Bring the index up to date. The database itself knows what changed, so `changed` is not needed."""
        del changed
        if await self._read(lambda reader: reader.has_stale()):
            while await self._write_if_possible(index_batch, "background"):
                pass

    # --- threads ---

    async def _write_if_possible(self, operation: Operation[T], urgency: Urgency = "soon") -> T | None:
        """Write what a read-only database can do without. Return None if it cannot be written."""
        try:
            return await self.writer.run(operation, urgency)
        except StoreError:
            return None

    async def _read(self, read: Callable[[SqliteReader], T]) -> T:
        """Run `read` in a thread, and report the damage that it found."""
        if self._closed:
            raise ClosedError("the store is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._use_reader, read)
        finally:
            if self._problems:
                self._report_problems()

    def _use_reader(self, read: Callable[[SqliteReader], T]) -> T:
        try:
            reader = self._readers.pop()
        except IndexError:
            reader = SqliteReader(self.file)
        try:
            return read(reader)
        finally:
            self._problems += reader.take_problems()
            self._readers.append(reader)

    def _report_problems(self) -> None:
        found, self._problems = self._problems, []
        for damage in found:
            if self._damaged is not None and damage.where not in self._reported:
                self._reported.add(damage.where)
                self._damaged(damage)


@asynccontextmanager
async def open_sqlite_store(
    path: str,
    *,
    options: SqliteOptions = DEFAULT_OPTIONS,
    damaged: Callable[[Damage], None] | None = None,
    upgrading: StepProgress = ignore_progress,
) -> AsyncIterator[SqliteStore]:
    """Open the store at a path. Raise `StoreError` if there is something else, or the database cannot be used."""
    store = SqliteStore(path, options=options, damaged=damaged)
    try:
        await store.prepare(upgrading)
        yield store
    finally:
        await run_to_completion(store.close())


# --- statements inside a transaction of the writer ---


def _get_session(connection: apsw.Connection, id: SessionID) -> SessionInfo:
    rows = select(connection, "SELECT document FROM session WHERE id = ?", (id,))
    if not rows:
        raise NotFoundError("session", id)
    try:
        return decode(rows[0][0], SessionInfo)
    except DocumentError as error:
        raise UnreadableError("session", id) from error


def _get_bundle(connection: apsw.Connection, id: str) -> tuple[TrashBundle, list[bytes]]:
    """Return a bundle and the documents of its sessions. Raise `NotFoundError` if there is no such bundle."""
    times = select(connection, "SELECT time FROM bundle WHERE id = ?", (id,))
    if not times:
        raise NotFoundError("bundle in the trash", id)
    rows = select(
        connection, "SELECT document FROM trashed_session WHERE bundle = ? ORDER BY position", (id,)
    )
    documents = [document for (document,) in rows]
    sessions = tuple(decode(document, SessionInfo, where=f"bundle {id}") for document in documents)
    return TrashBundle(id=id, time=times[0][0], sessions=sessions), documents


def _delete_bundle(connection: apsw.Connection, id: str) -> None:
    connection.execute("DELETE FROM trashed_session WHERE bundle = ?", (id,))
    connection.execute("DELETE FROM bundle WHERE id = ?", (id,))


def _find_value(connection: apsw.Connection, key: bytes) -> Any:
    for (document,) in select(connection, "SELECT document FROM value WHERE key = ?", (key,)):
        with suppress(DocumentError):
            return parse(document)
    return None


def _put_value(connection: apsw.Connection, key: bytes, document: bytes | None) -> None:
    if document is None:
        connection.execute("DELETE FROM value WHERE key = ?", (key,))
    else:
        connection.execute(UPSERT_VALUE, (key, document))


def _find_log(connection: apsw.Connection, key: bytes) -> int | None:
    rows = select(connection, "SELECT number FROM log WHERE key = ?", (key,))
    return rows[0][0] if rows else None
