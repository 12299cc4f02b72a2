-- Principals on all nodes: the log and the inbox record the owner of each event and delivery, and listeners are told that a prompt waits.
-- A node that does not know of owners would carry out a principal's deliveries as the administrator, so older nodes may not use this schema.
UPDATE {schema}.weft_store SET needs = 6;

-- `owner` is whose session an event is about; without a session, who wrote it. `by_owner` is false for what an administrator did to
-- a session of somebody else. Each principal has positions of its own, so that they tell nothing about what others do.
-- Messages between nodes have none.
ALTER TABLE {schema}.event
    ADD COLUMN owner text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN by_owner boolean NOT NULL DEFAULT true,
    ADD COLUMN owner_position bigint;
CREATE UNIQUE INDEX event_owner_position ON {schema}.event (owner, owner_position) WHERE owner_position IS NOT NULL;

-- The log as each principal sees it: the last of its positions, and the last one that was trimmed.
CREATE TABLE {schema}.principal_log (
    owner   text COLLATE "C" PRIMARY KEY,
    last    bigint NOT NULL,
    trimmed bigint NOT NULL DEFAULT 0
);

-- `owner` is who wants it. `wait_told` is true while listeners know that it waits for a node, and false once they know that one has come.
ALTER TABLE {schema}.delivery
    ADD COLUMN owner text COLLATE "C" NOT NULL DEFAULT coalesce(current_setting('weft.owner', true), ''),
    ADD COLUMN wait_told boolean;

DROP POLICY IF EXISTS principal ON {schema}.event;
DROP POLICY IF EXISTS principal ON {schema}.delivery;

CREATE OR REPLACE FUNCTION {schema}.append_events(
    event_batch bigint, event_writer bytea, event_directory bytea, event_sessions text[], event_bodies bytea[]
) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO {schema}.event (batch, number, writer, directory, session, body, owner, by_owner)
    SELECT event_batch, named.number, event_writer, event_directory, named.session, named.body, named.owner,
        named.owner = named.bound
    FROM (
        SELECT given.*, bound,
            coalesce((SELECT theirs.owner FROM {schema}.session_owner AS theirs WHERE theirs.session = given.session), bound) AS owner
        FROM unnest(event_sessions, event_bodies) WITH ORDINALITY AS given (session, body, number),
            coalesce(current_setting('weft.owner', true), '') AS bound
    ) AS named
    ORDER BY named.number
    ON CONFLICT (batch, number) DO NOTHING;
$$;

