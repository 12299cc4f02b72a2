-- Each function is one statement of a client: it changes everything or nothing, in one round trip.
-- Fresh tables have no statistics, and a plan that reads whole tables would be kept for a long time: hence enable_seqscan.

-- Return the first lease that its bearer does not hold, as "session owner", with the owner in hex; null if all are held.
-- The lock on the row makes a takeover wait until the writer has committed.
CREATE FUNCTION {schema}.find_lost_lease(sessions text[], generations bigint[]) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    wanted record;
    held   record;
BEGIN
    FOR wanted IN SELECT * FROM unnest(sessions, generations) AS token (session, generation) ORDER BY 1 LOOP
        SELECT lease.owner, lease.generation, lease.till INTO held
        FROM {schema}.lease WHERE lease.session = wanted.session FOR SHARE;
        IF NOT FOUND OR held.till IS NULL THEN
            RETURN wanted.session || ' ';
        ELSIF held.generation <> wanted.generation THEN
            RETURN wanted.session || ' ' || encode(held.owner, 'hex');
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

-- Delete everything that belongs to sessions.
CREATE FUNCTION {schema}.forget_sessions(sessions text[]) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM {schema}.session WHERE id = ANY (sessions);
    DELETE FROM {schema}.message WHERE session = ANY (sessions);
    DELETE FROM {schema}.part WHERE session = ANY (sessions);
    DELETE FROM {schema}.growth WHERE session = ANY (sessions);
    DELETE FROM {schema}.detail WHERE session = ANY (sessions);
    DELETE FROM {schema}.dirty WHERE session = ANY (sessions);
    DELETE FROM {schema}.entry WHERE session = ANY (sessions);
    DELETE FROM {schema}.call WHERE session = ANY (sessions);
$$;

-- Apply a batch: check leases, delete what is gone, then put rows. Names are those of the arrays in batch.py.
-- If `expected` is given, the one session of the batch must still have that revision.
-- Return null, 'changed' if it has another one, or 'lost' and the result of find_lost_lease.
CREATE FUNCTION {schema}.apply(
    lease_sessions text[], lease_generations bigint[], expected bigint, new_revision bigint,
    gone_sessions text[],
    gone_message_sessions text[], gone_messages text[],
    gone_part_sessions text[], gone_part_messages text[], gone_parts text[],
    project_ids text[], project_created bigint[], project_documents bytea[],
    session_ids text[], session_projects text[], session_parents text[], session_directories bytea[],
    session_titles bytea[], session_tags bytea[], session_archived boolean[], session_pinned boolean[],
    session_created bigint[], session_updated bigint[], session_documents bytea[],
    detail_sessions text[], detail_kinds text[], detail_documents bytea[],
    message_sessions text[], message_ids text[], message_created bigint[], message_numbers bigint[],
    message_documents bytea[],
    part_sessions text[], part_messages text[], part_ids text[], part_grows boolean[], part_documents bytea[],
    growth_sessions text[], growth_messages text[], growth_parts text[], growth_positions bigint[],
    growth_deltas bytea[],
    dirty_sessions text[], dirty_messages text[]
) RETURNS text
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    lost    text;
    known bigint;
