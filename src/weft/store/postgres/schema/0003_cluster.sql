-- What several nodes share besides the sessions: the log of events, the inbox, and the nodes themselves.
-- All times are those of the database: the clocks of nodes may be wrong.
-- Where no index fits, `enable_seqscan = off` makes a plan look so expensive that the server would compile it: hence jit.

ALTER TABLE {schema}.weft_store ADD COLUMN needs integer NOT NULL DEFAULT 3;
COMMENT ON COLUMN {schema}.weft_store.needs IS 'The oldest version of the schema that a program must know to use this one';

-- The log. An event is appended by the transaction that stores it, without a `position`. Positions are given later, one after
-- the other and under the lock of `event_log`, to events whose transactions have committed. So a reader that goes by position
-- skips no event whose transaction commits late, and no transaction waits for another one.
-- The order of `id` is that in which one writer appended. `batch` names an append, so that it can be repeated after a lost
-- connection. An event without a directory is a message between nodes.
CREATE TABLE {schema}.event (
    id        bigint GENERATED ALWAYS AS IDENTITY,
    position  bigint,
    batch     bigint NOT NULL,
    number    integer NOT NULL,
    writer    bytea NOT NULL,
    directory bytea NOT NULL,
    session   text COLLATE "C",
    body      bytea NOT NULL,
    written   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (batch, number)
);
CREATE UNIQUE INDEX event_position ON {schema}.event (position);
CREATE INDEX event_unplaced ON {schema}.event (id) WHERE position IS NULL;

-- The one row of the log: a name that no other log has, the last position, and the last one that was trimmed.
CREATE TABLE {schema}.event_log (
    single  boolean PRIMARY KEY DEFAULT true CHECK (single),
    name    text NOT NULL,
    last    bigint NOT NULL DEFAULT 0,
    trimmed bigint NOT NULL DEFAULT 0
);
INSERT INTO {schema}.event_log (name) VALUES (substr(md5(random()::text || clock_timestamp()::text), 1, 8));

CREATE FUNCTION {schema}.append_events(
    event_batch bigint, event_writer bytea, event_directory bytea, event_sessions text[], event_bodies bytea[]
) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO {schema}.event (batch, number, writer, directory, session, body)
    SELECT event_batch, given.number, event_writer, event_directory, given.session, given.body
    FROM unnest(event_sessions, event_bodies) WITH ORDINALITY AS given (session, body, number)
    ORDER BY given.number
    ON CONFLICT (batch, number) DO NOTHING;
$$;

-- Give positions to the events that have none, oldest first, and tell listeners. Return the last position.
CREATE FUNCTION {schema}.place_events(most integer) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
    head bigint;
    many bigint;
BEGIN
    PERFORM FROM {schema}.event WHERE position IS NULL LIMIT 1;
    IF NOT FOUND THEN
        RETURN (SELECT last FROM {schema}.event_log WHERE single);
    END IF;
    SELECT last INTO head FROM {schema}.event_log WHERE single FOR UPDATE;
    -- The next statement sees everything that had committed when we got the lock.
    -- Rows are named by where they are, which nobody else changes: any other way, the planner may read the whole table.
    UPDATE {schema}.event SET position = head + found.number
    FROM (
        SELECT ctid AS place, row_number() OVER (ORDER BY id) AS number
        FROM {schema}.event WHERE position IS NULL ORDER BY id LIMIT most
    ) AS found
    WHERE event.ctid = found.place;
    GET DIAGNOSTICS many = ROW_COUNT;
    IF many > 0 THEN
        UPDATE {schema}.event_log SET last = head + many WHERE single;
        PERFORM pg_notify('{schema}_events', (head + many)::text);
    END IF;
    RETURN head + many;
END $$;

-- Remove events that were written more than `seconds` ago, and all but the last `most`. Return how many.
CREATE FUNCTION {schema}.trim_events(seconds double precision, most bigint) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
    head    bigint;
    till    bigint;
    removed bigint;
BEGIN
    SELECT last INTO head FROM {schema}.event_log WHERE single FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    SELECT position - 1 INTO till FROM {schema}.event
    WHERE position IS NOT NULL AND written >= clock_timestamp() - seconds * interval '1 second'
    ORDER BY position LIMIT 1;
    till := greatest(coalesce(till, head), head - most);
    DELETE FROM {schema}.event WHERE position <= till;
    GET DIAGNOSTICS removed = ROW_COUNT;
    UPDATE {schema}.event_log SET trimmed = greatest(trimmed, till) WHERE single;
    RETURN removed;
END $$;

