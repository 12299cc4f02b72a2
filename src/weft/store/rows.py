"""Sessions, messages and parts as rows of a database, and queries for sessions as SQL (pure).

Text that people choose is stored as bytes, because it may contain characters that databases refuse: NUL and half of a pair.
A time beyond 64 bits is stored as the nearest integer that fits. Documents are exact.
"""

from collections.abc import Callable
from typing import NamedTuple

from weft.model.ids import check_file_name, unwrap
from weft.model.message import AnyMessage
from weft.model.part import AnyPart, ReasoningPart, TextPart
from weft.model.session import SessionInfo, get_weft_data, is_archived
from weft.model.session_query import SessionQuery, find_cursor

TAG_END = b"\n"
MAX_INTEGER = 2**63 - 1
LAST_ASCII = "\x7f"
# The number of an id that was made before this time (ms, in the year 10,889) fits in any case.
DISTANT_TIME = 1 << 48

SqlValue = str | bytes | int | bool | None


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def to_ascii(text: str) -> str:
    """Return a text that should be an id with everything escaped that an id does not contain."""
    return text.encode("ascii", "backslashreplace").decode().replace("\0", "\\0")


def to_integer(number: int) -> int:
    """Return the nearest integer that a database can store."""
    return number if -MAX_INTEGER <= number <= MAX_INTEGER else max(-MAX_INTEGER, min(number, MAX_INTEGER))


class SessionRow(NamedTuple):
    """A session: what a query asks for, and its document. `title` is case-folded, and each of the `tags` ends with a newline."""

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
        tags=b"".join(TAG_END + to_bytes(tag) + TAG_END for tag in data.tags),
        archived=is_archived(session),
        pinned=data.pinned,
        created=to_integer(session.time.created),
        updated=to_integer(session.time.updated),
        document=document,
    )


class MessageRow(NamedTuple):
    """A message. Messages are sorted by `created`, then `number`, then `id` (see `message_sort_key`)."""

    session: str
    id: str
    created: int
    number: int
    document: bytes


class PartRow(NamedTuple):
    """A part. `length` is the number of characters of a text that can grow, None for other parts."""

    session: str
    message: str
    id: str
    length: int | None
    document: bytes


class RowMaker:
    """Makes rows of messages and parts. Each id of a session or a message is checked once, because a history repeats them.

    A long session has thousands of rows. So they are made without the constructors of their classes, which take as long as
    encoding the documents.
    """

    def __init__(self) -> None:
        self._checked: set[str] = set()

    def make_message_row(self, message: AnyMessage, document: bytes) -> MessageRow:
        """Return the row of a message and its encoded document. Raise `InvalidIdError` for an id that no store could use."""
        checked, session, id, created = self._checked, message.session_id, message.id, message.time.created
        if session not in checked:
            checked.add(check_file_name("session", session))
        if id not in checked:
            checked.add(check_file_name("message", id))
        number = unwrap(id, created)
        if not 0 <= created < DISTANT_TIME:
            created, number = to_integer(created), to_integer(number)
        return tuple.__new__(MessageRow, (session, id, created, number, document))

    def make_part_row(self, part: AnyPart, document: bytes) -> PartRow:
        """Return the row of a part and its encoded document. Raise `InvalidIdError` for an id that no store could use."""
        checked, session, message = self._checked, part.session_id, part.message_id
        if session not in checked:
            checked.add(check_file_name("session", session))
        if message not in checked:
            checked.add(check_file_name("message", message))
        # `isinstance` takes longer than all of the rest if the answer is no.
        length = len(part.text) if type(part) is TextPart or type(part) is ReasoningPart else None
        return tuple.__new__(PartRow, (session, message, check_file_name("part", part.id), length, document))


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
    conditions += [dialect.contains("tags", bind(TAG_END + to_bytes(tag) + TAG_END)) for tag in query.tags]
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