-- Give positions to the events that have none, oldest first, and tell listeners. Return the last position.
-- A principal's statement may call it, and places the events of everybody.
CREATE OR REPLACE FUNCTION {schema}.place_events(most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
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
    UPDATE {schema}.event SET position = head + found.number, owner_position = found.own
    FROM (
        SELECT ctid AS place, row_number() OVER (ORDER BY id) AS number,
            CASE WHEN owner <> '' AND directory <> '' THEN
                coalesce((SELECT last FROM {schema}.principal_log WHERE principal_log.owner = event.owner), 0)
                + row_number() OVER (PARTITION BY owner, directory <> '' ORDER BY id)
            END AS own
        FROM {schema}.event WHERE position IS NULL ORDER BY id LIMIT most
    ) AS found
    WHERE event.ctid = found.place;
    GET DIAGNOSTICS many = ROW_COUNT;
    IF many > 0 THEN
        INSERT INTO {schema}.principal_log (owner, last)
        SELECT owner, max(owner_position) FROM {schema}.event
        WHERE position > head AND owner_position IS NOT NULL GROUP BY owner
        ON CONFLICT (owner) DO UPDATE SET last = excluded.last;
        UPDATE {schema}.event_log SET last = head + many WHERE single;
        PERFORM pg_notify('{schema}_events', (head + many)::text);
    END IF;
    RETURN head + many;
END $$;

-- Remove events that were written more than `seconds` ago, and all but the last `most`. Return how many.
CREATE OR REPLACE FUNCTION {schema}.trim_events(seconds double precision, most bigint) RETURNS bigint
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
    UPDATE {schema}.principal_log SET trimmed = greatest(trimmed, gone.last)
    FROM (
        SELECT owner, max(owner_position) AS last FROM {schema}.event
        WHERE position <= till AND owner_position IS NOT NULL GROUP BY owner
    ) AS gone
    WHERE principal_log.owner = gone.owner;
    DELETE FROM {schema}.event WHERE position <= till;
    GET DIAGNOSTICS removed = ROW_COUNT;
    UPDATE {schema}.event_log SET trimmed = greatest(trimmed, till) WHERE single;
    RETURN removed;
END $$;

-- Tell the listeners of a session what it does now. The event has no writer, so that no node takes it for one of its own.
CREATE FUNCTION {schema}.tell_status(
    event_batch bigint, event_directory bytea, event_session text, event_owner text, event_bodies bytea[]
) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO {schema}.event (batch, number, writer, directory, session, body, owner)
    SELECT event_batch, given.number, '', event_directory, event_session, given.body, event_owner
    FROM unnest(event_bodies) WITH ORDINALITY AS given (body, number)
    ON CONFLICT (batch, number) DO NOTHING;
$$;

CREATE FUNCTION {schema}.to_status(of_session text, status text) RETURNS bytea
LANGUAGE sql IMMUTABLE AS $$
    SELECT convert_to('{"type":"session.status","properties":{"sessionID":' || to_json(of_session) || ',"status":{"type":"' || status
        || '"}}}', 'UTF8');
$$;

CREATE FUNCTION {schema}.to_idle(of_session text) RETURNS bytea[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY[{schema}.to_status(of_session, 'idle'),
        convert_to('{"type":"session.idle","properties":{"sessionID":' || to_json(of_session) || '}}', 'UTF8')];
$$;

-- Return a number for a batch of events that no other batch has.
CREATE FUNCTION {schema}.make_batch() RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT ('x' || substr(replace(gen_random_uuid()::text, '-', ''), 17))::bit(64)::bigint;
$$;

-- Return true if nobody does a delivery, and no live node can.
CREATE FUNCTION {schema}.is_waiting(delivery {schema}.delivery) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT delivery.done IS NULL
    AND NOT EXISTS (SELECT FROM {schema}.node WHERE node.id = delivery.taker AND {schema}.is_alive(node))
    AND NOT EXISTS (
        SELECT FROM {schema}.lease WHERE lease.session = delivery.session AND lease.till >= clock_timestamp()
    )
    AND NOT EXISTS (
        SELECT FROM {schema}.node WHERE NOT node.draining AND {schema}.is_alive(node) AND {schema}.serves(node, delivery.directory)
    );
$$;

-- Tell listeners that a session waits, unless they know. Return whether they were told.
CREATE FUNCTION {schema}.tell_waiting(of_session text, event_body bytea) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
    waiting {schema}.delivery;
BEGIN
    -- This waits for anyone who is taking or withdrawing them: they have locked the rows.
    UPDATE {schema}.delivery SET wait_told = true
    WHERE session = of_session AND wait_told IS DISTINCT FROM true AND {schema}.is_waiting(delivery)
    RETURNING delivery.* INTO waiting;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM {schema}.tell_status({schema}.make_batch(), waiting.directory, of_session, waiting.owner, ARRAY[event_body]);
    RETURN true;
END $$;

-- Withdraw the deliveries of a session that no live node has taken and that have one of the kinds or keys.
-- Their callers get the outcome. Return how many were withdrawn.
CREATE FUNCTION {schema}.withdraw_deliveries(of_session text, kinds text[], keys text[], new_outcome bytea) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
    given record;
    many  bigint := 0;
    told  boolean := false;
BEGIN
    FOR given IN
        UPDATE {schema}.delivery SET outcome = coalesce(outcome, new_outcome), done = clock_timestamp()
        WHERE session = of_session AND done IS NULL AND (kind = ANY (kinds) OR key = ANY (keys))
        -- With "taker IS NULL OR", Postgres looks for the node again if a node took the row meanwhile. As a join it would not.
        AND (taker IS NULL OR NOT EXISTS (
            SELECT FROM {schema}.node WHERE node.id = delivery.taker AND {schema}.is_alive(node)
        ))
        RETURNING delivery.*
    LOOP
        many := many + 1;
        PERFORM {schema}.append_events({schema}.make_batch(), '', '', ARRAY[NULL]::text[], ARRAY[
            convert_to('{"type":"weft.delivery.finished","properties":{"key":' || to_json(given.key) || '}}', 'UTF8')]);
        IF given.wait_told IS NOT NULL AND NOT told THEN
            told := true;
            PERFORM {schema}.tell_status({schema}.make_batch(), given.directory, of_session, given.owner,
                {schema}.to_idle(of_session));
        END IF;
    END LOOP;
    RETURN many;
END $$;

-- Take deliveries for a node: those of sessions that it runs, and unless it is draining those of sessions that nobody runs in
-- directories that it serves. Deliveries that a dead node had taken are open again. Listeners who know of one that waits are told.
DROP FUNCTION {schema}.take_deliveries(text, integer);
CREATE FUNCTION {schema}.take_deliveries(node_id text, most integer)
RETURNS TABLE (number bigint, key text, session text, directory bytea, kind text, repeatable boolean, body bytea, takes integer,
    outcome bytea, owner text)
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
    me    {schema}.node;
    given record;
BEGIN
    SELECT * INTO me FROM {schema}.node WHERE id = node_id;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR given IN
        UPDATE {schema}.delivery AS taken SET taker = node_id, takes = taken.takes + 1,
            wait_told = CASE WHEN taken.wait_told THEN false ELSE taken.wait_told END
        FROM (
            SELECT open.number, open.wait_told FROM {schema}.delivery AS open
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
        RETURNING taken.*, found.wait_told AS waited
    LOOP
        IF given.waited THEN
            PERFORM {schema}.tell_status({schema}.make_batch(), given.directory, given.session, given.owner,
                ARRAY[{schema}.to_status(given.session, 'busy')]);
        END IF;
        RETURN QUERY SELECT given.number, given.key, given.session, given.directory, given.kind, given.repeatable, given.body,
            given.takes, given.outcome, given.owner;
    END LOOP;
END $$;

-- Store the outcome of a delivery, and whether it is done. Return false if the node is no longer its taker.
-- Listeners who know that it has waited are told if it failed: perhaps no run has begun that would tell them of its end.
CREATE OR REPLACE FUNCTION {schema}.finish_delivery(
    delivery_number bigint, node_id text, new_outcome bytea, is_done boolean,
    event_batch bigint, event_writer bytea, event_body bytea
) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
    ended {schema}.delivery;
BEGIN
    UPDATE {schema}.delivery SET outcome = coalesce(new_outcome, outcome),
        done = CASE WHEN is_done THEN clock_timestamp() END
    WHERE number = delivery_number AND taker = node_id AND done IS NULL
    RETURNING delivery.* INTO ended;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF new_outcome IS NOT NULL THEN
        PERFORM {schema}.append_events(event_batch, event_writer, '', ARRAY[NULL]::text[], ARRAY[event_body]);
    END IF;
    IF is_done AND ended.wait_told IS NOT NULL AND substring(new_outcome FROM 1 FOR 8) = '{"error"'::bytea THEN
        PERFORM {schema}.tell_status({schema}.make_batch(), ended.directory, ended.session, ended.owner,
            {schema}.to_idle(ended.session));
    END IF;
    RETURN true;
END $$;

-- Restrict the role weft_principal to the rows of the owner, in every table that has a column `session`, and let it use them.
-- Nodes belong to nobody: a principal that waits for a node has to see whether one is alive.
-- Tables without a policy stay closed to it. Call this after every change of the schema; what is done already is not done again.
CREATE OR REPLACE FUNCTION {schema}.restrict_principals() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    place  text := '{schema}';
    -- Without an owner nothing is seen, not even what is the administrator's.
    bound  text := 'nullif(current_setting(''weft.owner'', true), '''')';
    owned  text := format('EXISTS (SELECT FROM %s.session_owner AS theirs WHERE theirs.session = %%s AND theirs.owner = %s)',
        place, bound);
    found  record;
BEGIN
    IF NOT has_schema_privilege('weft_principal', place, 'USAGE') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %s TO weft_principal', place);
    END IF;
    FOR found IN
        SELECT relation.relname AS name, relation.relrowsecurity AS restricted, relation.oid,
            CASE relation.relname
                WHEN 'node' THEN 'true'
                WHEN 'session_owner' THEN 'owner = ' || bound
                WHEN 'principal_log' THEN 'owner = ' || bound
                -- An event may be about no session, or about one that the same statement creates.
                WHEN 'event' THEN 'owner = ' || bound
                WHEN 'delivery' THEN 'owner = ' || bound || ' AND ' || format(owned, 'delivery.session')
                WHEN 'session' THEN 'id = nullif(current_setting(''weft.created'', true), '''') OR ' || format(owned, 'session.id')
                WHEN 'trashed_session' THEN format(owned, 'trashed_session.id')
                -- The name of a bundle is a time and its first session.
                WHEN 'bundle' THEN format(owned, 'substring(bundle.id from ''^-?[0-9]+-(.*)$'')')
                WHEN 'value' THEN 'key[1] = ''principal'' AND key[2] = ' || bound
                WHEN 'log' THEN 'name[1] = ''principal'' AND name[2] = ' || bound
                WHEN 'log_line' THEN format('EXISTS (SELECT FROM %s.log AS theirs WHERE theirs.id = log_line.log)', place)
                ELSE format(owned, relation.relname || '.session')
            END AS condition
        FROM pg_class AS relation
        WHERE relation.relnamespace = place::regnamespace AND relation.relkind IN ('r', 'p')
            AND (relation.relname IN ('session', 'trashed_session', 'bundle', 'value', 'log', 'log_line', 'principal_log', 'node')
                OR EXISTS (SELECT FROM pg_attribute WHERE attrelid = relation.oid AND attname = 'session' AND NOT attisdropped))
    LOOP
        IF NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = found.oid AND polname = 'principal') THEN
            -- Other roles than the owner of the table, if the schema was granted to them, see everything as before.
            EXECUTE format('CREATE POLICY principal ON %s.%I USING (current_user <> ''weft_principal'' OR %s)',
                place, found.name, found.condition);
        END IF;
        IF NOT found.restricted THEN
            EXECUTE format('ALTER TABLE %s.%I ENABLE ROW LEVEL SECURITY', place, found.name);
        END IF;
        IF NOT has_table_privilege('weft_principal', found.oid, 'SELECT') THEN
            EXECUTE format('GRANT %s ON %s.%I TO weft_principal',
                CASE WHEN found.name IN ('session_owner', 'principal_log', 'node') THEN 'SELECT' ELSE 'SELECT, INSERT, UPDATE, DELETE' END, place, found.name);
        END IF;
    END LOOP;
    FOR found IN
        SELECT oid, relname AS name FROM pg_class WHERE relnamespace = place::regnamespace AND relkind = 'S'
    LOOP
        IF NOT has_sequence_privilege('weft_principal', found.oid, 'USAGE') THEN
            EXECUTE format('GRANT USAGE ON SEQUENCE %s.%I TO weft_principal', place, found.name);
        END IF;
    END LOOP;
END $$;
