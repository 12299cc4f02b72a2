"""Sessions as data: the result of a query and its limits, and what fills the context of a model."""

from typing import Any, Final

from weft.model.part import ModelRef
from weft.model.wire import Wire, always

MAX_ROWS: Final = 1000
MAX_SECONDS: Final = 30.0


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

    `tokens` is about their sum, `limit` what fits. With `placeholder`, the next prompt is not known yet. With `overflows`, the
    conversation would be summarised first. Tools of MCP servers that are not connected are not included.
    """

    agent: str
    model: ModelRef
    tokens: int
    limit: int | None = None
    parts: tuple[ContextPart, ...]
    placeholder: bool = always(False)
    overflows: bool = always(False)
