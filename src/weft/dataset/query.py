"""Run SQL on sessions: it can only read, within a time limit, and mistakes are explained."""

import re
import sqlite3
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import islice
from time import monotonic
from typing import Any, Final

from weft.dataset.database import Dataset, make_views
from weft.dataset.tables import TABLES, list_columns
from weft.errors import DeadlineError, InvalidInputError, find_similar
from weft.model.data import QueryInput, QueryResult
from weft.model.ids import ProjectID

FIELD: Final = "sql"
MAX_SQL_CHARS: Final = 100_000
MAX_VALUE_BYTES: Final = 16 << 20
MAX_RESULT_BYTES: Final = 64 << 20
STEPS_PER_CHECK: Final = 5_000
READING: Final = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
# A query may name tables of its own by WITH. These are ours, and not documented.
HIDDEN_TABLES: Final = {"session_marks", "log_marks", "blame_results"}
HIDDEN_PREFIXES: Final = ("sqlite_", "pragma_", "dbstat")
REFUSED_FUNCTIONS: Final = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}
TABLE_NAMES: Final = tuple(table.name for table in TABLES)
COLUMNS_HINT: Final = (
    f"select * from TABLE limit 0 shows the columns of a table; tables: {', '.join(TABLE_NAMES)}"
)


def run_query(dataset: Dataset, query: QueryInput, project: ProjectID | None) -> QueryResult:
    """Run a query over the sessions of one project, or of all.

    Raise `InvalidInputError` if it is not one statement that only reads, and `DeadlineError` if it takes too long.
    """
    if not query.sql.strip():
        raise InvalidInputError(FIELD, "it is empty", hint="try: select * from sessions")
    if len(query.sql) > MAX_SQL_CHARS:
        raise InvalidInputError(FIELD, f"it is longer than {MAX_SQL_CHARS:,} characters")
    if query.limit < 1 or query.seconds <= 0:
        raise InvalidInputError("limit", "the number of rows and of seconds must be above 0")
    with dataset.use() as connection:
        make_views(connection, project)
        with _restrict(connection, query.seconds):
            try:
                cursor = connection.execute(query.sql)
                names = tuple(column[0] for column in cursor.description or ())
                rows = _fetch(cursor, min(query.limit + 1, sys.maxsize))
            except UnicodeEncodeError as error:
                raise InvalidInputError(FIELD, "it contains half of a character") from error
            except (sqlite3.Error, sqlite3.Warning) as error:
                raise _explain(error, query) from error
    if not names:
        raise InvalidInputError(FIELD, "it returns nothing", hint="begin with SELECT or WITH")
    return QueryResult(columns=names, rows=tuple(rows[: query.limit]), more=len(rows) > query.limit)


@contextmanager
def _restrict(connection: sqlite3.Connection, seconds: float) -> Generator[None]:
    """Allow only reading, and only so long."""
    deadline = monotonic() + seconds
    limits = {sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE_BYTES, sqlite3.SQLITE_LIMIT_ATTACHED: 0}
    before = {limit: connection.setlimit(limit, value) for limit, value in limits.items()}
    connection.set_authorizer(_authorize)
    connection.set_progress_handler(lambda: monotonic() > deadline, STEPS_PER_CHECK)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)
        for limit, value in before.items():
            connection.setlimit(limit, value)


def _authorize(
    action: int, first: str | None, second: str | None, database: str | None, source: str | None
) -> int:
    del database, source
    if action == sqlite3.SQLITE_READ:
        name = (first or "").lower()
        is_hidden = name in HIDDEN_TABLES or name.startswith(HIDDEN_PREFIXES)
        return sqlite3.SQLITE_DENY if is_hidden else sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if second in REFUSED_FUNCTIONS else sqlite3.SQLITE_OK
    return sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY


def _fetch(cursor: sqlite3.Cursor, count: int) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    size = 0
    for row in islice(cursor, min(count, sys.maxsize)):
        values = tuple(value.hex() if isinstance(value, bytes) else value for value in row)
        size += sum(len(value) for value in values if isinstance(value, str))
        if size > MAX_RESULT_BYTES:
            raise InvalidInputError(
                FIELD, f"the result is larger than {MAX_RESULT_BYTES >> 20} MB", hint="select fewer columns"
            )
        rows.append(values)
    return rows


def _explain(error: Exception, query: QueryInput) -> Exception:
    """Return the error in words that help: what is wrong, and the nearest name that exists."""
    message = str(error)
    if "interrupted" in message:
        return DeadlineError("query", query.seconds, hint="select less, or allow more seconds")
    if any(words in message for words in ("not authorized", "prohibited", "cannot modify")):
        return InvalidInputError(
            FIELD, "only reading the documented tables is allowed", hint=f"use SELECT; {COLUMNS_HINT}"
        )
    if "one statement at a time" in message:
        return InvalidInputError(FIELD, "it is more than one statement", hint="run them one by one")
    if missing := re.fullmatch(r"no such column: (.+)", message):
        return InvalidInputError(FIELD, message, hint=_suggest_column(missing[1], query.sql))
    if missing := re.fullmatch(r"no such table: (.+)", message):
        near = find_similar(missing[1].lower(), TABLE_NAMES, n=1, cutoff=0.5)
        return InvalidInputError(FIELD, message, hint=f"did you mean {near[0]}?" if near else COLUMNS_HINT)
    return InvalidInputError(FIELD, message, hint=COLUMNS_HINT)


def _suggest_column(name: str, sql: str) -> str:
    """Return a hint that names the columns that are nearest to a name, in the tables of the query if it names any."""
    bare = name.rpartition(".")[2].lower()
    words = set(re.findall(r"\w+", sql.lower()))
    named = set(TABLE_NAMES) & words
    by_column: dict[str, list[str]] = {}
    for table, column in list_columns():
        if table in named or not named:
            by_column.setdefault(column, []).append(f"{table}.{column}")
    if bare in by_column:
        return f"there is {_join(by_column[bare])}"
    near = find_similar(bare, list(by_column), n=2)
    return (
        f"did you mean {_join([each for name in near for each in by_column[name]])}?"
        if near
        else COLUMNS_HINT
    )


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
