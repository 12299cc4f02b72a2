"""Sessions as data: the result of a query, what fills the context of a model, and who wrote the lines of a file."""

from decimal import Decimal
from typing import Any, Final, Literal

from weft.model.ids import MessageID, SessionID
from weft.model.part import ModelRef
from weft.model.wire import Wire, always

MAX_ROWS: Final = 1000
MAX_SECONDS: Final = 30.0

AuthorKind = Literal["session", "person", "unknown"]


class QueryResult(Wire, frozen=True, kw_only=True):
    """The rows of a query, each with a value for every column. With `more`, there were more rows than were asked for.

    A value is a text, a number or null. A cost is a text, so that it is exact.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool = False


class QueryInput(Wire, frozen=True, kw_only=True):
    """A query in SQL: how many rows it may return and how long it may take. `everywhere` is for the sessions of every project."""

    sql: str
    limit: int = MAX_ROWS
    seconds: float = MAX_SECONDS
    everywhere: bool = False


class ContextPart(Wire, frozen=True, kw_only=True):
    """Pieces of a request that belong together, and about how many tokens they have.

    `section` is system, tools, or the role of a message. `uncounted` of its `count` pieces are files, whose tokens are
    unknown.
    """

    section: str
    name: str
    tokens: int
    count: int = 1
    uncounted: int = always(0)


class ContextReport(Wire, frozen=True, kw_only=True):
    """The parts of the request that the next step of a session would send, in their order.

    `tokens` is about their sum, `limit` what fits. With `placeholder`, a placeholder stands for the next prompt, which is
    not known yet. With `overflows`, the conversation would be summarised first. Tools of MCP servers that are not connected
    are not included.
    """

    agent: str
    model: ModelRef
    tokens: int
    limit: int | None = None
    parts: tuple[ContextPart, ...]
    placeholder: bool = always(False)
    overflows: bool = always(False)


class Author(Wire, frozen=True, kw_only=True):
    """Who wrote a line. Only a `session` has the other fields: the step, its call, its prompt and its model.

    `step` is the number of the step in its session, from 1. `cost` is that of the whole step. `path` is the name that the file
    had then.
    """

    kind: AuthorKind
    session_id: SessionID | None = None
    title: str = ""
    step_id: MessageID | None = None
    step: int = 0
    call_id: str = ""
    tool: str = ""
    prompt_id: MessageID | None = None
    prompt: str = ""
    agent: str = ""
    provider_id: str = ""
    model_id: str = ""
    time: int | None = None
    cost: Decimal | None = None
    priced: bool = True
    path: str = ""


class BlameLine(Wire, frozen=True, kw_only=True):
    """A line of a file: its number from 1, its text, and its author as an index into the list of authors."""

    number: int
    text: str
    author: int


class FileBlame(Wire, frozen=True, kw_only=True):
    """The lines of a file with their authors. `note` says what is not known, and why.

    `path` is relative to the top of the checkout. `revision` is the commit that is checked out, if there is one.
    """

    path: str
    lines: tuple[BlameLine, ...]
    authors: tuple[Author, ...]
    note: str = always("")
    revision: str | None = None


class FileStep(Wire, frozen=True, kw_only=True):
    """A change of a file by a step: its author, and how many lines it added and removed; None if that is not recorded."""

    author: Author
    additions: int | None = None
    deletions: int | None = None
    undone: bool = False


class FileLog(Wire, frozen=True, kw_only=True):
    """The changes of a file by sessions, newest first. `note` says what is not known, and why."""

    path: str
    steps: tuple[FileStep, ...]
    note: str = always("")
