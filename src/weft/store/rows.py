"""Sessions, messages and parts as rows of a database, and queries for sessions as SQL (pure).

Text that people choose is stored as bytes, because it may contain characters that databases refuse: NUL and half of a pair.
A time beyond 64 bits is stored as the nearest integer that fits. Documents are exact.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from weft.model.ids import check_file_name, check_file_names, unwrap
from weft.model.message import AnyMessage
from weft.model.part import AnyPart, ReasoningPart, TextPart
from weft.model.session import SessionInfo, get_weft_data, is_archived
from weft.model.session_query import SessionQuery, find_cursor

TAG_BOUNDARY = b"\n"
MAX_INTEGER = 2**63 - 1
LAST_ASCII = "\x7f"
# The number of an id that was made before this time (ms, in the year 10,889) fits in any case.
DISTANT_TIME = 1 << 48

SqlValue = str | bytes | int | bool | None


def to_bytes(text: str) -> bytes:
    """Return a text as it is stored. `to_text` is the opposite."""
    return text.encode("utf-8", "surrogatepass")


def to_text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def to_ascii(text: str) -> str:
    """Return a text that should be an id with everything escaped that an id does not contain."""
    return text.encode("ascii", "backslashreplace").decode().replace("\0", "\\0")


def to_integer(number: int) -> int:
    """Return the nearest integer that a database can store."""
    return number if -MAX_INTEGER <= number <= MAX_INTEGER else max(-MAX_INTEGER, min(number, MAX_INTEGER))


class SessionRow(NamedTuple):
    """A session: what a query asks for, and its document. `title` is case-folded, and each of the `tags` is between two newlines."""

    id: str
    project: str
    parent: str | None
    directory: bytes
    title: bytes
    tags: bytes
    archived: bool
    pinned: bool
    created: int
    updated: int
    document: bytes


def to_session_row(session: SessionInfo, document: bytes) -> SessionRow:
    """Return the row of a session and its encoded document. Raise `InvalidIdError` for an id that no store could use."""
    data = get_weft_data(session)
    return SessionRow(
        id=check_file_name("session", session.id),
        project=check_file_name("project", session.project_id),
        parent=None if session.parent_id is None else to_ascii(session.parent_id),
        directory=to_bytes(session.directory),
        title=to_bytes(session.title.casefold()),
        tags=b"".join(TAG_BOUNDARY + to_bytes(tag) + TAG_BOUNDARY for tag in data.tags),
        archived=is_archived(session),
        pinned=data.pinned,
        created=to_integer(session.time.created),
        updated=to_integer(session.time.updated),
        document=document,
    )


class MessageColumns(NamedTuple):
    """Messages of one or more sessions, a column of the table at a time, without the session.

    They are sorted by `created`, then `numbers`, then `ids` (see `message_sort_key`).
    """

    ids: Sequence[str]
    created: Sequence[int]
    numbers: Sequence[int]
    documents: Sequence[bytes]


class PartColumns(NamedTuple):
    """Parts of one or more sessions, a column of the table at a time, without the session.

    A length is the number of characters of a text that can grow, None for other parts.
    """

    messages: Sequence[str]
    ids: Sequence[str]
    lengths: Sequence[int | None]
    documents: Sequence[bytes]


# A long session has thousands of messages. To make a column at a time takes a third of the time of a row at a time, and leaves no
# objects behind for the garbage collector to look at.


def to_message_columns(messages: Sequence[AnyMessage], documents: Sequence[bytes]) -> MessageColumns:
    """Return messages and their encoded documents as columns. Raise `InvalidIdError` for an id that no store could use."""
    ids = [message.id for message in messages]
    created = [message.time.created for message in messages]
    check_file_names("message", ids)
    numbers = list(map(unwrap, ids, created))
    if created and not (min(created) >= 0 and max(created) < DISTANT_TIME):
        created, numbers = list(map(to_integer, created)), list(map(to_integer, numbers))
    return MessageColumns(ids, created, numbers, documents)


def to_part_columns(parts: Sequence[AnyPart], documents: Sequence[bytes]) -> PartColumns:
    """Return parts and their encoded documents as columns. Raise `InvalidIdError` for an id that no store could use."""
    messages = [part.message_id for part in parts]
    ids = [part.id for part in parts]
    check_file_names("message", set(messages))
    check_file_names("part", ids)
    # `isinstance` takes longer than all of the rest if the answer is no.
    lengths = [
        len(part.text) if type(part) is TextPart or type(part) is ReasoningPart else None for part in parts
    ]
    return PartColumns(messages, ids, lengths, documents)


class SqlDialect(NamedTuple):
    """How a database writes the placeholder of its n-th value, and that one column of bytes contains a value."""

    placeholder: Callable[[int], str]
    contains: Callable[[str, str], str]


class SqlText(NamedTuple):
    sql: str
    values: list[SqlValue]


def build_session_query(query: SessionQuery, dialect: SqlDialect) -> SqlText:
    """Return what follows `SELECT … FROM session`: the conditions, the order and the limit of a query.

    Raise `InvalidInputError` if its cursor or its project is not one.
    """
    values: list[SqlValue] = []

    def bind(value: SqlValue) -> str:
        values.append(value)
        return dialect.placeholder(len(values))

    time = query.order  # the columns have the names of the orders
    conditions: list[str] = []
    for column, value in (
        ("project", None if query.project_id is None else check_file_name("project", query.project_id)),
        ("parent", None if query.parent_id is None else to_ascii(query.parent_id)),
        ("directory", None if query.directory is None else to_bytes(query.directory)),
        ("archived", query.archived),
        ("pinned", query.pinned),
    ):
        if value is not None:
            conditions.append(f"{column} = {bind(value)}")
    if query.id_prefix is not None:
        prefix = to_ascii(query.id_prefix)
        # No id contains a character above this one. A range, unlike LIKE, lets a database use its index.
        conditions.append(f"id >= {bind(prefix)} AND id < {bind(prefix + LAST_ASCII)}")
    if query.roots:
        # An empty parent is none, as in OpenCode.
        conditions.append("(parent IS NULL OR parent = '')")
    if query.start is not None:
        conditions.append(f"updated >= {bind(to_integer(query.start))}")
    if query.end is not None:
        conditions.append(f"updated < {bind(to_integer(query.end))}")
    if query.search:
        conditions.append(dialect.contains("title", bind(to_bytes(query.search.casefold()))))
    conditions += [
        dialect.contains("tags", bind(TAG_BOUNDARY + to_bytes(tag) + TAG_BOUNDARY)) for tag in query.tags
    ]
    if (cursor := find_cursor(query)) is not None:
        at = to_integer(cursor.time)
        # The first condition alone lets a database begin in its index at the cursor.
        conditions.append(
            f"{time} <= {bind(at)} AND ({time} < {bind(at)} OR id > {bind(to_ascii(cursor.id))})"
        )
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    limit = "" if query.limit is None else f" LIMIT {bind(to_integer(max(0, query.limit)))}"
    pinned = "pinned DESC, " if query.pinned_first else ""
    return SqlText(f"{where}ORDER BY {pinned}{time} DESC, id{limit}", values)
