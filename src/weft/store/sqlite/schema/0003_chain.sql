-- The hash chain of each history (see weft.store.chain). A history that is moved to the trash takes its chain along.
CREATE TABLE chain (
    number  INTEGER PRIMARY KEY,
    history INTEGER NOT NULL,
    hash    BLOB NOT NULL,
    body    BLOB NOT NULL
) STRICT;
CREATE INDEX chain_in_order ON chain (history, number);