BEGIN
    IF cardinality(lease_sessions) > 0 THEN
        lost := {schema}.find_lost_lease(lease_sessions, lease_generations);
        IF lost IS NOT NULL THEN
            RETURN 'lost ' || lost;
        END IF;
    END IF;
    IF expected IS NOT NULL THEN
        SELECT session.revision INTO known FROM {schema}.session WHERE id = session_ids[1] FOR UPDATE;
        IF known IS NULL OR known NOT IN (expected, new_revision) THEN
            RETURN 'changed';
        END IF;
    END IF;
    IF cardinality(gone_sessions) > 0 THEN
        PERFORM {schema}.forget_sessions(gone_sessions);
    END IF;
    IF cardinality(gone_messages) > 0 THEN
        DELETE FROM {schema}.message USING unnest(gone_message_sessions, gone_messages) AS gone (session, id)
        WHERE message.session = gone.session AND message.id = gone.id;
        DELETE FROM {schema}.part USING unnest(gone_message_sessions, gone_messages) AS gone (session, id)
        WHERE part.session = gone.session AND part.message = gone.id;
        DELETE FROM {schema}.growth USING unnest(gone_message_sessions, gone_messages) AS gone (session, id)
        WHERE growth.session = gone.session AND growth.message = gone.id;
        DELETE FROM {schema}.dirty USING unnest(gone_message_sessions, gone_messages) AS gone (session, id)
        WHERE dirty.session = gone.session AND dirty.message = gone.id;
        DELETE FROM {schema}.entry USING unnest(gone_message_sessions, gone_messages) AS gone (session, id)
        WHERE entry.session = gone.session AND entry.message = gone.id;
        DELETE FROM {schema}.call USING unnest(gone_message_sessions, gone_messages) AS gone (session, id)
        WHERE call.session = gone.session AND call.message = gone.id;
    END IF;
    IF cardinality(gone_parts) > 0 THEN
        DELETE FROM {schema}.part
        USING unnest(gone_part_sessions, gone_part_messages, gone_parts) AS gone (session, message, id)
        WHERE part.session = gone.session AND part.message = gone.message AND part.id = gone.id;
        DELETE FROM {schema}.growth
        USING unnest(gone_part_sessions, gone_part_messages, gone_parts) AS gone (session, message, id)
        WHERE growth.session = gone.session AND growth.message = gone.message AND growth.part = gone.id;
    END IF;
    IF cardinality(project_ids) > 0 THEN
        INSERT INTO {schema}.project (id, created, document)
        SELECT * FROM unnest(project_ids, project_created, project_documents)
        ON CONFLICT (id) DO UPDATE SET created = excluded.created, document = excluded.document;
    END IF;
    IF cardinality(session_ids) > 0 THEN
        INSERT INTO {schema}.session (id, project, parent, directory, title, tags, archived, pinned, created, updated,
            document, revision)
        SELECT given.*, new_revision
        FROM unnest(session_ids, session_projects, session_parents, session_directories, session_titles, session_tags,
            session_archived, session_pinned, session_created, session_updated, session_documents) AS given
        ON CONFLICT (id) DO UPDATE SET project = excluded.project, parent = excluded.parent,
            directory = excluded.directory, title = excluded.title, tags = excluded.tags, archived = excluded.archived,
            pinned = excluded.pinned, created = excluded.created, updated = excluded.updated,
            document = excluded.document, revision = excluded.revision;
    END IF;
    IF cardinality(detail_sessions) > 0 THEN
        INSERT INTO {schema}.detail (session, kind, document)
        SELECT * FROM unnest(detail_sessions, detail_kinds, detail_documents)
        ON CONFLICT (session, kind) DO UPDATE SET document = excluded.document, changed = excluded.changed;
    END IF;
    IF cardinality(message_ids) > 0 THEN
        INSERT INTO {schema}.message (session, id, created, number, document)
        SELECT * FROM unnest(message_sessions, message_ids, message_created, message_numbers, message_documents)
        ON CONFLICT (session, id) DO UPDATE SET created = excluded.created, number = excluded.number,
            document = excluded.document, changed = excluded.changed;
    END IF;
    IF cardinality(part_ids) > 0 THEN
        DELETE FROM {schema}.growth
        USING unnest(part_sessions, part_messages, part_ids) AS written (session, message, id)
        WHERE growth.session = written.session AND growth.message = written.message AND growth.part = written.id;
        INSERT INTO {schema}.part (session, message, id, grows, document)
        SELECT * FROM unnest(part_sessions, part_messages, part_ids, part_grows, part_documents)
        ON CONFLICT (session, message, id) DO UPDATE SET grows = excluded.grows, document = excluded.document,
            changed = excluded.changed;
    END IF;
    IF cardinality(growth_parts) > 0 THEN
        INSERT INTO {schema}.growth (session, message, part, position, delta)
        SELECT given.session, given.message, given.part, given.position, given.delta
        FROM unnest(growth_sessions, growth_messages, growth_parts, growth_positions, growth_deltas) WITH ORDINALITY
            AS given (session, message, part, position, delta, number)
        JOIN {schema}.part
            ON part.session = given.session AND part.message = given.message AND part.id = given.part AND part.grows
        ORDER BY given.number;
    END IF;
    IF cardinality(dirty_sessions) > 0 THEN
        INSERT INTO {schema}.dirty (session, message, revision)
        SELECT given.*, new_revision FROM unnest(dirty_sessions, dirty_messages) AS given
        ON CONFLICT (session, message) DO UPDATE SET revision = excluded.revision;
    END IF;
    RETURN NULL;
