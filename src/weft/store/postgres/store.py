"""The Postgres store: a `Store` in one schema of a database that any number of processes share.

An `apply` is one call of a function with arrays of encoded rows: one round trip, and no transaction is open while anything is
encoded. What a callback changes (`edit`, `update_value`, `append_log`) is read first and written only if nobody wrote meanwhile,
so no lock is held while the callback runs.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from weakref import WeakValueDictionary

from weft.errors import ConflictError, LeaseLostError, NotFoundError, StoreError
from weft.host.clock import Clock, SystemClock
from weft.host.now import now as read_clock
from weft.host.processes import describe_process
from weft.host.tasks import open_tasks
from weft.model.damage import Damage
from weft.model.event import Durable, SessionDeleted, SessionUpdated
from weft.model.ids import MessageID, ProjectID, SessionID, check_file_name
from weft.model.message import MessageWithParts
from weft.model.search import Figures, Hit
from weft.model.session import SessionInfo, TrashBundle, make_bundle_name
from weft.model.wire import encode
from weft.store.contract import NO_LEASES, Key, LogExtender, SessionEditor, UpgradeProgress
from weft.store.event_log import LogBatch, LoggedEvent, LogHead
from weft.store.lease import LeaseToken
from weft.store.postgres.address import parse_address
from weft.store.postgres.batch import RowBatch
from weft.store.postgres.cluster import PostgresCluster
from weft.store.postgres.connection import Database, StatementResult, open_database
from weft.store.postgres.documents import PostgresDocuments, check_key, list_cached_messages
from weft.store.postgres.event_log import APPEND_PLACED, PostgresLog, with_log
from weft.store.postgres.lease import LeaseKeeper, raise_lost
from weft.store.postgres.migration import bind_owner, prepare_schema
from weft.store.postgres.search import SearchIndex
from weft.store.rows import to_ascii, to_integer
from weft.store.statistics import StatisticsQuery
from weft.store.transcript_cache import TranscriptCache

REVISION_BITS = 62
# Somebody else always succeeded when we did not, so this many attempts mean that something is wrong.
MAX_ATTEMPTS = 1_000
# What a function in the database answers. Other answers are None, if it is done, and "changed", if the revision is not as expected.
EXISTS, LOST = "exists", "lost "

# The last two values are for `extend_chains`, all before them for `apply` (see `RowBatch.to_arguments`).
APPLY_VALUES = 46
_ROWS = ", ".join(f"${n}" for n in range(1, APPLY_VALUES - 1))
CALL_APPLY = f"{{schema}}.extend_chains({{schema}}.apply({_ROWS}), ${APPLY_VALUES - 1}, ${APPLY_VALUES})"
APPLY = f"SELECT {CALL_APPLY}"
APPLY_LOGGED = with_log(CALL_APPLY, APPLY_VALUES)
APPLY_PLACED = with_log(CALL_APPLY, APPLY_VALUES, APPEND_PLACED)
SELECT_FOR_EDIT = """SELECT {schema}.see_lost_lease($2, $3), document, revision
FROM (SELECT) AS one LEFT JOIN {schema}.session ON id = $1"""
SELECT_FOR_UPDATE_VALUE = """SELECT {schema}.see_lost_lease($2, $3), document, revision
FROM (SELECT) AS one LEFT JOIN {schema}.value ON key = $1"""
PUT_VALUE = "SELECT {schema}.put_value($1, $2, $3, $4, $5, $6)"
SELECT_LAST_LINE = """SELECT last, (SELECT line FROM {schema}.log_line WHERE log_line.log = log.id AND number = last)
FROM {schema}.log WHERE name = $1"""
APPEND_LOG = "SELECT {schema}.append_log($1, $2, $3, $4)"
TRIM_LOG = "SELECT {schema}.trim_log($1, $2)"
SELECT_FOR_DISCARD = "SELECT id, revision, document FROM {schema}.session WHERE id = ANY ($1)"
CALL_DISCARD = "{schema}.discard($1, $2, $3, $4, $5, $6)"
DISCARD, DISCARD_LOGGED = f"SELECT {CALL_DISCARD}", with_log(CALL_DISCARD, 6)
SELECT_BUNDLE = "SELECT document FROM {schema}.bundle WHERE id = $1"
CALL_RESTORE = "{schema}.restore($1, $2)"
RESTORE, RESTORE_LOGGED = f"SELECT {CALL_RESTORE}", with_log(CALL_RESTORE, 2)
PURGE = "SELECT {schema}.purge($1)"


class PostgresStore(PostgresDocuments):
    """Stores events in Postgres. Create one with `open_postgres_store`."""

    def __init__(
        self,
        database: Database,
        keeper: LeaseKeeper,
        log: PostgresLog,
        damaged: Callable[[Damage], None] | None = None,
    ) -> None:
        super().__init__(database, damaged)
        self._keeper = keeper
        self._log = log
        self.cluster = PostgresCluster(database, log)
        self._index = SearchIndex(self)
        self._transcripts = TranscriptCache()
        self._turns: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    change_log = None

    @property
    def event_log(self) -> "PostgresStore":
        return self

    @property
    def shared_log(self) -> "PostgresStore":
        return self

    @property
    def inbox(self) -> PostgresCluster:
        return self.cluster

    async def apply(
        self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES, log: LogBatch | None = None
    ) -> None:
        if events or leases or log:
            await self._apply(RowBatch(events), leases, log=log)
        self._transcripts.forget(event.info.id for event in events if isinstance(event, SessionDeleted))

    async def _apply(
        self,
        batch: RowBatch,
        leases: Sequence[LeaseToken],
        expected: int | None = None,
        log: LogBatch | None = None,
    ) -> bool:
        """Apply a batch. Return False if the session does not have the expected revision."""
        revision = make_revision()
        values = batch.to_arguments(leases, revision=revision, now=read_clock(), expected=expected)
        places = log is not None and log.place_now and self._log.may_place()
        return _is_done(
            await self._send(APPLY, APPLY_PLACED if places else APPLY_LOGGED, values, revision, log)
        )

    async def _send(
        self, plain: str, logged: str, values: Sequence[Any], revision: int, log: LogBatch | None
    ) -> StatementResult:
        """Send a statement, or the one that also logs if there is something to log."""
        if log is None or not log.entries:
            return await self.database.send(plain, *values)
        arguments = self._log.to_arguments(log, revision)
        result = await self.database.send(logged, *values, *arguments, urgent=log.place_now)
        self._log.note_appended(placed=result.rows[0][1] is True)
        return result

    async def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        if last is None and before is None:
            return await list_cached_messages(self, self._transcripts, session)
        return await super().list_messages(session, last=last, before=before)

    @property
    def poll_seconds(self) -> float:
        return self._log.poll_seconds

    async def place(self) -> int:
        return await self._log.place()

    async def read(self, after: int, *, limit: int) -> list[LoggedEvent]:
        return await self._log.read(after, limit=limit)

    async def get_head(self) -> LogHead:
        return await self._log.get_head()

    async def read_own(self, owner: str, after: int, *, limit: int) -> list[LoggedEvent]:
        return await self._log.read_own(owner, after, limit=limit)

    async def find_own_last(self, owner: str, position: int) -> int:
        return await self._log.find_own_last(owner, position)

    async def trim(self, *, seconds: float, most: int) -> int:
        return await self._log.trim(seconds=seconds, most=most)

    def listen(self, wake: Callable[[], None]) -> AbstractAsyncContextManager[None]:
        return self._log.listen(wake)

    def watch_leases(self, lost: Callable[[LeaseLostError], None]) -> None:
        self._keeper.watchers.append(lost)

    def unwatch_leases(self, lost: Callable[[LeaseLostError], None]) -> None:
        self._keeper.watchers.remove(lost)

    async def edit(
        self,
        session: SessionID,
        editor: SessionEditor,
        *events: Durable,
        leases: Sequence[LeaseToken] = NO_LEASES,
        log: Callable[[SessionInfo], LogBatch] | None = None,
    ) -> SessionInfo:
        async with self._take_turn("session", session):
            for _ in range(MAX_ATTEMPTS):
                ((lost, raw, revision),) = await self.database.fetch(
                    SELECT_FOR_EDIT, to_ascii(session), *_to_tokens(leases)
                )
                if lost is not None:
                    raise_lost(lost)
                stored = self.decode_session(session, raw)
                edited = editor(stored)
                if edited == stored and not events and log is None:
                    return edited
                batch = RowBatch([*events, SessionUpdated(info=edited)])
                if await self._apply(batch, leases, revision, None if log is None else log(edited)):
                    return edited
        raise self._make_contention_error()

    async def discard(
        self,
        sessions: Sequence[SessionID],
        *,
        at: int,
        log: Callable[[TrashBundle], LogBatch] | None = None,
    ) -> TrashBundle:
        ids = list(dict.fromkeys(to_ascii(id) for id in sessions))
        for _ in range(MAX_ATTEMPTS):
            rows = {row[0]: row for row in await self.database.fetch(SELECT_FOR_DISCARD, ids)}
            found = tuple(
                self.decode_session(id, rows[key][2] if (key := to_ascii(id)) in rows else None)
                for id in sessions
            )
            bundle = TrashBundle(
                id=check_file_name("bundle", make_bundle_name(at, sessions[0])), time=at, sessions=found
            )
            revisions, revision = [rows[key][1] for key in ids], make_revision()
            values = (ids, revisions, bundle.id, to_integer(at), encode(bundle), revision)
            batch = None if log is None else log(bundle)
            result = await self._send(DISCARD, DISCARD_LOGGED, values, revision, batch)
            if result.rows[0][0] == EXISTS:
                raise ConflictError("bundle in the trash", bundle.id, "exists already")
            if _is_done(result):
                self._transcripts.forget(sessions)
                return bundle
        raise self._make_contention_error()

    async def restore(
        self, bundle: str, *, log: Callable[[TrashBundle], LogBatch] | None = None
    ) -> TrashBundle:
        trashed = await self._get_bundle(bundle)
        revision, batch = make_revision(), None if log is None else log(trashed)
        result = await self._send(RESTORE, RESTORE_LOGGED, (to_ascii(bundle), revision), revision, batch)
        existing = result.rows[0][0]
        if existing is None or (result.repeated and not existing):
            return trashed  # if it was repeated, the bundle is gone because the first attempt has restored it
        for session in trashed.sessions:
            if session.id in existing:
                raise ConflictError("session", session.id, "exists again")
        raise NotFoundError("bundle in the trash", bundle)

    async def purge(self, bundle: str) -> None:
        result = await self.database.send(PURGE, to_ascii(bundle))
        if not result.rows[0][0] and not result.repeated:
            raise NotFoundError("bundle in the trash", bundle)

    async def _get_bundle(self, id: str) -> TrashBundle:
        raw = await self.database.fetch_value(SELECT_BUNDLE, to_ascii(id))
        bundle = None if raw is None else self.decode(f"bundle/{id}", raw, TrashBundle)
        if bundle is None:
            raise NotFoundError("bundle in the trash", id)
        found: TrashBundle = bundle
        return found

    async def put_value(self, key: Key, value: Any) -> None:
        await self._put_value(check_key("key", key), value, None, NO_LEASES)

    async def _put_value(
        self, key: list[str], value: Any, expected: int | None, leases: Sequence[LeaseToken]
    ) -> bool:
        """Replace a value. Return False if it does not have the expected revision."""
        raw = None if value is None else encode(value)
        return _is_done(
            await self.database.send(PUT_VALUE, key, raw, make_revision(), expected, *_to_tokens(leases))
        )

    async def update_value(
        self, key: Key, change: Callable[[Any], Any], *, leases: Sequence[LeaseToken] = NO_LEASES
    ) -> Any:
        words = check_key("key", key)
        async with self._take_turn("value", *key):
            for _ in range(MAX_ATTEMPTS):
                ((lost, raw, revision),) = await self.database.fetch(
                    SELECT_FOR_UPDATE_VALUE, words, *_to_tokens(leases)
                )
                if lost is not None:
                    raise_lost(lost)
                new_value = change(None if raw is None else self.parse_value(key, raw))
                if await self._put_value(words, new_value, revision or 0, leases):
                    return new_value
        raise self._make_contention_error()

    async def append_log(self, log: Key, extend: LogExtender) -> None:
        name = check_key("log", log)
        async with self._take_turn("log", *log):
            for _ in range(MAX_ATTEMPTS):
                rows = await self.database.fetch(SELECT_LAST_LINE, name)
                number, last = rows[0] if rows else (0, None)
                lines = list(extend(last))
                if not lines or _is_done(
                    await self.database.send(APPEND_LOG, name, number, make_revision(), lines)
                ):
                    return
        raise self._make_contention_error()

    async def trim_log(self, log: Key, *, keep: int) -> int:
        kept = to_integer(max(0, keep))
        return int(await self.database.fetch_value(TRIM_LOG, check_key("log", log), kept))

    def lease(self, session: SessionID, owner: str) -> AbstractAsyncContextManager[LeaseToken]:
        return self._keeper.hold(session, owner)

    async def search(self, words: str, *, limit: int, project: ProjectID | None = None) -> list[Hit]:
        return await self._index.search(words, limit=limit, project=project)

    async def figures(self, query: StatisticsQuery) -> Figures:
        return await self._index.compute_figures(query)

    async def update_index(self, changed: Mapping[SessionID, Collection[MessageID]]) -> None:
        """Index what changed in these sessions. Marks in the store itself say which messages changed."""
        with suppress(StoreError):  # their marks stay
            await self._index.update(list(changed))

    def _take_turn(self, *key: str) -> asyncio.Lock:
        """Return the lock of a key. Callbacks of this process take turns, because only one of them could succeed."""
        return self._turns.setdefault(key, asyncio.Lock())

    def _make_contention_error(self) -> StoreError:
        return StoreError(
            f"{self.database.address.place}: other processes keep changing the same document",
            hint="try again",
        )


def make_revision() -> int:
    """Return a number that no other write has."""
    return secrets.randbits(REVISION_BITS) + 1


def _to_tokens(leases: Sequence[LeaseToken]) -> tuple[list[str], list[int]]:
    return [to_ascii(token.session) for token in leases], [token.generation for token in leases]


def _is_done(result: StatementResult) -> bool:
    """Return True if a function did its work, False if others changed something meanwhile.

    Raise `LeaseLostError` if a lease was lost, and `StoreError` if it is impossible to tell whether the work was done.
    """
    answer = result.rows[0][0]
    if answer is None:
        return True
    if answer.startswith(LOST):
        raise_lost(answer.removeprefix(LOST))
    if result.repeated:
        raise StoreError(
            "the connection to the database was lost during a change, and somebody else changed the same document meanwhile",
            hint="check whether your change was made, and repeat it if it was not",
        )
    return False


@asynccontextmanager
async def open_postgres_store(
    url: str,
    *,
    damaged: Callable[[Damage], None] | None = None,
    clock: Clock | None = None,
    principal: str | None = None,
    opened: PostgresStore | None = None,
    upgrading: UpgradeProgress = lambda _done, _total: None,
) -> AsyncIterator[PostgresStore]:
    """Open the store at a URL. Create its schema if there is none. Raise `StoreError` if that is not possible.

    With a `principal`, the database shows only what belongs to it. `opened` is the whole store, if it is open already: both then use
    the same connections.
    """
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        if opened is None:
            database = await stack.enter_async_context(open_database(parse_address(url), clock))
            await prepare_schema(database, upgrading)
        else:
            database = opened.database
        if principal is not None:
            database = await bind_owner(database, principal)
        tasks = await stack.enter_async_context(open_tasks())
        keeper = LeaseKeeper(database, clock)
        log = PostgresLog(database, clock, writer=describe_process())
        background = [tasks.create_task(keeper.renew_forever()), tasks.create_task(log.keep_placing())]
        try:
            yield PostgresStore(database, keeper, log, damaged)
        finally:
            for task in background:
                task.cancel()
            await log.close()
