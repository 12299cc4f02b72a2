-- Growth gets its positions from the transaction that logs it, so that it reaches the other nodes one transaction earlier, and
-- its rows are written once. What is stored for good still gets them afterwards, from place_events.

-- Return events with their numbers in the batch, and their owners.
CREATE FUNCTION {schema}.name_owners(event_sessions text[], event_bodies bytea[])
RETURNS TABLE (number bigint, session text, body bytea, owner text, by_owner boolean)
LANGUAGE sql STABLE AS $$
    SELECT named.number, named.session, named.body, named.owner, named.owner = named.bound
    FROM (
        SELECT given.*, bound,
            coalesce((SELECT theirs.owner FROM {schema}.session_owner AS theirs WHERE theirs.session = given.session), bound) AS owner
        FROM unnest(event_sessions, event_bodies) WITH ORDINALITY AS given (session, body, number),
            coalesce(current_setting('weft.owner', true), '') AS bound
    ) AS named;
$$;

CREATE OR REPLACE FUNCTION {schema}.append_events(
    event_batch bigint, event_writer bytea, event_directory bytea, event_sessions text[], event_bodies bytea[]
) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO {schema}.event (batch, number, writer, directory, session, body, owner, by_owner)
    SELECT event_batch, named.number, event_writer, event_directory, named.session, named.body, named.owner, named.by_owner
    FROM {schema}.name_owners(event_sessions, event_bodies) AS named
    ORDER BY named.number
    ON CONFLICT (batch, number) DO NOTHING;
$$;

-- Lock the log until the transaction ends, and place what has no position yet. Return the last position, or null if somebody else
-- has locked the log, or if more than `most` events had no position.
CREATE FUNCTION {schema}.begin_placing(most integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    head bigint;
BEGIN
    SELECT last INTO head FROM {schema}.event_log WHERE single FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- The next statement sees everything that had committed when we got the lock.
    PERFORM FROM {schema}.event WHERE position IS NULL LIMIT 1;
    IF FOUND THEN
        head := {schema}.place_events(most);
        PERFORM FROM {schema}.event WHERE position IS NULL LIMIT 1;
        IF FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    RETURN head;
END $$;

-- Note that so many events were placed after a position, and tell listeners.
CREATE FUNCTION {schema}.end_placing(head bigint, many bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    INSERT INTO {schema}.principal_log (owner, last)
    SELECT owner, max(owner_position) FROM {schema}.event
    WHERE position > head AND owner_position IS NOT NULL GROUP BY owner
    ON CONFLICT (owner) DO UPDATE SET last = excluded.last;
    UPDATE {schema}.event_log SET last = head + many WHERE single;
    PERFORM pg_notify('{schema}_events', (head + many)::text);
END $$;

-- Append events, with positions if nobody else gives positions now. Return whether they have positions.
-- Nobody waits for another one: whoever finds the log locked leaves its events to place_events.
CREATE FUNCTION {schema}.append_placed(
    event_batch bigint, event_writer bytea, event_directory bytea, event_sessions text[], event_bodies bytea[], most integer
) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off SET jit = off AS $$
DECLARE
    head bigint := {schema}.begin_placing(most);
    many bigint;
BEGIN
    IF head IS NULL THEN
        PERFORM {schema}.append_events(event_batch, event_writer, event_directory, event_sessions, event_bodies);
        RETURN false;
    END IF;
    INSERT INTO {schema}.event (position, batch, number, writer, directory, session, body, owner, by_owner, owner_position)
    SELECT head + named.number, event_batch, named.number, event_writer, event_directory, named.session, named.body, named.owner,
        named.by_owner,
        CASE WHEN named.owner <> '' THEN
            coalesce((SELECT last FROM {schema}.principal_log WHERE principal_log.owner = named.owner), 0)
            + row_number() OVER (PARTITION BY named.owner ORDER BY named.number)
        END
    FROM {schema}.name_owners(event_sessions, event_bodies) AS named
    ORDER BY named.number
    ON CONFLICT (batch, number) DO NOTHING;
    GET DIAGNOSTICS many = ROW_COUNT;
    -- If there are none, this is a repeated statement whose first attempt has appended them.
    IF many > 0 THEN
        PERFORM {schema}.end_placing(head, many);
    END IF;
    RETURN many > 0;
END $$;

-- Return what find_lost_lease returns, but lock nothing: a statement that only reads then has nothing to write to the disk.
CREATE FUNCTION {schema}.see_lost_lease(sessions text[], generations bigint[]) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT token.session || ' ' || CASE WHEN lease.till IS NULL THEN '' ELSE encode(lease.owner, 'hex') END
    FROM unnest(sessions, generations) AS token (session, generation)
    LEFT JOIN {schema}.lease ON lease.session = token.session
    WHERE lease.till IS NULL OR lease.generation <> token.generation
    ORDER BY token.session LIMIT 1;
$$;
