"""Sessions as data: the result of a query, and the limits of one."""

from typing import Any, Final

from weft.model.wire import Wire

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
