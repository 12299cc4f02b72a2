"""Search the index: turn typed words into a safe query and find the best match of each session."""

import re
from collections.abc import Iterator

from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.search import Hit
from weft.model.session import Session, is_archived
from weft.model.wire import decode
from weft.search.database import Database, Row
from weft.search.index import AFTER, BEFORE, clean

LONGEST_QUERY = 4_000
MOST_WORDS = 32
SNIPPET_WORDS = 20
# A title says most, what was said more than what a tool printed.
RANKED = "bm25(6.0, 2.0, 1.0)"

# The row of a title is even, that of a message odd (see sql/schema.sql).
FOUND = """SELECT words.rowid, session.number, session.document, message.id, message.created
FROM words
LEFT JOIN message ON message.number = words.rowid / 2 AND words.rowid % 2 = 1
JOIN session ON session.number = CASE words.rowid % 2 WHEN 1 THEN message.session ELSE words.rowid / 2 END
WHERE words MATCH ? AND rank MATCH ? AND (? IS NULL OR session.project = ?)
ORDER BY rank"""
SNIPPET = (
    f"SELECT snippet(words, -1, ?, ?, '…', {SNIPPET_WORDS}) FROM words WHERE words MATCH ? AND rowid = ?"
)

_PIECES = re.compile(r'"([^"]*)"|(\S+)')


def to_query(words: str) -> str:
    """A query in SQLite's language, from whatever was typed; empty if there is no word in it.

    Every word must be there, itself or as the beginning of one; what stands in double quotes must be there as it is.
    """
    pieces = []
    for phrase, word in _PIECES.findall(clean(words[:LONGEST_QUERY])):
        text, star = (phrase, "") if phrase else (word.replace('"', " "), "*")
        if any(char.isalnum() for char in text):
            pieces.append(f'"{text}"{star}')
    return " ".join(pieces[:MOST_WORDS])


def search(database: Database, words: str, *, project: ProjectID | None = None, limit: int) -> list[Hit]:
    """The best place of each session that has all the words, best first."""
    query = to_query(words)
    if not query or limit < 1:
        return []
    hits: list[Hit] = []
    for row in list(_best(database, query, project, limit)):
        ((snippet,),) = database.rows(SNIPPET, BEFORE, AFTER, query, row[0]) or [("",)]
        hits.append(_to_hit(row, snippet or ""))
    return hits


def _best(database: Database, query: str, project: ProjectID | None, limit: int) -> Iterator[Row]:
    seen: set[int] = set()
    for row in database.each(FOUND, query, RANKED, project, project):
        if row[1] not in seen:
            seen.add(row[1])
            yield row
        if len(seen) == limit:
            return


def _to_hit(row: Row, marked: str) -> Hit:
    _, _, document, message, created = row
    session = decode(document, Session)
    snippet, marks = _unmarked(marked)
    return Hit(
        session_id=SessionID(session.id),
        project_id=session.project_id,
        message_id=None if message is None else MessageID(message),
        title=session.title,
        updated=session.time.updated,
        archived=is_archived(session),
        at=session.time.created if created is None else created,
        snippet=snippet,
        marks=marks,
    )


def _unmarked(marked: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text without its marks, and from where to where they stood."""
    text, marks = "", []
    for piece in marked.split(BEFORE):
        found, mark, rest = piece.partition(AFTER)
        if mark:
            marks.append((len(text), len(text) + len(found)))
        text += found + rest
    return text, tuple(marks)
