"""Nodes and their inbox in Postgres. Each method is one statement; the functions are in `schema/0003_cluster.sql`, and those
that know of owners and of waiting in `schema/0006_shared_principals.sql`."""

import secrets
from collections.abc import Collection, Sequence
from typing import Final

from weft.api.cluster import ClusterStatus, LeaseStatus, NodeStatus
from weft.errors import NewerFormatError
from weft.model.ids import MessageID, SessionID
from weft.model.wire import encode
from weft.store.cluster import AbandonedSession, Delivery, DeliveryState, NewDelivery, NodeRecord
from weft.store.postgres.connection import Database
from weft.store.postgres.event_log import PostgresLog
from weft.store.postgres.migration import get_newest_version
from weft.store.rows import to_ascii, to_bytes, to_text

# What nodes tell each other through the log. These events have no directory.
STORED: Final = "weft.delivery.stored"
FINISHED: Final = "weft.delivery.finished"
RANDOM_BITS: Final = 62

# A process that starts again on the same machine replaces the node that it was before.
JOIN = """WITH gone AS (DELETE FROM {schema}.node WHERE owner = $2 AND id <> $1)
INSERT INTO {schema}.node (id, owner, name, url, version, roots, lease_seconds) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO UPDATE SET heartbeat = clock_timestamp(), roots = excluded.roots"""
BEAT = """UPDATE {schema}.node SET heartbeat = clock_timestamp() WHERE id = $1
RETURNING draining, (SELECT needs FROM {schema}.weft_store)"""
# End its leases, too: one that it could not give back would look like the lease of a process outside the cluster, and callers would be refused.
LEAVE = """WITH released AS (UPDATE {schema}.delivery SET taker = NULL WHERE taker = $1 AND done IS NULL),
ended AS (UPDATE {schema}.lease SET till = clock_timestamp() FROM {schema}.node
    WHERE node.id = $1 AND lease.owner = node.owner AND lease.till > clock_timestamp())
DELETE FROM {schema}.node WHERE id = $1"""
DRAIN = """UPDATE {schema}.node SET draining = true WHERE (id = $1 OR name = $1) AND {schema}.is_alive(node)
RETURNING id"""
PUT = "SELECT {schema}.put_delivery($1, $2, $3, $4, $5, $6, $7, $8, $9)"
# Besides new deliveries, return those that this node has taken without knowing: the reply to an earlier statement was lost, or the statement
# was repeated after its connection was lost, and its first attempt reached the server only afterwards.
TAKE = """SELECT * FROM {schema}.take_deliveries($1, $2)
UNION ALL
SELECT number, key, session, directory, kind, repeatable, body, takes, outcome, owner FROM {schema}.delivery
WHERE taker = $1 AND done IS NULL AND number <> ALL($3)"""
FINISH = "SELECT {schema}.finish_delivery($1, $2, $3, $4, $5, $6, $7)"
GIVE_BACK = (
    "UPDATE {schema}.delivery SET taker = NULL WHERE taker = $1 AND number = ANY ($2) AND done IS NULL"
)
WITHDRAW = "DELETE FROM {schema}.delivery WHERE key = $1 AND taker IS NULL AND done IS NULL RETURNING true"
WITHDRAW_ALL = "SELECT {schema}.withdraw_deliveries($1, $2, $3, $4)"
SELECT_BEGUN = """SELECT true FROM {schema}.delivery WHERE session = $1 AND done IS NULL
AND EXISTS (SELECT FROM {schema}.node WHERE id = taker AND {schema}.is_alive(node)) LIMIT 1"""
SELECT_STATE = """SELECT outcome, EXISTS (SELECT FROM {schema}.node WHERE id = taker AND {schema}.is_alive(node))
FROM {schema}.delivery WHERE key = $1"""
SELECT_ELSEWHERE = """SELECT true FROM {schema}.lease WHERE session = $1 AND till >= clock_timestamp()
AND NOT EXISTS (SELECT FROM {schema}.node WHERE node.owner = lease.owner)"""
SELECT_RUNNING = """SELECT lease.session, lease.owner FROM {schema}.lease JOIN {schema}.session ON session.id = lease.session
WHERE till >= clock_timestamp() AND session.directory = $1"""
SELECT_WAITING = """SELECT DISTINCT session FROM {schema}.delivery
WHERE done IS NULL AND directory = $1 AND {schema}.is_waiting(delivery) ORDER BY session"""
SELECT_UNTOLD = """SELECT DISTINCT session, directory FROM {schema}.delivery
WHERE done IS NULL AND wait_told IS DISTINCT FROM true AND kind = ANY ($1) AND {schema}.is_waiting(delivery) ORDER BY session"""
SELECT_ORPHANED = """SELECT DISTINCT session FROM {schema}.delivery
WHERE done IS NULL AND kind = ANY ($1) AND NOT EXISTS (SELECT FROM {schema}.session WHERE session.id = delivery.session)
AND {schema}.is_waiting(delivery) ORDER BY session"""
TELL_WAITING = "SELECT {schema}.tell_waiting($1, $2)"
SELECT_ABANDONED = """SELECT lease.session, session.directory, coalesce(session_owner.owner, '')
FROM {schema}.lease JOIN {schema}.session ON session.id = lease.session
LEFT JOIN {schema}.session_owner ON session_owner.session = lease.session
WHERE till < clock_timestamp()
AND NOT EXISTS (SELECT FROM {schema}.delivery WHERE delivery.session = lease.session AND done IS NULL)"""
SELECT_SUCCESSOR = """SELECT true FROM {schema}.node
WHERE id <> $1 AND NOT draining AND {schema}.is_alive(node) AND {schema}.serves(node, $2) LIMIT 1"""
CLAIM = """INSERT INTO {schema}.idempotency AS known (session, key, message) VALUES ($1, $2, $3)
ON CONFLICT (session, key) DO UPDATE SET message = known.message RETURNING message"""
SELECT_NODES = """SELECT id, name, url, version, roots, {schema}.is_alive(node), draining,
extract(epoch FROM clock_timestamp() - heartbeat)::double precision,
(SELECT count(*) FROM {schema}.lease WHERE lease.owner = node.owner AND till >= clock_timestamp())
FROM {schema}.node ORDER BY name, started"""
SELECT_LEASES = """SELECT session, owner, extract(epoch FROM clock_timestamp() - changed)::double precision,
extract(epoch FROM till - clock_timestamp())::double precision
FROM {schema}.lease WHERE till >= clock_timestamp() ORDER BY changed"""
SELECT_FIGURES = """SELECT
(SELECT count(*) FROM {schema}.delivery WHERE done IS NULL AND taker IS NULL),
(SELECT coalesce(extract(epoch FROM clock_timestamp() - min(stored)), 0)::double precision
    FROM {schema}.delivery WHERE done IS NULL AND taker IS NULL),
(SELECT last - trimmed FROM {schema}.event_log),
(SELECT count(*) FROM {schema}.event WHERE position IS NULL),
(SELECT coalesce(extract(epoch FROM clock_timestamp() - min(written)), 0)::double precision
    FROM {schema}.event WHERE position IS NULL)"""
