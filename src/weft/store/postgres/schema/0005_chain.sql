-- The hash chain of each session (see weft.store.chain): what every write changed, each entry bound to the one before it.
-- A node that does not write chains would make honest sessions look forged, so older ones may not use this schema.
UPDATE {schema}.weft_store SET needs = 5;

CREATE TABLE {schema}.chain (
    session text COLLATE "C" NOT NULL,
    number  bigint NOT NULL,
    hash    bytea NOT NULL,
    body    bytea NOT NULL,
    PRIMARY KEY (session, number)
);
CREATE TABLE {schema}.trashed_chain (LIKE {schema}.chain, bundle text COLLATE "C" NOT NULL);
CREATE INDEX trashed_chain_bundle ON {schema}.trashed_chain (bundle);

-- Append an entry to the chain of each session, if the function whose answer is given did its work. Return that answer.
-- Whoever else writes to the same session waits for the end of the transaction, because both would be number n + 1.
-- `link` and `get_root` of weft.store.chain compute the same hashes.
CREATE FUNCTION {schema}.extend_chains(answer text, chain_sessions text[], chain_bodies bytea[]) RETURNS text
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    given record;
    head  record;
BEGIN
    IF answer IS NOT NULL THEN
        RETURN answer;
    END IF;
    FOR given IN SELECT * FROM unnest(chain_sessions, chain_bodies) AS entry (session, body) ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(728132, hashtext('{schema}.' || given.session));
        SELECT number, hash INTO head FROM {schema}.chain WHERE session = given.session ORDER BY number DESC LIMIT 1;
        INSERT INTO {schema}.chain (session, number, hash, body) VALUES (
            given.session,
            coalesce(head.number, 0) + 1,
            sha256(coalesce(head.hash, sha256(convert_to('weft chain ' || given.session, 'UTF8'))) || given.body),
            given.body
        );
    END LOOP;
    RETURN NULL;
END $$;

-- The functions of 0002_functions.sql that move or delete whole sessions, now with their chains.
CREATE OR REPLACE FUNCTION {schema}.forget_sessions(sessions text[]) RETURNS void
LANGUAGE sql AS $$
    DELETE FROM {schema}.session WHERE id = ANY (sessions);
    DELETE FROM {schema}.message WHERE session = ANY (sessions);
    DELETE FROM {schema}.part WHERE session = ANY (sessions);
    DELETE FROM {schema}.growth WHERE session = ANY (sessions);
    DELETE FROM {schema}.detail WHERE session = ANY (sessions);
    DELETE FROM {schema}.dirty WHERE session = ANY (sessions);
    DELETE FROM {schema}.entry WHERE session = ANY (sessions);
    DELETE FROM {schema}.call WHERE session = ANY (sessions);
    DELETE FROM {schema}.chain WHERE session = ANY (sessions);
$$;

CREATE OR REPLACE FUNCTION {schema}.discard(
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
    INSERT INTO {schema}.trashed_chain SELECT chain.*, bundle_id FROM {schema}.chain WHERE session = ANY (sessions);
    PERFORM {schema}.forget_sessions(sessions);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION {schema}.restore(bundle_id text, new_revision bigint) RETURNS text[]
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
    INSERT INTO {schema}.chain (session, number, hash, body)
    SELECT session, number, hash, body FROM {schema}.trashed_chain WHERE bundle = bundle_id;
    INSERT INTO {schema}.dirty (session, message, revision)
    SELECT session, id, new_revision FROM {schema}.trashed_message WHERE bundle = bundle_id
    UNION ALL SELECT id, '', new_revision FROM {schema}.trashed_session WHERE bundle = bundle_id;
    PERFORM {schema}.purge(bundle_id);
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION {schema}.purge(bundle_id text) RETURNS boolean
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
    DELETE FROM {schema}.trashed_chain WHERE bundle = bundle_id;
    RETURN true;
END $$;
