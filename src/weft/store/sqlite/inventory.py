"""List the documents of a database with their places, and find those that are unreadable."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from weft.errors import DocumentError
from weft.model.damage import Damage
from weft.model.diff import FileDiff, cap_diffs, is_capped
from weft.model.message import AnyMessage
from weft.model.part import AnyPart
from weft.model.project import Project
from weft.model.session import SessionInfo, Todo
from weft.model.wire import decode, decode_many, encode
from weft.store.repair_documents import shrink_message
from weft.store.sizes import ProgressCallback
from weft.store.sqlite.reader import SqliteReader, to_place

ROWS_PER_READ = 500
# A smaller document cannot contain a diff that exceeds the bounds.
SUSPECT_BYTES = 64 << 10

# For each kind of document, a statement that continues after a row: row, id, session, project and document.
SELECT_KINDS = {
    "project": "SELECT rowid, id, '', id, document FROM project WHERE rowid > ? ORDER BY rowid LIMIT ?",
    "session": "SELECT number, id, id, project, document FROM session WHERE number > ? ORDER BY number LIMIT ?",
    "message": """SELECT message.number, history.session || '/' || message.id, history.session, session.project, message.document
FROM message JOIN history ON history.number = message.history LEFT JOIN session ON session.id = history.session
WHERE message.number > ? AND history.bundle IS NULL ORDER BY message.number LIMIT ?""",
    "part": """SELECT part.number, history.session || '/' || part.message || '/' || part.id, history.session, session.project,
part.document FROM part JOIN history ON history.number = part.history LEFT JOIN session ON session.id = history.session
WHERE part.number > ? AND history.bundle IS NULL ORDER BY part.number LIMIT ?""",
    **{
        kind: f"""SELECT {kind}.history, history.session, history.session, session.project, {kind}.document
FROM {kind} JOIN history ON history.number = {kind}.history LEFT JOIN session ON session.id = history.session
WHERE {kind}.history > ? AND history.bundle IS NULL ORDER BY {kind}.history LIMIT ?"""
        for kind in ("diff", "todo")
    },
    "value": "SELECT rowid, key, '', '', document FROM value WHERE rowid > ? ORDER BY rowid LIMIT ?",
    "trash": """SELECT rowid, bundle || '/' || position, '', '', document FROM trashed_session
WHERE rowid > ? ORDER BY rowid LIMIT ?""",
}
TYPES: dict[str, Any] = {
    "project": Project,
    "session": SessionInfo,
    "message": AnyMessage,
    "part": AnyPart,
    "diff": tuple[FileDiff, ...],
    "todo": tuple[Todo, ...],
    "value": Any,
    "trash": SessionInfo,
}


class StoredDocument(NamedTuple):
    """A document: its kind, its id within that kind, and the session and project that it belongs to, "" for none."""

    kind: str
    id: str
    session: str
    project: str
    document: bytes


def iterate_documents(reader: SqliteReader, *kinds: str) -> Iterator[list[StoredDocument]]:
    """Yield all documents of these kinds, some at a time. No transaction is open meanwhile."""
    for kind in kinds:
        last = -1
        while rows := reader.rows(SELECT_KINDS[kind], last, ROWS_PER_READ):
            last = rows[-1][0]
            yield [
                StoredDocument(
                    kind,
                    # The key of a value is stored as bytes (`to_key_bytes`).
                    id if isinstance(id, str) else id[:-1].decode().replace("\x00", "/"),
                    session,
                    project or "",
                    document,
                )
                for _, id, session, project, document in rows
            ]


def find_damage(reader: SqliteReader) -> list[Damage]:
    """Read every document. Return those that are unreadable."""
    found: list[Damage] = []
    for documents in iterate_documents(reader, *SELECT_KINDS):
        decoded = decode_many([each.document for each in documents], TYPES[documents[0].kind])
        found += [
            Damage(where=to_place(reader.file.path, each.kind, each.id), reason=value.reason)
            for each, value in zip(documents, decoded, strict=True)
            if isinstance(value, DocumentError)
        ]
    return found


def list_large(reader: SqliteReader, on_progress: ProgressCallback) -> Iterator[tuple[StoredDocument, bytes]]:
    """Yield each document whose diffs contain whole files, with its smaller form without these files."""
    seen = 0
    for documents in iterate_documents(reader, "diff", "message"):
        for each in documents:
            if len(each.document) > SUSPECT_BYTES and (small := shrink_document(each)) is not None:
                yield each, small
        seen += len(documents)
        on_progress(seen)


def shrink_document(stored: StoredDocument) -> bytes | None:
    """Return a diff or a message without whole files; None if it has none, or is unreadable."""
    try:
        if stored.kind == "diff":
            diffs: Sequence[FileDiff] = decode(stored.document, tuple[FileDiff, ...])
            return None if is_capped(diffs) else encode(cap_diffs(diffs))
        info: AnyMessage = decode(stored.document, AnyMessage)
    except DocumentError:
        return None
    small = shrink_message(info)
    return None if small is None else encode(small)