TIDY = """WITH deliveries AS (DELETE FROM {schema}.delivery WHERE done < clock_timestamp() - interval '1 hour'),
keys AS (DELETE FROM {schema}.idempotency WHERE stored < clock_timestamp() - interval '1 day')
DELETE FROM {schema}.node WHERE heartbeat < clock_timestamp() - interval '1 day'"""


class PostgresCluster:
    """The nodes, the inbox and the keys in one database."""

    def __init__(self, database: Database, log: PostgresLog) -> None:
        self._database = database
        self._log = log

    async def join(self, node: NodeRecord) -> None:
        await self._database.fetch(
            JOIN,
            node.id,
            to_bytes(node.owner),
            node.name,
            node.url,
            node.version,
            [to_bytes(root) for root in node.roots],
            self._database.address.lease_seconds,
        )

    async def beat(self, node: str) -> bool | None:
        rows = await self._database.fetch(BEAT, node, urgent=True)
        if not rows:
            return None
        ((draining, needs),) = rows
        known = get_newest_version()
        if needs > known:
            raise NewerFormatError(self._database.address.place, needs, known)
        return bool(draining)

    async def leave(self, node: str) -> None:
        await self._database.fetch(LEAVE, node)

    async def drain(self, node: str) -> list[str]:
        return [id for (id,) in await self._database.fetch(DRAIN, node)]

    async def put(self, delivery: NewDelivery) -> bool:
        result = await self._database.send(
            PUT,
            delivery.key,
            to_ascii(delivery.session),
            to_bytes(delivery.directory),
            delivery.kind,
            delivery.repeatable,
            delivery.body,
            *self._make_message(STORED, delivery.key),
        )
        self._log.note_appended()
        return bool(result.rows[0][0]) or result.repeated

    async def take(self, node: str, *, most: int, known: Collection[int] = ()) -> list[Delivery]:
        rows = await self._database.fetch(TAKE, node, most, list(known))
        taken = [
            Delivery(number, key, SessionID(session), to_text(directory), *rest)
            for number, key, session, directory, *rest in rows
        ]
        return sorted(taken)

    async def finish(self, node: str, delivery: Delivery, outcome: bytes | None, *, done: bool) -> bool:
        result = await self._database.send(
            FINISH, delivery.number, node, outcome, done, *self._make_message(FINISHED, delivery.key)
        )
        self._log.note_appended()
        return bool(result.rows[0][0]) or result.repeated

    def _make_message(self, kind: str, key: str) -> tuple[int, bytes, bytes]:
        """Return the batch, the writer and the body of an event for the other nodes."""
        body = encode({"type": kind, "properties": {"key": key}})
        return secrets.randbits(RANDOM_BITS), self._log.writer, body

    async def give_back(self, node: str, *numbers: int) -> None:
        await self._database.fetch(GIVE_BACK, node, list(numbers))

    async def withdraw(self, key: str) -> bool:
        return bool(await self._database.fetch_value(WITHDRAW, key))

    async def withdraw_all(
        self, session: SessionID, *, kinds: Sequence[str] = (), keys: Sequence[str] = (), outcome: bytes
    ) -> bool:
        result = await self._database.send(WITHDRAW_ALL, to_ascii(session), list(kinds), list(keys), outcome)
        self._log.note_appended()
        return bool(result.rows[0][0]) or result.repeated

    async def is_begun(self, session: SessionID) -> bool:
        return bool(await self._database.fetch_value(SELECT_BEGUN, to_ascii(session)))

    async def find_state(self, key: str) -> DeliveryState | None:
        rows = await self._database.fetch(SELECT_STATE, key)
        return DeliveryState(*rows[0]) if rows else None

    async def is_run_outside(self, session: SessionID) -> bool:
        return bool(await self._database.fetch_value(SELECT_ELSEWHERE, to_ascii(session)))

    async def list_running(self, directory: str) -> dict[SessionID, str]:
        rows = await self._database.fetch(SELECT_RUNNING, to_bytes(directory))
        return {SessionID(session): to_text(owner) for session, owner in rows}

    async def list_waiting(self, directory: str) -> list[SessionID]:
        rows = await self._database.fetch(SELECT_WAITING, to_bytes(directory))
        return [SessionID(session) for (session,) in rows]

    async def list_untold(self, kinds: Sequence[str]) -> dict[SessionID, str]:
        rows = await self._database.fetch(SELECT_UNTOLD, list(kinds))
        return {SessionID(session): to_text(directory) for session, directory in rows}

    async def tell_waiting(self, session: SessionID, event: bytes) -> bool:
        told = bool(await self._database.fetch_value(TELL_WAITING, to_ascii(session), event))
        self._log.note_appended()
        return told

    async def list_orphaned(self, kinds: Sequence[str]) -> list[SessionID]:
        return [SessionID(session) for (session,) in await self._database.fetch(SELECT_ORPHANED, list(kinds))]

    async def list_abandoned(self) -> list[AbandonedSession]:
        rows = await self._database.fetch(SELECT_ABANDONED)
        return [
            AbandonedSession(SessionID(session), to_text(directory), owner)
            for session, directory, owner in rows
        ]

    async def can_hand_over(self, node: str, directory: str) -> bool:
        return bool(await self._database.fetch_value(SELECT_SUCCESSOR, node, to_bytes(directory)))

    async def claim_key(self, session: SessionID, key: str, message: MessageID) -> MessageID:
        return MessageID(await self._database.fetch_value(CLAIM, to_ascii(session), key, message))

    async def get_status(self) -> ClusterStatus:
        nodes = await self._database.fetch(SELECT_NODES)
        leases = await self._database.fetch(SELECT_LEASES)
        ((queued, queue_seconds, events, unplaced, lag_seconds),) = await self._database.fetch(SELECT_FIGURES)
        return ClusterStatus(
            nodes=tuple(
                NodeStatus(
                    id=id,
                    name=name,
                    url=url,
                    version=version,
                    roots=tuple(to_text(root) for root in roots),
                    alive=alive,
                    draining=draining,
                    seconds=round(seconds, 3),
                    sessions=sessions,
                )
                for id, name, url, version, roots, alive, draining, seconds, sessions in nodes
            ),
            leases=tuple(
                LeaseStatus(
                    session=SessionID(session),
                    owner=to_text(owner),
                    age=round(age, 3),
                    left=round(left, 3),
                )
                for session, owner, age, left in leases
            ),
            queued=queued,
            queue_seconds=round(queue_seconds, 3),
            events=events,
            unplaced=unplaced,
            lag_seconds=round(lag_seconds, 3),
        )

    async def tidy(self) -> None:
        await self._database.fetch(TIDY)
