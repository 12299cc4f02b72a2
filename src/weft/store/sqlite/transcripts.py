"""Read the messages of a session from SQLite, and decode only what was written since they were last read."""

import apsw

from weft.errors import DocumentError
from weft.model.ids import SessionID, check_file_name
from weft.model.message import MessageWithParts, replace_messages
from weft.store.sqlite.connection import select
from weft.store.sqlite.events import CHAIN_SHIFT, SELECT_HEAD, find_history
from weft.store.sqlite.messages import (
    build_messages,
    select_history,
    select_some_messages,
)
from weft.store.sqlite.reader import SqliteReader
from weft.store.transcript_cache import CachedTranscript, ChainHead, TranscriptCache, list_changed_messages

SELECT_HASH = "SELECT hash FROM chain WHERE number = ?"
SELECT_BODIES = "SELECT body FROM chain WHERE number > ? AND number < ?"
SELECT_GROWING = "SELECT message FROM part WHERE number IN (SELECT part FROM growth WHERE history = ?)"


def list_cached_messages(
    reader: SqliteReader, cache: TranscriptCache, session: SessionID
) -> list[MessageWithParts]:
    """Return all messages of a session, oldest first. Those that did not change are the same objects as before."""
    check_file_name("session", session)
    known = cache.find(session)
    with reader.reading() as connection:
        history = find_history(connection, session)
        head = None if history is None else _find_head(connection, history)
        growing = frozenset[str]() if history is None else _list_growing(connection, history)
        changed = None
        if history is not None and known is not None:
            changed = _find_changed(connection, known, history)
        if changed is None:
            known, changed = None, set()
            rows = select_history(connection, history)
        else:
            changed |= growing
            rows = select_some_messages(connection, history, sorted(changed))
    damage: list[tuple[str, str, DocumentError]] = []
    messages = build_messages(session, rows, lambda *each: damage.append(each))
    for each in damage:
        reader.note_damage(*each)
    size = sum(len(row[-1]) for row in (*rows.messages, *rows.parts))
    if known is not None:
        messages = replace_messages(known.messages, changed, messages)
        size += known.size
    # The next reading has to find damage again.
    kept = None if head is None or damage else CachedTranscript(head, tuple(messages), growing, size)
    cache.put(session, kept)
    return messages


def _find_head(connection: apsw.Connection, history: int) -> ChainHead | None:
    rows = select(connection, SELECT_HEAD, (history << CHAIN_SHIFT, (history + 1) << CHAIN_SHIFT))
    return next((ChainHead(number, hash) for number, hash in rows), None)


def _list_growing(connection: apsw.Connection, history: int) -> frozenset[str]:
    return frozenset(id for (id,) in select(connection, SELECT_GROWING, (history,)))


def _find_changed(connection: apsw.Connection, known: CachedTranscript, history: int) -> set[str] | None:
    """Return the ids of the messages that may have changed since they were cached; None if nothing that is cached can be used."""
    number, hash = known.head
    # A deleted session may come back under the same numbers.
    if number >> CHAIN_SHIFT != history or select(connection, SELECT_HASH, (number,)) != [(hash,)]:
        return None
    bodies = select(connection, SELECT_BODIES, (number, (history + 1) << CHAIN_SHIFT))
    changed = list_changed_messages(body for (body,) in bodies)
    return None if changed is None else changed | known.growing
