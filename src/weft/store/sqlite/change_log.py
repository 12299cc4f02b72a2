"""The change log of a SQLite store. Rows name what changed; readers get events with what is stored now.

The transaction that changes something also adds a row. For all documents that are written together that is one row: the entry of
the hash chain names them already (see `weft.store.chain`).
"""

from typing import Final, Literal

import apsw

# A listener that missed more changes than this reads its sessions again instead.
LOG_ROWS: Final = 10_000
# Rows are removed this many at a time.
TRIM_ROWS: Final = 500

ChangeKind = Literal["created", "deleted", "ended", "project"]

LOG_ENTRY = "INSERT INTO event (entry) VALUES (?)"
LOG_GROWTH = "INSERT INTO event (part) VALUES (?)"
LOG_CHANGE = "INSERT INTO event (kind, id) VALUES (?, ?)"
LOG_DELETION = (
    "INSERT INTO event (kind, id, document) SELECT 'deleted', id, document FROM session WHERE id = ?"
)
TRIM = "DELETE FROM event WHERE position <= ?"


def log_entry(connection: apsw.Connection, entry: int) -> int:
    """Log that an entry was added to a chain. Return its position."""
    connection.execute(LOG_ENTRY, (entry,))
    return _trim_sometimes(connection)


def log_growth(connection: apsw.Connection, part: int) -> int:
    """Log that a part has grown. Return the position of that."""
    connection.execute(LOG_GROWTH, (part,))
    return _trim_sometimes(connection)


def log_change(connection: apsw.Connection, kind: ChangeKind, id: str) -> int:
    """Log what happened to a session or a project. Return the position of that."""
    connection.execute(LOG_CHANGE, (kind, id))
    return _trim_sometimes(connection)


def log_deletion(connection: apsw.Connection, session: str) -> int:
    """Log that a session is deleted, before that is done. Return the position of that, 0 if there is no such session."""
    connection.execute(LOG_DELETION, (session,))
    return _trim_sometimes(connection) if connection.changes() else 0


def _trim_sometimes(connection: apsw.Connection) -> int:
    # The last row is never removed, so no position is given twice.
    position = connection.last_insert_rowid()
    if position % TRIM_ROWS == 0:
        connection.execute(TRIM, (position - LOG_ROWS,))
    return position
