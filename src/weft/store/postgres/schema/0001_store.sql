-- Documents are JSON as bytes: text columns refuse NUL and half of a surrogate pair. Ids compare byte by byte.
-- `changed` is the time of the last write by the clock of the database. `revision` is a random number that every write replaces.

CREATE TABLE {schema}.project (
    id       text COLLATE "C" PRIMARY KEY,
    created  bigint NOT NULL,
    document bytea NOT NULL
);

-- `title` is case-folded; each of the `tags` stands between two newlines.
CREATE TABLE {schema}.session (
    id        text COLLATE "C" PRIMARY KEY,
    project   text COLLATE "C" NOT NULL,
    parent    text COLLATE "C",
    directory bytea NOT NULL,
    title     bytea NOT NULL,
    tags      bytea NOT NULL,
    archived  boolean NOT NULL,
    pinned    boolean NOT NULL,
    created   bigint NOT NULL,
    updated   bigint NOT NULL,
    document  bytea NOT NULL,
    revision  bigint NOT NULL
);
CREATE INDEX session_created ON {schema}.session (created DESC, id);
CREATE INDEX session_updated ON {schema}.session (updated DESC, id);
CREATE INDEX session_project_created ON {schema}.session (project, created DESC, id);
CREATE INDEX session_project_updated ON {schema}.session (project, updated DESC, id);
CREATE INDEX session_parent ON {schema}.session (parent) WHERE parent IS NOT NULL;

-- `number` is the unwrapped number in the id.
CREATE TABLE {schema}.message (
    session  text COLLATE "C" NOT NULL,
    id       text COLLATE "C" NOT NULL,
    created  bigint NOT NULL,
    number   bigint NOT NULL,
    document bytea NOT NULL,
    changed  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session, id)
);
CREATE INDEX message_order ON {schema}.message (session, created, number, id);

-- `grows` says that the part is a text that can grow.
CREATE TABLE {schema}.part (
    session  text COLLATE "C" NOT NULL,
    message  text COLLATE "C" NOT NULL,
    id       text COLLATE "C" NOT NULL,
    grows    boolean NOT NULL,
    document bytea NOT NULL,
    changed  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session, message, id)
);

-- What a part grew by since its document was written: `delta` (UTF-8, with lone surrogates) at character `position`. Whether
-- that fits is decided by whoever reads it, because only the text tells.
CREATE TABLE {schema}.growth (
    session  text COLLATE "C" NOT NULL,
    message  text COLLATE "C" NOT NULL,
    part     text COLLATE "C" NOT NULL,
    number   bigint GENERATED ALWAYS AS IDENTITY,
    position bigint NOT NULL,
    delta    bytea NOT NULL,
    changed  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session, message, part, number)
);

-- The diff and the todos of a session; `kind` says which.
CREATE TABLE {schema}.detail (
    session  text COLLATE "C" NOT NULL,
    kind     text COLLATE "C" NOT NULL,
    document bytea NOT NULL,
    changed  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session, kind)
);

CREATE TABLE {schema}.value (
    key      text[] COLLATE "C" PRIMARY KEY,
    document bytea NOT NULL,
    revision bigint NOT NULL
);

-- `last` is the number of the last line, and `revision` names the append that wrote it.
CREATE TABLE {schema}.log (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name     text[] COLLATE "C" NOT NULL UNIQUE,
    last     bigint NOT NULL,
    revision bigint NOT NULL
);
CREATE TABLE {schema}.log_line (
    log    bigint NOT NULL,
    number bigint NOT NULL,
    line   bytea NOT NULL,
    PRIMARY KEY (log, number)
);

-- `till` is null once the lease was given back. A generation is never used twice. `attempt` names who took the lease, so that
-- taking it can be repeated after a lost connection.
CREATE SEQUENCE {schema}.generation;
CREATE TABLE {schema}.lease (
    session    text COLLATE "C" PRIMARY KEY,
    owner      bytea NOT NULL,
    generation bigint NOT NULL,
    attempt    bigint NOT NULL,
    till       timestamptz,
    changed    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX lease_till ON {schema}.lease (till) WHERE till IS NOT NULL;

-- The trash. `document` describes a bundle; its rows are in the tables that begin with `trashed`.
CREATE TABLE {schema}.bundle (
    id       text COLLATE "C" PRIMARY KEY,
    time     bigint NOT NULL,
    document bytea NOT NULL,
    revision bigint NOT NULL
);
CREATE TABLE {schema}.trashed_session (LIKE {schema}.session, bundle text COLLATE "C" NOT NULL);
CREATE TABLE {schema}.trashed_message (LIKE {schema}.message, bundle text COLLATE "C" NOT NULL);
CREATE TABLE {schema}.trashed_part (LIKE {schema}.part, bundle text COLLATE "C" NOT NULL);
CREATE TABLE {schema}.trashed_growth (LIKE {schema}.growth, bundle text COLLATE "C" NOT NULL);
CREATE TABLE {schema}.trashed_detail (LIKE {schema}.detail, bundle text COLLATE "C" NOT NULL);
CREATE INDEX trashed_session_bundle ON {schema}.trashed_session (bundle);
CREATE INDEX trashed_message_bundle ON {schema}.trashed_message (bundle);
CREATE INDEX trashed_part_bundle ON {schema}.trashed_part (bundle);
CREATE INDEX trashed_growth_bundle ON {schema}.trashed_growth (bundle);
CREATE INDEX trashed_detail_bundle ON {schema}.trashed_detail (bundle);

-- The search index. An entry describes a message, or a title if `message` is empty. `words` has the weights A (title),
-- B (conversation) and C (reasoning and tool calls). The cost in dollars is (nano + atto / 1,000,000,000) billionths.
CREATE TABLE {schema}.entry (
    session     text COLLATE "C" NOT NULL,
    message     text COLLATE "C" NOT NULL,
    created     bigint NOT NULL,
    provider    text NOT NULL,
    model       text NOT NULL,
    input       bigint NOT NULL,
    output      bigint NOT NULL,
    reasoning   bigint NOT NULL,
    cache_read  bigint NOT NULL,
    cache_write bigint NOT NULL,
    nano        bigint NOT NULL,
    atto        bigint NOT NULL,
    priced      boolean NOT NULL,
    counted     boolean NOT NULL,
    words       tsvector NOT NULL,
    PRIMARY KEY (session, message)
);
CREATE INDEX entry_words ON {schema}.entry USING gin (words);
CREATE TABLE {schema}.call (
    session text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL,
    tool    text NOT NULL,
    calls   bigint NOT NULL,
    failed  bigint NOT NULL,
    PRIMARY KEY (session, message, tool)
);

-- What changed since the index was updated. Each write leaves another `revision`, so that none is missed.
CREATE TABLE {schema}.dirty (
    session  text COLLATE "C" NOT NULL,
    message  text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    PRIMARY KEY (session, message)
);

-- What repairs replaced or removed. `name` is that of the backup, `place` that of the document.
CREATE TABLE {schema}.backup (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name     text COLLATE "C" NOT NULL,
    place    text COLLATE "C" NOT NULL,
    document bytea NOT NULL,
    changed  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX backup_name ON {schema}.backup (name);

-- Not every server is built with lz4, which is several times faster than the default.
DO $$
BEGIN
    ALTER TABLE {schema}.message ALTER document SET COMPRESSION lz4;
    ALTER TABLE {schema}.part ALTER document SET COMPRESSION lz4;
    ALTER TABLE {schema}.detail ALTER document SET COMPRESSION lz4;
    ALTER TABLE {schema}.growth ALTER delta SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN NULL;
END $$;