END $$;

-- Replace a value, or delete it if the document is null. It must still have the revision that the writer has read; 0 means
-- that there was no value, null that any is replaced. Return as `apply` does.
CREATE FUNCTION {schema}.put_value(
    value_key text[], new_document bytea, new_revision bigint, expected bigint,
    lease_sessions text[], lease_generations bigint[]
) RETURNS text
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    lost    text;
    known bigint;
BEGIN
    lost := {schema}.find_lost_lease(lease_sessions, lease_generations);
    IF lost IS NOT NULL THEN
        RETURN 'lost ' || lost;
    END IF;
    SELECT coalesce(max(locked.revision), 0) INTO known
    FROM (SELECT value.revision FROM {schema}.value WHERE key = value_key FOR UPDATE) AS locked;
    IF known <> coalesce(expected, known) AND known <> new_revision THEN
        RETURN 'changed';
    ELSIF new_document IS NULL THEN
        DELETE FROM {schema}.value WHERE key = value_key;
    ELSIF known <> 0 OR expected IS NULL THEN
        INSERT INTO {schema}.value (key, document, revision) VALUES (value_key, new_document, new_revision)
        ON CONFLICT (key) DO UPDATE SET document = excluded.document, revision = excluded.revision;
    ELSE
        -- Two writers that both found no value must not replace each other's.
        INSERT INTO {schema}.value (key, document, revision) VALUES (value_key, new_document, new_revision)
        ON CONFLICT (key) DO NOTHING;
        IF NOT FOUND THEN
            RETURN 'changed';
        END IF;
    END IF;
    RETURN NULL;
END $$;

-- Append lines to a log whose last line must still be that of number `expected`. Return null or 'changed'.
CREATE FUNCTION {schema}.append_log(log_name text[], expected bigint, new_revision bigint, lines bytea[]) RETURNS text
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    head record;
BEGIN
    INSERT INTO {schema}.log (name, last, revision) VALUES (log_name, 0, 0) ON CONFLICT (name) DO NOTHING;
    SELECT id, last, revision INTO head FROM {schema}.log WHERE name = log_name FOR UPDATE;
    IF head.revision = new_revision THEN
        RETURN NULL;
    ELSIF head.last <> expected THEN
        RETURN 'changed';
    END IF;
    INSERT INTO {schema}.log_line (log, number, line)
    SELECT head.id, expected + line.number, line.line FROM unnest(lines) WITH ORDINALITY AS line (line, number);
    UPDATE {schema}.log SET last = expected + cardinality(lines), revision = new_revision WHERE id = head.id;
    RETURN NULL;
END $$;

-- Remove the oldest lines of a log. Return how many were removed.
CREATE FUNCTION {schema}.trim_log(log_name text[], keep bigint) RETURNS bigint
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    head    record;
    removed bigint;
BEGIN
    SELECT id, last INTO head FROM {schema}.log WHERE name = log_name FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    DELETE FROM {schema}.log_line WHERE log = head.id AND number <= head.last - keep;
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END $$;