-- A node is a process that serves sessions. It lives while its heartbeat is not older than `lease_seconds`.
-- `owner` is the name under which it holds leases, `roots` are the directories that it serves with everything below them.
CREATE TABLE {schema}.node (
    id            text COLLATE "C" PRIMARY KEY,
    owner         bytea NOT NULL,
    name          text NOT NULL,
    url           text NOT NULL,
    version       text NOT NULL,
    roots         bytea[] NOT NULL,
    draining      boolean NOT NULL DEFAULT false,
    lease_seconds double precision NOT NULL,
    started       timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat     timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE FUNCTION {schema}.is_alive(node {schema}.node) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT node.heartbeat + node.lease_seconds * interval '1 second' >= clock_timestamp();
$$;

CREATE FUNCTION {schema}.serves(node {schema}.node, wanted bytea) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT EXISTS (
        SELECT FROM unnest(node.roots) AS root
        WHERE wanted = root OR root = '/'::bytea OR substring(wanted FROM 1 FOR length(root) + 1) = root || '/'::bytea
    );
$$;

-- The inbox: what callers want of sessions. `key` is the same for the same request sent twice. `taker` is the node that does
-- it, or has done it. `outcome` is the answer for the caller; once it is `done`, nothing is left to do.
-- A delivery that is not `repeatable` is not done by another node if its taker dies.
CREATE TABLE {schema}.delivery (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key        text COLLATE "C" NOT NULL UNIQUE,
    session    text COLLATE "C" NOT NULL,
    directory  bytea NOT NULL,
    kind       text NOT NULL,
    repeatable boolean NOT NULL,
    body       bytea NOT NULL,
    stored     timestamptz NOT NULL DEFAULT clock_timestamp(),
    taker      text COLLATE "C",
    takes      integer NOT NULL DEFAULT 0,
    outcome    bytea,
    done       timestamptz
);
CREATE INDEX delivery_open ON {schema}.delivery (number) WHERE done IS NULL;
CREATE INDEX delivery_done ON {schema}.delivery (done) WHERE done IS NOT NULL;

-- The key of a request that may be sent twice, and the message that it became.
CREATE TABLE {schema}.idempotency (
    session text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    message text NOT NULL,
    stored  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session, key)
);
CREATE INDEX idempotency_stored ON {schema}.idempotency (stored);

-- Take deliveries for a node: those of sessions that it runs, and unless it is draining those of sessions that nobody runs in
-- directories that it serves. Deliveries that a dead node had taken are open again.
CREATE FUNCTION {schema}.take_deliveries(node_id text, most integer)
RETURNS TABLE (number bigint, key text, session text, directory bytea, kind text, repeatable boolean, body bytea, takes integer, outcome bytea)
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
    me {schema}.node;
BEGIN
    SELECT * INTO me FROM {schema}.node WHERE id = node_id;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    UPDATE {schema}.delivery AS taken SET taker = node_id, takes = taken.takes + 1
    FROM (
        SELECT open.number FROM {schema}.delivery AS open
        LEFT JOIN {schema}.lease ON lease.session = open.session AND lease.till >= clock_timestamp()
        WHERE open.done IS NULL
        AND (open.taker IS NULL OR NOT EXISTS (
            SELECT FROM {schema}.node WHERE node.id = open.taker AND {schema}.is_alive(node)
        ))
        AND CASE WHEN lease.session IS NULL THEN NOT me.draining AND {schema}.serves(me, open.directory)
            ELSE lease.owner = me.owner END
        ORDER BY open.number LIMIT most
        FOR UPDATE OF open SKIP LOCKED
    ) AS found
    WHERE taken.number = found.number
    RETURNING taken.number, taken.key, taken.session, taken.directory, taken.kind, taken.repeatable, taken.body, taken.takes,
        taken.outcome;
END $$;

-- Store a delivery and tell the nodes. Return true if it is new.
CREATE FUNCTION {schema}.put_delivery(
    new_key text, new_session text, new_directory bytea, new_kind text, new_repeatable boolean, new_body bytea,
    event_batch bigint, event_writer bytea, event_body bytea
) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
BEGIN
    INSERT INTO {schema}.delivery (key, session, directory, kind, repeatable, body)
    VALUES (new_key, new_session, new_directory, new_kind, new_repeatable, new_body)
    ON CONFLICT (key) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM {schema}.append_events(event_batch, event_writer, '', ARRAY[NULL]::text[], ARRAY[event_body]);
    RETURN true;
END $$;

-- Store the outcome of a delivery, and whether it is done. Return false if the node is no longer its taker.
CREATE FUNCTION {schema}.finish_delivery(
    delivery_number bigint, node_id text, new_outcome bytea, is_done boolean,
    event_batch bigint, event_writer bytea, event_body bytea
) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
BEGIN
    UPDATE {schema}.delivery SET outcome = coalesce(new_outcome, outcome),
        done = CASE WHEN is_done THEN clock_timestamp() END
    WHERE number = delivery_number AND taker = node_id AND done IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF new_outcome IS NOT NULL THEN
        PERFORM {schema}.append_events(event_batch, event_writer, '', ARRAY[NULL]::text[], ARRAY[event_body]);
    END IF;
    RETURN true;
END $$;
