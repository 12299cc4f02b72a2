-- Each session document, and the stamp of the file it was read from. An `mtime` of 0 matches no file, so it is read again.
CREATE TABLE session (
    number   INTEGER PRIMARY KEY,
    project  TEXT NOT NULL,
    id       TEXT NOT NULL,
    parent   TEXT,
    created  INTEGER NOT NULL,
    updated  INTEGER NOT NULL,
    mtime    INTEGER NOT NULL,
    size     INTEGER NOT NULL,
    inode    INTEGER NOT NULL,
    settled  INTEGER NOT NULL,
    document BLOB NOT NULL,
    UNIQUE (project, id)
);
CREATE INDEX session_by_id ON session (id);

-- The cost in dollars is (nano + atto / 1,000,000,000) billionths. Integers add up exactly, and SQLite has no decimals.
CREATE TABLE message (
    number      INTEGER PRIMARY KEY,
    session     INTEGER NOT NULL,
    id          TEXT NOT NULL,
    created     INTEGER NOT NULL,
    open        INTEGER NOT NULL,
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
    counted     INTEGER NOT NULL,
    UNIQUE (session, id)
);

CREATE TABLE call (
    message INTEGER NOT NULL,
    tool    TEXT NOT NULL,
    calls   INTEGER NOT NULL,
    failed  INTEGER NOT NULL,
    PRIMARY KEY (message, tool)
) WITHOUT ROWID;

-- The row id of a message is 2 * number + 1, that of a title 2 * number of its session.
CREATE VIRTUAL TABLE words USING fts5 (title, said, done, tokenize = 'unicode61 remove_diacritics 2');

CREATE TABLE root (path TEXT NOT NULL);