-- Move sessions into the trash, if all have the revisions that are named in its description.
-- Return null, 'changed' if they have others, or 'exists' if there is another bundle of that name.
CREATE FUNCTION {schema}.discard(
    sessions text[], revisions bigint[], bundle_id text, bundle_time bigint, new_document bytea, new_revision bigint
) RETURNS text
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    known bigint;
BEGIN
    SELECT bundle.revision INTO known FROM {schema}.bundle WHERE id = bundle_id;
    IF known = new_revision THEN
        RETURN NULL;
    ELSIF known IS NOT NULL THEN
        RETURN 'exists';
    END IF;
    SELECT count(*) INTO known
    FROM (
        SELECT session.id, session.revision FROM {schema}.session WHERE id = ANY (sessions) ORDER BY id FOR UPDATE
    ) AS locked
    JOIN unnest(sessions, revisions) AS named (id, revision) USING (id, revision);
    IF known <> cardinality(sessions) THEN
        RETURN 'changed';
    END IF;
    INSERT INTO {schema}.bundle (id, time, document, revision)
    VALUES (bundle_id, bundle_time, new_document, new_revision);
    INSERT INTO {schema}.trashed_session SELECT session.*, bundle_id FROM {schema}.session WHERE id = ANY (sessions);
    INSERT INTO {schema}.trashed_message SELECT message.*, bundle_id FROM {schema}.message WHERE session = ANY (sessions);
    INSERT INTO {schema}.trashed_part SELECT part.*, bundle_id FROM {schema}.part WHERE session = ANY (sessions);
    INSERT INTO {schema}.trashed_growth SELECT growth.*, bundle_id FROM {schema}.growth WHERE session = ANY (sessions);
    INSERT INTO {schema}.trashed_detail SELECT detail.*, bundle_id FROM {schema}.detail WHERE session = ANY (sessions);
    PERFORM {schema}.forget_sessions(sessions);
    RETURN NULL;
END $$;

-- Put the sessions of a bundle back. Return null if that was done; else the sessions that exist again, or {} if there is no
-- such bundle.
CREATE FUNCTION {schema}.restore(bundle_id text, new_revision bigint) RETURNS text[]
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    existing text[];
BEGIN
    PERFORM FROM {schema}.bundle WHERE id = bundle_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN '{}';
    END IF;
    SELECT array_agg(session.id) INTO existing
    FROM {schema}.trashed_session JOIN {schema}.session USING (id) WHERE trashed_session.bundle = bundle_id;
    IF existing IS NOT NULL THEN
        RETURN existing;
    END IF;
    -- Remove the rows that somebody wrote for the session while it was in the trash.
    PERFORM {schema}.forget_sessions(ARRAY(SELECT id FROM {schema}.trashed_session WHERE bundle = bundle_id));
    INSERT INTO {schema}.session (id, project, parent, directory, title, tags, archived, pinned, created, updated, document,
        revision)
    SELECT id, project, parent, directory, title, tags, archived, pinned, created, updated, document, new_revision
    FROM {schema}.trashed_session WHERE bundle = bundle_id;
    INSERT INTO {schema}.message (session, id, created, number, document)
    SELECT session, id, created, number, document FROM {schema}.trashed_message WHERE bundle = bundle_id;
    INSERT INTO {schema}.part (session, message, id, grows, document)
    SELECT session, message, id, grows, document FROM {schema}.trashed_part WHERE bundle = bundle_id;
    INSERT INTO {schema}.growth (session, message, part, number, position, delta) OVERRIDING SYSTEM VALUE
    SELECT session, message, part, number, position, delta FROM {schema}.trashed_growth WHERE bundle = bundle_id;
    INSERT INTO {schema}.detail (session, kind, document)
    SELECT session, kind, document FROM {schema}.trashed_detail WHERE bundle = bundle_id;
    INSERT INTO {schema}.dirty (session, message, revision)
    SELECT session, id, new_revision FROM {schema}.trashed_message WHERE bundle = bundle_id
    UNION ALL SELECT id, '', new_revision FROM {schema}.trashed_session WHERE bundle = bundle_id;
    PERFORM {schema}.purge(bundle_id);
    RETURN NULL;
END $$;

