"""Read the messages of a session from Postgres, and fetch only what was written since they were last read.

One statement sees one state of the database. So the statement that fetches the entries that the chain has gained also fetches the
messages that they name.
"""

from typing import Any

from weft.model.ids import SessionID
from weft.model.message import MessageWithParts, replace_messages
from weft.store.postgres.documents import (
    GROWTH_ROW,
    MESSAGE_ROW,
    PART_ROW,
    SELECT_MESSAGES,
    SELECT_THEIR_PARTS,
    PostgresDocuments,
)
from weft.store.rows import to_ascii
from weft.store.transcripts import CachedTranscript, ChainHead, TranscriptCache, list_changed_messages

# Rows of a chain: the number and the hash of an entry, and the number and the body.
HASH_ROW, BODY_ROW = 10, 11
# The ids of messages in the body of an entry (see `message_key`, `part_key` and `check_file_name`).
NAMED_MESSAGE = r'"(?:message|part)/([0-9A-Za-z][0-9A-Za-z_.-]*)'

SELECT_ALL = f"""{SELECT_MESSAGES}
UNION ALL (SELECT {HASH_ROW}, session, NULL, NULL, number, 0, hash FROM {{schema}}.chain WHERE session = $1
ORDER BY number DESC LIMIT 1)"""
SELECT_CHANGED = f"""WITH gained AS MATERIALIZED (
SELECT session, number, hash, body FROM {{schema}}.chain WHERE session = $1 AND number >= $3),
named AS (SELECT (regexp_matches(encode(body, 'escape'), '{NAMED_MESSAGE}', 'g'))[1] AS id FROM gained WHERE number > $3),
chosen AS (SELECT session, id, document FROM {{schema}}.message WHERE session = $1 AND id = ANY (
$2::text[] || ARRAY(SELECT message FROM {{schema}}.growth WHERE session = $1) || ARRAY(SELECT DISTINCT id FROM named)))
{SELECT_THEIR_PARTS}
UNION ALL SELECT {HASH_ROW}, session, NULL, NULL, number, 0, hash FROM gained
UNION ALL SELECT {BODY_ROW}, session, NULL, NULL, number, 0, body FROM gained WHERE number > $3"""


async def list_cached_messages(
    documents: PostgresDocuments, cache: TranscriptCache, session: SessionID
) -> list[MessageWithParts]:
    """Return all messages of a session, oldest first. Those that did not change are the same objects as before."""
    known = cache.find(session)
    found = None if known is None else await _fetch_changes(documents, session, known)
    if found is None:
        known, wanted = None, set[str]()
        rows = await documents.database.fetch(SELECT_ALL, to_ascii(session))
        head = next((ChainHead(row[4], row[6]) for row in rows if row[0] == HASH_ROW), None)
    else:
        head, wanted, rows = found
    messages = await documents.decode_messages(rows)
    # The next reading has to find damage again.
    is_kept = head is not None and _is_complete(rows, messages)
    growing = frozenset[str](row[2] for row in rows if row[0] == GROWTH_ROW)
    size = sum(len(row[6]) for row in rows if row[0] in {MESSAGE_ROW, PART_ROW})
    if known is not None:
        messages = replace_messages(known.messages, wanted | growing, messages)
        size += known.size
    cache.put(session, CachedTranscript(head, tuple(messages), growing, size) if head and is_kept else None)
    return messages


async def _fetch_changes(
    documents: PostgresDocuments, session: SessionID, known: CachedTranscript
) -> tuple[ChainHead, set[str], list[Any]] | None:
    """Return the newest entry of the chain, the ids of the messages that may have changed since they were cached, and their rows.

    Return None if nothing that is cached can be used.
    """
    number, hash = known.head
    rows = await documents.database.fetch(SELECT_CHANGED, to_ascii(session), sorted(known.growing), number)
    hashes = {row[4]: row[6] for row in rows if row[0] == HASH_ROW}
    if hashes.get(number) != hash:
        return None  # the session was deleted and made again
    changed = list_changed_messages(row[6] for row in rows if row[0] == BODY_ROW)
    if changed is None:
        return None
    newest = max(hashes)
    return ChainHead(newest, hashes[newest]), changed | known.growing, rows


def _is_complete(rows: list[Any], messages: list[MessageWithParts]) -> bool:
    """Return True if each row of a message or a part could be read, and belongs to a message."""
    count = sum(1 + len(message.parts) for message in messages)
    return count == sum(row[0] in {MESSAGE_ROW, PART_ROW} for row in rows)
