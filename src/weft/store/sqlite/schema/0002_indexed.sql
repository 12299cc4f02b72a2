-- Messages with a greater number than `upto` were never indexed. They need no mark in `stale_message`, which is for those that
-- changed since. So storing a new message writes one table less.
CREATE TABLE indexed (upto INTEGER NOT NULL) STRICT;
INSERT INTO indexed SELECT coalesce(max(number), 0) FROM message;
