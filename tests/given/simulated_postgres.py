"""A simulated Postgres server with several nodes: the statements of weft by name, transactions that commit late, and a network.

The classes of `weft.store.postgres` run on it as they are: it takes the place of the driver. It knows the statements about leases,
nodes, deliveries and the log one by one. Documents are kept in a `MemoryStore`, which reading methods of `SimulatedStore` ask
directly. Like Postgres it shows what was committed only, locks rows until the end of a transaction, and finishes a statement
whose client has gone.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from weft.errors import NotFoundError
from weft.model.diff import FileDiff
from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    ProjectUpdated,
    SessionDeleted,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AnyMessage
from weft.model.part import AnyPart
from weft.model.project import Project
from weft.model.session import SessionInfo, Todo, TrashBundle
from weft.model.wire import decode, encode, parse
from weft.store.memory import MemoryStore
from weft.store.postgres import cluster, connection, documents, event_log, lease
from weft.store.postgres import store as postgres_store
from weft.store.postgres.batch import DIFF
from weft.store.postgres.migration import get_newest_version
from weft.testing.store_samples import session as make_session

SCHEMA = "sim"
READ_DOCUMENTS = "read the documents"  # no SQL: a method of `MemoryStore` and its arguments
Rows = list[tuple[Any, ...]]


# --- rows ---


class LeaseRow(NamedTuple):
    owner: bytes
    generation: int
    attempt: int
    till: float | None
    changed: float


class EventRow(Struct):
    id: int
    batch: int
    number: int
    writer: bytes
    directory: bytes
    session: str | None
    body: bytes
    written: float
    position: int | None = None


class NodeRow(Struct):
    id: str
    owner: bytes
    name: str
    url: str
    version: str
    roots: list[bytes]
    lease_seconds: float
    heartbeat: float
    draining: bool = False


class DeliveryRow(Struct):
    number: int
    key: str
    session: str
    directory: bytes
    kind: str
    repeatable: bool
    body: bytes
    stored: float
    taker: str | None = None
    takes: int = 0
    outcome: bytes | None = None
    done: float | None = None
    wait_told: bool | None = None


class Transaction:
    """What a statement has locked, and what it does when it commits. Nothing is visible to others before."""

    def __init__(self, locks: "defaultdict[tuple[str, Any], asyncio.Lock]") -> None:
        self._locks = locks
        self._held: list[tuple[str, Any]] = []
        self.changes: list[Callable[[], None]] = []

    async def lock(self, table: str, key: Any) -> None:
        if (table, key) not in self._held:
            await self._locks[table, key].acquire()
            self._held.append((table, key))

    def is_locked(self, table: str, key: Any) -> bool:
        """Return True if another transaction has locked a row."""
        return (table, key) not in self._held and self._locks[table, key].locked()

    def end(self, *, commit: bool) -> None:
        if commit:
            for change in self.changes:
                change()
        for key in self._held:
            self._locks[key].release()


Statement = Callable[..., Awaitable[Rows]]


class SimulatedPostgres:
    """The server. `statements` maps the text of a statement to what it does, so that a test can plant a mistake there."""

    def __init__(self, tasks: asyncio.TaskGroup, *, commit_delay: Callable[[], float]) -> None:
        self._tasks = tasks
        self._commit_delay = commit_delay
        self._locks: defaultdict[tuple[str, Any], asyncio.Lock] = defaultdict(asyncio.Lock)
        self.documents = MemoryStore()
        self.revisions: dict[str, int] = {}
        self.values: dict[tuple[str, ...], tuple[bytes, int]] = {}
        self.lines: dict[tuple[str, ...], tuple[int, int, list[bytes]]] = {}
        self.leases: dict[str, LeaseRow] = {}
        self.nodes: dict[str, NodeRow] = {}
        self.deliveries: dict[str, DeliveryRow] = {}
        self.keys: dict[tuple[str, str], str] = {}
        self.events: dict[tuple[int, int], EventRow] = {}
        self.placed: list[EventRow] = []
        self.trimmed = 0
        self.unplaced: list[EventRow] = []
        self._sequences: defaultdict[str, int] = defaultdict(int)
        self.listeners: list[Callable[[], None]] = []
        # Called when they commit, for whoever checks them: a write with the leases that it names, and a delivery that a node
        # takes although another one has it.
        self.on_write: Callable[[dict[str, int], list[Durable]], None] = lambda *_: None
        self.on_take: Callable[[DeliveryRow, str], None] = lambda *_: None
        self.statements: dict[str, Statement] = {
            sql.replace("{schema}", SCHEMA): statement for sql, statement in self._list_statements()
        }

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def count_up(self, sequence: str) -> int:
        """Return the next number of a sequence, which no transaction gives back."""
        self._sequences[sequence] += 1
        return self._sequences[sequence]

    async def execute(self, sql: str, values: Sequence[Any]) -> Rows:
        """Carry out a statement as one transaction."""
        transaction = Transaction(self._locks)
        try:
            rows = await self.statements[sql](transaction, *values)
            if transaction.changes and (delay := self._commit_delay()):
                await asyncio.sleep(delay)
        except BaseException:
            transaction.end(commit=False)
            raise
        transaction.end(commit=True)
        return rows

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something on the server, even if its client disappears."""
        self._tasks.create_task(work)

    def _list_statements(self) -> list[tuple[str, Statement]]:
        return [
            (connection.PROBE, self._probe),
            (READ_DOCUMENTS, self._read_documents),
            (lease.TAKE, self.take_lease),
            (lease.RENEW, self.renew_leases),
            (lease.GIVE_BACK, self._give_lease_back),
            (lease.SELECT_OWNER, self._select_owner),
            (documents.SELECT_ABANDONED, self._select_abandoned),
            (postgres_store.APPLY, self.apply),
            (postgres_store.APPLY_LOGGED, self.apply),
            (postgres_store.APPLY_PLACED, self._apply_placed),
            (postgres_store.SELECT_FOR_EDIT, self._select_for_edit),
            (postgres_store.SELECT_FOR_UPDATE_VALUE, self._select_for_update),
            (postgres_store.PUT_VALUE, self._put_value),
            (postgres_store.SELECT_LAST_LINE, self._select_last_line),
            (postgres_store.APPEND_LOG, self._append_log),
            (postgres_store.TRIM_LOG, self._trim_log),
            (postgres_store.SELECT_FOR_DISCARD, self._select_for_discard),
            (postgres_store.DISCARD, self._discard),
            (postgres_store.DISCARD_LOGGED, self._discard),
            (postgres_store.SELECT_BUNDLE, self._select_bundle),
            (postgres_store.RESTORE, self._restore),
            (postgres_store.RESTORE_LOGGED, self._restore),
            (postgres_store.PURGE, self._purge),
            (event_log.PLACE, self.place_events),
            (event_log.READ, self.read_events),
            (event_log.SELECT_HEAD, self._select_head),
            (event_log.TRIM, self._trim_events),
            (cluster.JOIN, self._join),
            (cluster.BEAT, self._beat),
            (cluster.LEAVE, self._leave),
            (cluster.DRAIN, self._drain),
            (cluster.PUT, self._put_delivery),
            (cluster.TAKE, self.take_deliveries),
            (cluster.FINISH, self.finish_delivery),
            (cluster.GIVE_BACK, self._give_deliveries_back),
            (cluster.WITHDRAW, self._withdraw),
            (cluster.WITHDRAW_ALL, self._withdraw_all),
            (cluster.SELECT_BEGUN, self._select_begun),
            (cluster.SELECT_WAITING, self._select_waiting),
            (cluster.SELECT_UNTOLD, self._select_untold),
            (cluster.SELECT_ORPHANED, self._select_orphaned),
            (cluster.TELL_WAITING, self._tell_waiting),
            (cluster.SELECT_STATE, self._select_state),
            (cluster.SELECT_ELSEWHERE, self._select_elsewhere),
            (cluster.SELECT_RUNNING, self._select_running),
            (cluster.SELECT_ABANDONED, self._select_left),
            (cluster.SELECT_SUCCESSOR, self._select_successor),
            (cluster.CLAIM, self._claim),
            (cluster.TIDY, self._tidy),
        ]

    async def _probe(self, _: Transaction) -> Rows:
        return [(connection.MIN_SERVER_VERSION, "simulated", 1, "UTF8")]

    async def _read_documents(self, _: Transaction, method: str, given: Any, named: Any) -> Rows:
        return [(await getattr(self.documents, method)(*given, **named),)]

    # --- leases ---

    async def take_lease(
        self, transaction: Transaction, session: str, owner: bytes, attempt: int, seconds: float
    ) -> Rows:
        await transaction.lock("lease", session)
        held = self.leases.get(session)
        free = held is None or held.till is None or held.till < self.now() or held.attempt == attempt
        if not free:
            return []
        row = LeaseRow(owner, self.count_up("generation"), attempt, self.now() + seconds, self.now())
        transaction.changes.append(lambda: self.leases.update({session: row}))
        return [(row.generation,)]

    async def renew_leases(
        self, transaction: Transaction, sessions: list[str], generations: list[int], seconds: float
    ) -> Rows:
        rows: Rows = []
        for session, generation in zip(sessions, generations, strict=True):
            await transaction.lock("lease", session)
            held = self.leases.get(session)
            if held is not None and held.generation == generation and held.till is not None:
                renewed = held._replace(till=self.now() + seconds)
                transaction.changes.append(lambda key=session, row=renewed: self.leases.update({key: row}))
                rows.append((session, generation))
        return rows

    async def _give_lease_back(self, transaction: Transaction, session: str, generation: int) -> Rows:
        await transaction.lock("lease", session)
        held = self.leases.get(session)
        if held is not None and held.generation == generation:
            row = held._replace(till=None, changed=self.now())
            transaction.changes.append(lambda: self.leases.update({session: row}))
        return []

    def find_live_lease(self, session: str) -> LeaseRow | None:
        held = self.leases.get(session)
        return held if held is not None and held.till is not None and held.till >= self.now() else None

    async def _select_owner(self, _: Transaction, session: str) -> Rows:
        held = self.find_live_lease(session)
        return [] if held is None else [(held.owner,)]

    async def _select_abandoned(self, _: Transaction) -> Rows:
        known = await self.documents.list_sessions()
        ended = {id for id, held in self.leases.items() if held.till is not None and held.till < self.now()}
        return [(session.id,) for session in sorted(known, key=lambda it: it.id) if session.id in ended]

    async def find_lost_lease(
        self, transaction: Transaction, sessions: Sequence[str], generations: Sequence[int]
    ) -> str | None:
        for session, generation in sorted(zip(sessions, generations, strict=True)):
            await transaction.lock("lease", session)
            if lost := self._see_lost_lease([session], [generation]):
                return lost
        return None

    def _see_lost_lease(self, sessions: Sequence[str], generations: Sequence[int]) -> str | None:
        for session, generation in sorted(zip(sessions, generations, strict=True)):
            held = self.leases.get(session)
            if held is None or held.till is None:
                return f"{session} "
            if held.generation != generation:
                return f"{session} {held.owner.hex()}"
        return None

    # --- documents ---

    async def apply(self, transaction: Transaction, *values: Any) -> Rows:
        sessions, generations, expected, revision = values[:4]
        batch = values[postgres_store.APPLY_VALUES :][:1]
        if batch and (batch[0], 0) in self.events:
            return [(None, None)]
        lost = await self.find_lost_lease(transaction, sessions, generations)
        if lost is not None:
            return [(f"lost {lost}", None)]
        events = list(to_events(values[4 : postgres_store.APPLY_VALUES]))
        touched = {
            session for event in events if isinstance(event, SessionUpdated) for session in (event.info.id,)
        }
        for session in sorted(touched):
            await transaction.lock("session", session)
        if expected is not None:
            known = self.revisions.get(next(iter(touched)))
            if known not in (expected, revision):
                return [("changed", None)]

        def change() -> None:
            self.on_write(dict(zip(sessions, generations, strict=True)), events)
            run_at_once(self.documents.apply(*events))
            self.revisions.update(dict.fromkeys(touched, revision))
            for event in events:
                if isinstance(event, SessionDeleted):
                    self.revisions.pop(event.info.id, None)

        transaction.changes.append(change)
        await self.append_events(transaction, *values[postgres_store.APPLY_VALUES :])
        return [(None, None)]

    async def _apply_placed(self, transaction: Transaction, *values: Any) -> Rows:
        batch = values[postgres_store.APPLY_VALUES]
        ((answer, _),) = await self.apply(transaction, *values)
        if answer is not None or transaction.is_locked("event_log", None):
            return [(answer, False)]
        await transaction.lock("event_log", None)
        earlier, is_late = sorted(self.unplaced, key=lambda row: row.id), (batch, 0) in self.events

        def change() -> None:
            own = [] if is_late else [row for row in self.unplaced if row.batch == batch]
            self._place([*earlier, *own])

        transaction.changes.append(change)
        return [(None, not is_late)]

    async def _select_for_edit(
        self, _: Transaction, session: str, sessions: list[str], generations: list[int]
    ) -> Rows:
        lost = self._see_lost_lease(sessions, generations)
        try:
            raw = encode(await self.documents.get_session(SessionID(session)))
        except NotFoundError:
            return [(lost, None, None)]
        return [(lost, raw, self.revisions[session])]

    async def _select_for_update(
        self, _: Transaction, key: list[str], sessions: list[str], generations: list[int]
    ) -> Rows:
        lost = self._see_lost_lease(sessions, generations)
        return [(lost, *self.values.get(tuple(key), (None, None)))]

    async def _put_value(
        self,
        transaction: Transaction,
        key: list[str],
        raw: bytes | None,
        revision: int,
        expected: int | None,
        *tokens: list[Any],
    ) -> Rows:
        lost = await self.find_lost_lease(transaction, *tokens)
        if lost is not None:
            return [(f"lost {lost}",)]
        await transaction.lock("value", tuple(key))
        known = self.values.get(tuple(key), (b"", 0))[1]
        if expected is not None and known not in (expected, revision):
            return [("changed",)]

        def change() -> None:
            if raw is None:
                self.values.pop(tuple(key), None)
            else:
                self.values[tuple(key)] = raw, revision
            run_at_once(self.documents.put_value(tuple(key), None if raw is None else parse(raw)))

        transaction.changes.append(change)
        return [(None,)]

    async def _select_last_line(self, _: Transaction, name: list[str]) -> Rows:
        last, _, lines = self.lines.get(tuple(name), (0, 0, []))
        return [(last, lines[-1] if lines else None)]

    async def _append_log(
        self, transaction: Transaction, name: list[str], expected: int, revision: int, added: list[bytes]
    ) -> Rows:
        key = tuple(name)
        await transaction.lock("log", key)
        last, known, lines = self.lines.get(key, (0, 0, []))
        if known == revision:
            return [(None,)]
        if last != expected:
            return [("changed",)]

        def change() -> None:
            self.lines[key] = last + len(added), revision, [*lines, *added]
            run_at_once(self.documents.append_log(key, lambda _: added))

        transaction.changes.append(change)
        return [(None,)]

    async def _trim_log(self, transaction: Transaction, name: list[str], keep: int) -> Rows:
        key = tuple(name)
        await transaction.lock("log", key)
        last, known, lines = self.lines.get(key, (0, 0, []))
        transaction.changes.append(
            lambda: self.lines.update({key: (last, known, lines[max(0, len(lines) - keep) :])})
        )
        return [(await self.documents.trim_log(key, keep=keep),)]

    async def _select_for_discard(self, _: Transaction, ids: list[str]) -> Rows:
        return [
            (info.id, self.revisions[info.id], encode(info))
            for info in await self.documents.list_sessions()
            if info.id in ids
        ]

    async def _discard(
        self, transaction: Transaction, ids: list[str], revisions: list[int], bundle: str, *rest: Any
    ) -> Rows:
        at, _, revision, *log = rest
        for id in ids:
            await transaction.lock("session", id)
        if any(each.id == bundle for each in await self.documents.list_trash()):
            return [("exists", None)]
        if [self.revisions.get(id) for id in ids] != revisions:
            return [("changed", None)]
        sessions = [SessionID(id) for id in ids]
        transaction.changes.append(lambda: run_at_once(self.documents.discard(sessions, at=at)))
        await self.append_events(transaction, *log)
        return [(None, revision)]

    async def _select_bundle(self, _: Transaction, id: str) -> Rows:
        return [(encode(each),) for each in await self.documents.list_trash() if each.id == id]

    async def _restore(self, transaction: Transaction, id: str, revision: int, *log: Any) -> Rows:
        found = next((each for each in await self.documents.list_trash() if each.id == id), None)
        existing = {session.id for session in await self.documents.list_sessions()}
        if found is None:
            return [([], None)]
        taken = [session.id for session in found.sessions if session.id in existing]
        if taken:
            return [(taken, None)]

        def change(bundle: TrashBundle = found) -> None:
            run_at_once(self.documents.restore(id))
            self.revisions.update({session.id: revision for session in bundle.sessions})

        transaction.changes.append(change)
        await self.append_events(transaction, *log)
        return [(None, None)]

    async def _purge(self, transaction: Transaction, id: str) -> Rows:
        if all(each.id != id for each in await self.documents.list_trash()):
            return [(False,)]
        transaction.changes.append(lambda: run_at_once(self.documents.purge(id)))
        return [(True,)]

    # --- the log ---

    async def append_events(
        self,
        transaction: Transaction,
        batch: int = 0,
        writer: bytes = b"",
        directory: bytes = b"",
        sessions: Sequence[str | None] = (),
        bodies: Sequence[bytes] = (),
    ) -> None:
        if bodies:
            await transaction.lock(
                "batch", batch
            )  # as the unique key does, until the first attempt has ended
        for number, (session, body) in enumerate(zip(sessions, bodies, strict=True)):
            if (batch, number) not in self.events:
                id = self.count_up("event")
                row = EventRow(id, batch, number, writer, directory, session, body, self.now())
                transaction.changes.append(lambda row=row: self._show_event(row))

    def _show_event(self, row: EventRow) -> None:
        self.events[row.batch, row.number] = row
        self.unplaced.append(row)

    async def place_events(self, transaction: Transaction, most: int) -> Rows:
        if self.unplaced:
            await transaction.lock("event_log", None)
            rows = sorted(self.unplaced, key=lambda row: row.id)[:most]
            if rows:
                last = self.trimmed + len(self.placed) + len(rows)
                transaction.changes.append(lambda: self._place(rows))
                return [(last,)]
        return [(self.trimmed + len(self.placed),)]

    def _place(self, rows: Sequence[EventRow]) -> None:
        for row in rows:
            self.placed.append(row)
            row.position = self.trimmed + len(self.placed)
            self.unplaced.remove(row)
        for wake in list(self.listeners):
            wake()

    async def read_events(self, _: Transaction, after: int, limit: int) -> Rows:
        last, begin = self.trimmed + len(self.placed), max(0, after - self.trimmed)
        head = ("simulated", last, self.trimmed)
        return [
            (
                *head,
                row.position,
                row.writer,
                row.directory,
                row.session,
                row.body,
                self.now() - row.written,
                "",
                None,
                True,
            )
            for row in self.placed[begin : begin + limit]
        ] or [(*head, *[None] * 9)]

    async def _select_head(self, _: Transaction) -> Rows:
        return [("simulated", self.trimmed + len(self.placed), self.trimmed)]

    async def _trim_events(self, transaction: Transaction, seconds: float, most: int) -> Rows:
        if transaction.is_locked("event_log", None):
            return [(0,)]
        await transaction.lock("event_log", None)
        old = sum(row.written < self.now() - seconds for row in self.placed)
        removed = max(old, len(self.placed) - most)

        def change() -> None:
            del self.placed[:removed]
            self.trimmed += removed

        transaction.changes.append(change)
        return [(removed,)]

    # --- nodes and deliveries ---

    def is_alive(self, node: str | None) -> bool:
        row = self.nodes.get(node or "")
        return row is not None and row.heartbeat + row.lease_seconds >= self.now()

    async def _join(self, transaction: Transaction, id: str, owner: bytes, *rest: Any) -> Rows:
        def change() -> None:
            known = self.nodes.get(id)
            for other in [row.id for row in self.nodes.values() if row.owner == owner and row.id != id]:
                del self.nodes[other]
            self.nodes[id] = NodeRow(id, owner, *rest, self.now(), known.draining if known else False)

        transaction.changes.append(change)
        return []

    async def _beat(self, transaction: Transaction, id: str) -> Rows:
        row = self.nodes.get(id)
        if row is None:
            return []
        transaction.changes.append(lambda: setattr(row, "heartbeat", self.now()))
        return [(row.draining, get_newest_version())]

    async def _leave(self, transaction: Transaction, id: str) -> Rows:
        for row in [each for each in self.deliveries.values() if each.taker == id]:
            # Somebody may be taking it, if we were taken for dead.
            await transaction.lock("delivery", row.key)
            if row.taker == id and row.done is None:
                transaction.changes.append(lambda row=row: setattr(row, "taker", None))

        def change() -> None:
            left = self.nodes.pop(id, None)
            for session, held in list(self.leases.items()):
                if left is not None and held.owner == left.owner and held.till is not None:
                    self.leases[session] = held._replace(till=min(held.till, self.now()))

        transaction.changes.append(change)
        return []

    async def _drain(self, transaction: Transaction, name: str) -> Rows:
        found = [row for row in self.nodes.values() if name in (row.id, row.name) and self.is_alive(row.id)]
        for row in found:
            transaction.changes.append(lambda row=row: setattr(row, "draining", True))
        return [(row.id,) for row in found]

    async def _put_delivery(self, transaction: Transaction, key: str, *rest: Any) -> Rows:
        await transaction.lock("key", key)
        if key in self.deliveries:
            return [(False,)]
        session, directory, kind, repeatable, body, batch, writer, message = rest
        number = self.count_up("delivery")
        row = DeliveryRow(number, key, session, directory, kind, repeatable, body, self.now())
        transaction.changes.append(lambda: self.deliveries.update({key: row}))
        await self.append_events(transaction, batch, writer, b"", [None], [message])
        return [(True,)]

    def may_take(self, me: NodeRow, row: DeliveryRow) -> bool:
        if row.done is not None or (row.taker is not None and self.is_alive(row.taker)):
            return False
        held = self.find_live_lease(row.session)
        if held is not None:
            return held.owner == me.owner
        return not me.draining and is_served(row.directory, me.roots)

    async def take_deliveries(
        self, transaction: Transaction, node: str, most: int, known: Sequence[int]
    ) -> Rows:
        me = self.nodes.get(node)
        unknown: Rows = [
            (row.number, row.key, row.session, row.directory, row.kind, row.repeatable, row.body, row.takes, row.outcome, "")
            for row in self.deliveries.values()
            if row.taker == node and row.done is None and row.number not in known
        ]  # fmt: skip
        if me is None:
            return unknown
        taken: Rows = []
        for row in sorted(self.deliveries.values(), key=lambda row: row.number):
            if len(taken) == most or transaction.is_locked("delivery", row.key) or not self.may_take(me, row):
                continue
            await transaction.lock("delivery", row.key)
            transaction.changes.append(self._make_giver(row, node))
            if row.wait_told:
                await self._tell_status(transaction, row, [to_status(row.session, "busy")])
            taken.append(
                (row.number, row.key, row.session, row.directory, row.kind, row.repeatable, row.body, row.takes + 1, row.outcome, "")
            )  # fmt: skip
        return [*taken, *unknown]

    def _make_giver(self, row: DeliveryRow, node: str) -> Callable[[], None]:
        """Return a function that gives a delivery to a node. This is decided now, and takes effect at the commit."""
        before, alive = row.taker, self.is_alive(row.taker)

        def give() -> None:
            if row.taker != before or (alive and before != node) or row.done is not None:
                self.on_take(row, node)
            row.taker, row.takes = node, row.takes + 1
            row.wait_told = False if row.wait_told else row.wait_told

        return give

    async def finish_delivery(
        self, transaction: Transaction, number: int, node: str, outcome: bytes | None, done: bool, *log: Any
    ) -> Rows:
        row = next((each for each in self.deliveries.values() if each.number == number), None)
        if row is None:
            return [(False,)]
        await transaction.lock("delivery", row.key)
        if row.taker != node or row.done is not None:
            return [(False,)]

        def change(row: DeliveryRow = row) -> None:
            row.outcome = row.outcome if outcome is None else outcome
            row.done = self.now() if done else None

        transaction.changes.append(change)
        if outcome is not None:
            batch, writer, message = log
            await self.append_events(transaction, batch, writer, b"", [None], [message])
            if done and row.wait_told is not None and outcome.startswith(b'{"error"'):
                await self._tell_status(transaction, row, to_idle_events(row.session))
        return [(True,)]

    async def _give_deliveries_back(self, transaction: Transaction, node: str, numbers: list[int]) -> Rows:
        for row in list(self.deliveries.values()):
            if row.number in numbers:
                await transaction.lock("delivery", row.key)
                if row.taker == node and row.done is None:
                    transaction.changes.append(lambda row=row: setattr(row, "taker", None))
        return []

    async def _withdraw(self, transaction: Transaction, key: str) -> Rows:
        await transaction.lock("delivery", key)
        row = self.deliveries.get(key)
        if row is None or row.taker is not None or row.done is not None:
            return []
        transaction.changes.append(lambda: self.deliveries.pop(key) and None)
        return [(True,)]

    async def _withdraw_all(
        self, transaction: Transaction, session: str, kinds: list[str], keys: list[str], outcome: bytes
    ) -> Rows:
        withdrawn = 0
        for row in [each for each in self.deliveries.values() if each.session == session]:
            await transaction.lock("delivery", row.key)
            if row.done is None and (row.kind in kinds or row.key in keys) and not self.is_alive(row.taker):
                transaction.changes.append(lambda row=row: self._end_delivery(row, outcome))
                withdrawn += 1
                if row.wait_told is not None:
                    await self._tell_status(transaction, row, to_idle_events(session))
        return [(withdrawn,)]

    def _end_delivery(self, row: DeliveryRow, outcome: bytes) -> None:
        row.outcome, row.done = row.outcome or outcome, self.now()

    async def _tell_status(self, transaction: Transaction, row: DeliveryRow, bodies: list[bytes]) -> None:
        batch = self.count_up("status")
        await self.append_events(transaction, -batch, b"", row.directory, [row.session] * len(bodies), bodies)

    async def _select_begun(self, _: Transaction, session: str) -> Rows:
        rows = [each for each in self.deliveries.values() if each.session == session and each.done is None]
        return [(True,)] if any(self.is_alive(row.taker) for row in rows) else []

    def is_waiting(self, row: DeliveryRow) -> bool:
        nodes = [node for node in self.nodes.values() if not node.draining and self.is_alive(node.id)]
        return (
            row.done is None
            and not self.is_alive(row.taker)
            and self.find_live_lease(row.session) is None
            and not any(is_served(row.directory, node.roots) for node in nodes)
        )

    async def _select_waiting(self, _: Transaction, directory: bytes) -> Rows:
        rows = [row for row in self.deliveries.values() if row.directory == directory]
        return [(session,) for session in sorted({row.session for row in rows if self.is_waiting(row)})]

    async def _select_untold(self, _: Transaction, kinds: list[str]) -> Rows:
        rows = [row for row in self.deliveries.values() if row.kind in kinds and not row.wait_told]
        return sorted({(row.session, row.directory) for row in rows if self.is_waiting(row)})

    async def _select_orphaned(self, _: Transaction, kinds: list[str]) -> Rows:
        known = {session.id for session in await self.documents.list_sessions()}
        rows = [row for row in self.deliveries.values() if row.kind in kinds and row.session not in known]
        return sorted({(row.session,) for row in rows if self.is_waiting(row)})

    async def _tell_waiting(self, transaction: Transaction, session: str, body: bytes) -> Rows:
        told: list[DeliveryRow] = []
        for row in [each for each in self.deliveries.values() if each.session == session]:
            await transaction.lock("delivery", row.key)
            if not row.wait_told and self.is_waiting(row):
                transaction.changes.append(lambda row=row: setattr(row, "wait_told", True))
                told.append(row)
        if told:
            await self._tell_status(transaction, told[0], [body])
        return [(bool(told),)]

    async def _select_state(self, _: Transaction, key: str) -> Rows:
        row = self.deliveries.get(key)
        return [] if row is None else [(row.outcome, self.is_alive(row.taker))]

    async def _select_elsewhere(self, _: Transaction, session: str) -> Rows:
        held = self.find_live_lease(session)
        known = {row.owner for row in self.nodes.values()}
        return [(True,)] if held is not None and held.owner not in known else []

    async def _select_running(self, _: Transaction, directory: bytes) -> Rows:
        return [
            (info.id, held.owner)
            for info in await self.documents.list_sessions()
            if info.directory.encode() == directory and (held := self.find_live_lease(info.id))
        ]

    async def _select_left(self, transaction: Transaction) -> Rows:
        waiting = {row.session for row in self.deliveries.values() if row.done is None}
        ids = [id for (id,) in await self._select_abandoned(transaction) if id not in waiting]
        return [(id, (await self.documents.get_session(id)).directory.encode(), "") for id in ids]

    async def _select_successor(self, _: Transaction, node: str, directory: bytes) -> Rows:
        others = [row for row in self.nodes.values() if row.id != node and not row.draining]
        found = any(self.is_alive(row.id) and is_served(directory, row.roots) for row in others)
        return [(True,)] if found else []

    async def _claim(self, transaction: Transaction, session: str, key: str, message: str) -> Rows:
        await transaction.lock("claim", (session, key))
        known = self.keys.get((session, key), message)
        transaction.changes.append(lambda: self.keys.update({(session, key): known}))
        return [(known,)]

    async def _tidy(self, _: Transaction) -> Rows:
        return []


