-- Documents are JSON as bytes. The other columns of a table are what queries ask for.
CREATE TABLE project (
    id       TEXT PRIMARY KEY,
    document BLOB NOT NULL
) STRICT;

-- `title` is case-folded, and each of the `tags` stands between newlines.
CREATE TABLE session (
    number    INTEGER PRIMARY KEY,
    id        TEXT NOT NULL UNIQUE,
    project   TEXT NOT NULL,
    parent    TEXT,
    directory BLOB NOT NULL,
    title     BLOB NOT NULL,
    tags      BLOB NOT NULL,
    archived  INTEGER NOT NULL,
    pinned    INTEGER NOT NULL,
    created   INTEGER NOT NULL,
    updated   INTEGER NOT NULL,
    document  BLOB NOT NULL
) STRICT;
-- The title at the end of an index lets a search skip the rows that do not match.
CREATE INDEX session_by_created ON session (created DESC, id, title);
CREATE INDEX session_by_updated ON session (updated DESC, id, title);
CREATE INDEX session_by_project_and_created ON session (project, created DESC, id, title);
CREATE INDEX session_by_project_and_updated ON session (project, updated DESC, id, title);
CREATE INDEX session_by_parent ON session (parent) WHERE parent IS NOT NULL;

-- What belongs to a session besides its document. It may exist without the document, because events may come in any order.
-- A history with a `bundle` is in the trash: discarding a session moves no rows. `since` is when the history began (ms).
CREATE TABLE history (
    number  INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    bundle  TEXT,
    since   INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX history_by_session ON history (session) WHERE bundle IS NULL;
CREATE INDEX history_by_bundle ON history (bundle) WHERE bundle IS NOT NULL;

-- Messages are sorted by `created`, `position` and `id` (see `message_sort_key`).
CREATE TABLE message (
    number   INTEGER PRIMARY KEY,
    history  INTEGER NOT NULL,
    id       TEXT NOT NULL,
    created  INTEGER NOT NULL,
    position INTEGER NOT NULL,
    document BLOB NOT NULL,
    UNIQUE (history, id)
) STRICT;
CREATE INDEX message_in_order ON message (history, created, position);

-- `length` is the number of characters of a text that can grow, NULL for other parts. A part may come before its message.
CREATE TABLE part (
    number   INTEGER PRIMARY KEY,
    history  INTEGER NOT NULL,
    message  TEXT NOT NULL,
    id       TEXT NOT NULL,
    length   INTEGER,
    document BLOB NOT NULL,
    UNIQUE (history, message, id)
) STRICT;

-- Text that a part has grown by since its document was written: everything after `start` characters is replaced by `delta`,
-- and the text is then `length` characters long.
CREATE TABLE growth (
    number  INTEGER PRIMARY KEY,
    history INTEGER NOT NULL,
    part    INTEGER NOT NULL,
    start   INTEGER NOT NULL,
    length  INTEGER NOT NULL,
    delta   BLOB NOT NULL
) STRICT;
CREATE INDEX growth_by_part ON growth (history, part);

CREATE TABLE diff (history INTEGER PRIMARY KEY, document BLOB NOT NULL) STRICT;
CREATE TABLE todo (history INTEGER PRIMARY KEY, document BLOB NOT NULL) STRICT;

CREATE TABLE bundle (id TEXT PRIMARY KEY, time INTEGER NOT NULL) STRICT;
CREATE TABLE trashed_session (
    bundle   TEXT NOT NULL,
    position INTEGER NOT NULL,
    document BLOB NOT NULL,
    PRIMARY KEY (bundle, position)
) STRICT;

-- The words of a key end with NUL each.
CREATE TABLE value (key BLOB PRIMARY KEY, document BLOB NOT NULL) STRICT;
CREATE TABLE log (number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE) STRICT;
CREATE TABLE log_line (number INTEGER PRIMARY KEY, log INTEGER NOT NULL, line BLOB NOT NULL) STRICT;
CREATE INDEX log_line_in_order ON log_line (log, number);

-- `holder` names the lock file of the process. AUTOINCREMENT never gives a generation twice.
CREATE TABLE lease (
    generation INTEGER PRIMARY KEY AUTOINCREMENT,
    session    TEXT NOT NULL UNIQUE,
    owner      BLOB NOT NULL,
    holder     TEXT NOT NULL
) STRICT;

-- The index for searching keeps no copy of the text. The row of a message is its number, that of a title 2^40 more than the
-- number of its session.
CREATE VIRTUAL TABLE words USING fts5 (
    title, said, done,
    tokenize = 'unicode61 remove_diacritics 2', content = '', contentless_delete = 1
);

-- What statistics need of a message. The cost in dollars is (nano + atto / 1,000,000,000) billionths.
CREATE TABLE usage (
    message     INTEGER PRIMARY KEY,
    history     INTEGER NOT NULL,
    created     INTEGER NOT NULL,
    provider    TEXT NOT NULL,
    model       TEXT NOT NULL,
    input       INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    reasoning   INTEGER NOT NULL,
    cache_read  INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    nano        INTEGER NOT NULL,
    atto        INTEGER NOT NULL,
    priced      INTEGER NOT NULL,
    counted     INTEGER NOT NULL
) STRICT;
CREATE INDEX usage_by_history ON usage (history);
CREATE TABLE call (
    message INTEGER NOT NULL,
    tool    TEXT NOT NULL,
    calls   INTEGER NOT NULL,
    failed  INTEGER NOT NULL,
    PRIMARY KEY (message, tool)
) STRICT, WITHOUT ROWID;

-- What changed since it was indexed. Writers mark messages themselves, because a trigger for each part takes longer.
CREATE TABLE stale_message (history INTEGER NOT NULL, id TEXT NOT NULL, PRIMARY KEY (history, id)) STRICT, WITHOUT ROWID;
CREATE TABLE stale_title (session INTEGER PRIMARY KEY) STRICT;
CREATE TRIGGER message_deleted AFTER DELETE ON message BEGIN
    DELETE FROM words WHERE rowid = old.number;
    DELETE FROM usage WHERE message = old.number;
    DELETE FROM call WHERE message = old.number;
    DELETE FROM stale_message WHERE history = old.history AND id = old.id;
END;
CREATE TRIGGER session_added AFTER INSERT ON session BEGIN
    INSERT INTO stale_title VALUES (new.number) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER session_renamed AFTER UPDATE OF title ON session WHEN old.title <> new.title BEGIN
    INSERT INTO stale_title VALUES (new.number) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER session_deleted AFTER DELETE ON session BEGIN
    DELETE FROM words WHERE rowid = old.number + (1 << 40);
    DELETE FROM stale_title WHERE session = old.number;
END;
