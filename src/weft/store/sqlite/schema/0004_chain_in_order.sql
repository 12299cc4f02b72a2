-- The number of an entry begins with that of its history: entry n of history h is (h << 32) + n. So a chain lies together, its last
-- entry is found at once, and appending to it writes no index.
CREATE TABLE chain_entry (
    number INTEGER PRIMARY KEY,
    hash   BLOB NOT NULL,
    body   BLOB NOT NULL
) STRICT;
INSERT INTO chain_entry
SELECT (history << 32) + row_number() OVER (PARTITION BY history ORDER BY number), hash, body
FROM chain ORDER BY history, number;
DROP TABLE chain;
ALTER TABLE chain_entry RENAME TO chain;
