-- What changed last (see weft.store.sqlite.change_log). A row names what changed, and keeps no text that is stored elsewhere:
-- * an `entry` of a chain, whose body names the documents;
-- * a `part` that has grown;
-- * or a `kind` and an `id`: a session that was `created` (put back from the trash), `deleted` (with its last document) or has `ended`
--   a run, or a `project` that was put.
CREATE TABLE event (
    position INTEGER PRIMARY KEY,
    entry    INTEGER,
    part     INTEGER,
    kind     TEXT,
    id       TEXT,
    document BLOB
) STRICT;

-- The servers that have used this database, each with the last position before it.
CREATE TABLE event_server (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, start INTEGER NOT NULL) STRICT;
