"""Search the index: convert typed words to a safe query, and find the best match of each session."""

import re
from collections.abc import Iterator

from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.search import Hit
from weft.model.session import Session, is_archived
from weft.model.wire import decode
from weft.search.database import IndexDatabase, IndexRow
from weft.search.index import MATCH_END, MATCH_START, clean_text

MAX_QUERY_LENGTH = 4_000
MAX_WORDS = 32
SNIPPET_WORDS = 20
# A match in a title counts most, and one in the conversation more than one in a tool's output.
RANK_FUNCTION = "bm25(6.0, 2.0, 1.0)"

# Rows of titles are even, rows of messages odd (see sql/schema.sql).
SELECT_MATCHES = """SELECT words.rowid, session.number, session.document, message.id, message.created
FROM words
LEFT JOIN message ON message.number = words.rowid / 2 AND words.rowid % 2 = 1
JOIN session ON session.number = CASE words.rowid % 2 WHEN 1 THEN message.session ELSE words.rowid / 2 END
WHERE words MATCH ? AND rank MATCH ? AND (? IS NULL OR session.project = ?)
ORDER BY rank"""
SELECT_SNIPPET = (
    f"SELECT snippet(words, -1, ?, ?, '…', {SNIPPET_WORDS}) FROM words WHERE words MATCH ? AND rowid = ?"
)

_QUERY_PIECE = re.compile(r'"([^"]*)"|(\S+)')


def to_query(words: str) -> str:
    """Convert typed words to an FTS5 query. Return "" if there is no word.

    Every word must occur, as a whole or as a prefix. Text in double quotes must occur literally.
    """
    pieces = []
    for phrase, word in _QUERY_PIECE.findall(clean_text(words[:MAX_QUERY_LENGTH])):
        text, star = (phrase, "") if phrase else (word.replace('"', " "), "*")
        if any(char.isalnum() for char in text):
            pieces.append(f'"{text}"{star}')
    return " ".join(pieces[:MAX_WORDS])


def search_index(
    database: IndexDatabase, words: str, *, project: ProjectID | None = None, limit: int
) -> list[Hit]:
    """Return the best match of each session that contains all words, best first."""
    query = to_query(words)
    if not query or limit < 1:
        return []
    hits: list[Hit] = []
    for row in list(_list_best_rows(database, query, project, limit)):
        ((snippet,),) = database.rows(SELECT_SNIPPET, MATCH_START, MATCH_END, query, row[0]) or [("",)]
        hits.append(_to_hit(row, snippet or ""))
    return hits


def _list_best_rows(
    database: IndexDatabase, query: str, project: ProjectID | None, limit: int
) -> Iterator[IndexRow]:
    seen: set[int] = set()
    for row in database.iterate(SELECT_MATCHES, query, RANK_FUNCTION, project, project):
        if row[1] not in seen:
            seen.add(row[1])
            yield row
        if len(seen) == limit:
            return


def _to_hit(row: IndexRow, marked: str) -> Hit:
    _, _, document, message, created = row
    session = decode(document, Session)
    snippet, marks = _extract_marks(marked)
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


def _extract_marks(marked: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return the text without marks, and the ranges that were marked."""
    text, marks = "", []
    for piece in marked.split(MATCH_START):
        match, mark, rest = piece.partition(MATCH_END)
        if mark:
            marks.append((len(text), len(text) + len(match)))
        text += match + rest
    return text, tuple(marks)
