-- Row-level security keeps principals apart even if a query forgets to. A principal's statements run as the role
-- weft_principal with the setting weft.owner (see bind_owner in migration.py). For that role a row exists only if it belongs to the
-- owner. The owner of the tables, who serves single users and administrators, is not restricted and pays nothing.

-- To whom each session belongs or belonged, '' for the administrator. A row stays when its session is deleted: an id never
-- changes hands unnoticed.
CREATE TABLE {schema}.session_owner (
    session text COLLATE "C" PRIMARY KEY,
    owner   text COLLATE "C" NOT NULL
);
CREATE INDEX session_owner_owner ON {schema}.session_owner (owner, session);
INSERT INTO {schema}.session_owner SELECT id, '' FROM {schema}.session
UNION SELECT id, '' FROM {schema}.trashed_session;

-- A lookup by key cannot use the index of the key under row-level security. This index leads to the keys of one principal.
CREATE INDEX value_principal ON {schema}.value ((key[2])) WHERE key[1] = 'principal';
CREATE INDEX log_principal ON {schema}.log ((name[2])) WHERE name[1] = 'principal';

-- Return the owner that the document of a session names, '' if it names none, null if it cannot be read as text.
CREATE FUNCTION {schema}.read_owner(document bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF position('"owner"'::bytea in document) = 0 THEN
        RETURN '';
    END IF;
    RETURN coalesce(convert_from(document, 'UTF8')::json -> 'weft' ->> 'owner', '');
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;

-- Record to whom a session belongs, before its row is written. A principal's new session is its own, and it cannot take over
-- one that exists or existed. An administrator's write is believed. The statement that inserts a session does not see the row that
-- is written here, so the setting weft.created names a session that is the owner's.
CREATE FUNCTION {schema}.record_owner() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bound text := coalesce(current_setting('weft.owner', true), '');
    named text;
BEGIN
    IF bound <> '' THEN
        INSERT INTO {schema}.session_owner (session, owner) VALUES (NEW.id, bound) ON CONFLICT (session) DO NOTHING;
        SELECT owner INTO named FROM {schema}.session_owner WHERE session = NEW.id;
        PERFORM set_config('weft.created', CASE named WHEN bound THEN NEW.id ELSE '' END, true);
        RETURN NEW;
    END IF;
    named := {schema}.read_owner(NEW.document);
    PERFORM FROM {schema}.session_owner WHERE session = NEW.id AND owner = coalesce(named, owner);
    IF NOT FOUND THEN
        INSERT INTO {schema}.session_owner (session, owner) VALUES (NEW.id, coalesce(named, ''))
        ON CONFLICT (session) DO UPDATE SET owner = excluded.owner;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER record_owner BEFORE INSERT ON {schema}.session
FOR EACH ROW EXECUTE FUNCTION {schema}.record_owner();

-- Restrict the role weft_principal to the rows of the owner, in every table that has a column `session`, and let it use them.
-- Tables without a policy stay closed to it. Call this after every change of the schema; what is done already is not done again.
CREATE FUNCTION {schema}.restrict_principals() RETURNS void
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
                WHEN 'session_owner' THEN 'owner = ' || bound
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
            AND (relation.relname IN ('session', 'trashed_session', 'bundle', 'value', 'log', 'log_line')
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
                CASE found.name WHEN 'session_owner' THEN 'SELECT' ELSE 'SELECT, INSERT, UPDATE, DELETE' END, place, found.name);
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