def to_status(session: str, status: str) -> bytes:
    return encode(
        {"type": "session.status", "properties": {"sessionID": session, "status": {"type": status}}}
    )


def to_idle_events(session: str) -> list[bytes]:
    return [
        to_status(session, "idle"),
        encode({"type": "session.idle", "properties": {"sessionID": session}}),
    ]


def is_served(directory: bytes, roots: Sequence[bytes]) -> bool:
    return any(directory == root or root == b"/" or directory.startswith(root + b"/") for root in roots)


def run_at_once(work: Coroutine[Any, Any, Any]) -> None:
    """Run a method of a `MemoryStore`, none of which waits for anything."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")


def to_events(columns: Sequence[Any]) -> list[Durable]:
    """Return the events that have the effect of the rows that `RowBatch.to_arguments` makes."""
    rest = iter(columns)

    def take(width: int) -> list[tuple[Any, ...]]:
        return list(zip(*(next(rest) for _ in range(width)), strict=True))

    gone_sessions, gone_messages, gone_parts = take(1), take(2), take(3)
    projects, sessions, details, messages, parts, growth = (
        take(3), take(11), take(3), take(5), take(5), take(5),
    )  # fmt: skip
    events: list[Any] = [SessionDeleted(info=make_session(id)) for (id,) in gone_sessions]
    events += [MessageRemoved(session_id=session, message_id=id) for session, id in gone_messages]
    events += [
        PartRemoved(session_id=session, message_id=message, part_id=id) for session, message, id in gone_parts
    ]
    events += [ProjectUpdated(info=decode(row[-1], Project)) for row in projects]
    events += [SessionUpdated(info=decode(row[-1], SessionInfo)) for row in sessions]
    for session, kind, raw in details:
        if kind == DIFF:
            events.append(SessionDiffed(session_id=session, diff=decode(raw, tuple[FileDiff, ...])))
        else:
            events.append(TodoUpdated(session_id=session, todos=decode(raw, tuple[Todo, ...])))
    events += [MessageUpdated(info=decode(row[-1], AnyMessage)) for row in messages]
    events += [PartUpdated(part=decode(row[-1], AnyPart)) for row in parts]
    for session, message, part, offset, delta in growth:
        events.append(
            PartGrew(
                session_id=SessionID(session),
                message_id=MessageID(message),
                part_id=PartID(part),
                field="text",
                delta=delta.decode("utf-8", "surrogatepass"),
                offset=offset,
            )
        )
    return events