-- Delete a bundle for good. Return false if there is none.
CREATE FUNCTION {schema}.purge(bundle_id text) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    DELETE FROM {schema}.bundle WHERE id = bundle_id;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM {schema}.trashed_session WHERE bundle = bundle_id;
    DELETE FROM {schema}.trashed_message WHERE bundle = bundle_id;
    DELETE FROM {schema}.trashed_part WHERE bundle = bundle_id;
    DELETE FROM {schema}.trashed_growth WHERE bundle = bundle_id;
    DELETE FROM {schema}.trashed_detail WHERE bundle = bundle_id;
    RETURN true;
END $$;

-- Take the lease of a session if nobody holds it. Return its generation, or null if somebody holds it.
CREATE FUNCTION {schema}.take_lease(lease_session text, lease_owner bytea, lease_attempt bigint, seconds double precision)
RETURNS bigint
LANGUAGE sql AS $$
    INSERT INTO {schema}.lease AS held (session, owner, generation, attempt, till)
    VALUES (lease_session, lease_owner, nextval('{schema}.generation'), lease_attempt,
        clock_timestamp() + seconds * interval '1 second')
    ON CONFLICT (session) DO UPDATE SET owner = excluded.owner, generation = excluded.generation,
        attempt = excluded.attempt, till = excluded.till, changed = excluded.changed
    WHERE held.till IS NULL OR held.till < clock_timestamp() OR held.attempt = excluded.attempt
    RETURNING generation;
$$;

-- Put entries into the search index, each only if its mark still has the revision that was read before its message, and remove
-- these marks. A mark without an entry is one whose message does not exist.
CREATE FUNCTION {schema}.put_entries(
    mark_sessions text[], mark_messages text[], mark_revisions bigint[],
    entry_sessions text[], entry_messages text[], entry_created bigint[], entry_providers text[], entry_models text[],
    entry_input bigint[], entry_output bigint[], entry_reasoning bigint[], entry_cache_read bigint[],
    entry_cache_write bigint[], entry_nano bigint[], entry_atto bigint[], entry_priced boolean[],
    entry_counted boolean[], entry_words text[],
    call_sessions text[], call_messages text[], call_tools text[], call_counts bigint[], call_failed bigint[]
) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    done_sessions text[];
    done_messages text[];
BEGIN
    WITH removed AS (
        DELETE FROM {schema}.dirty
        USING unnest(mark_sessions, mark_messages, mark_revisions) AS mark (session, message, revision)
        WHERE dirty.session = mark.session AND dirty.message = mark.message AND dirty.revision = mark.revision
        RETURNING dirty.session, dirty.message
    )
    SELECT array_agg(session), array_agg(message) INTO done_sessions, done_messages FROM removed;
    DELETE FROM {schema}.entry USING unnest(done_sessions, done_messages) AS done (session, message)
    WHERE entry.session = done.session AND entry.message = done.message;
    DELETE FROM {schema}.call USING unnest(done_sessions, done_messages) AS done (session, message)
    WHERE call.session = done.session AND call.message = done.message;
    INSERT INTO {schema}.entry
    SELECT given.session, given.message, created, provider, model, input, output, reasoning, cache_read, cache_write, nano,
        atto, priced, counted, words::tsvector
    FROM unnest(entry_sessions, entry_messages, entry_created, entry_providers, entry_models, entry_input, entry_output,
        entry_reasoning, entry_cache_read, entry_cache_write, entry_nano, entry_atto, entry_priced, entry_counted,
        entry_words)
        AS given (session, message, created, provider, model, input, output, reasoning, cache_read, cache_write, nano, atto,
            priced, counted, words)
    JOIN unnest(done_sessions, done_messages) AS done (session, message) USING (session, message);
    INSERT INTO {schema}.call
    SELECT given.* FROM unnest(call_sessions, call_messages, call_tools, call_counts, call_failed)
        AS given (session, message, tool, calls, failed)
    JOIN unnest(done_sessions, done_messages) AS done (session, message) USING (session, message);
END $$;
