"""Write the tables of sessions as files: CSV, or Parquet with the package pyarrow."""

import csv
import os
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from importlib.util import find_spec
from itertools import islice
from typing import Any, Final, Literal

from weft.dataset.database import Dataset, make_views
from weft.dataset.tables import TABLES, Kind, Table
from weft.errors import MissingPackageError, StoreError
from weft.host.files import make_directory
from weft.model.ids import ProjectID, SessionID

FileKind = Literal["csv", "parquet"]
ROWS_PER_BATCH: Final = 10_000
# Digits of a decimal in Parquet, and how many of them come after the point.
DECIMAL_DIGITS: Final = (38, 18)
REQUIREMENT: Final = "weft[parquet]"


def export_tables(
    dataset: Dataset,
    directory: str,
    kind: FileKind,
    *,
    project: ProjectID | None,
    session: SessionID | None = None,
) -> dict[str, int]:
    """Write a file for each table into a directory, and return how many rows each has. A file appears when it is complete.

    Raise `MissingPackageError` if a package is not installed, and `StoreError` if a file cannot be written.
    """
    if kind == "parquet" and find_spec("pyarrow") is None:
        raise MissingPackageError("pyarrow", REQUIREMENT)
    write = _write_parquet if kind == "parquet" else _write_csv
    counts: dict[str, int] = {}
    with dataset.use() as connection:
        make_views(connection, project)
        for table in TABLES:
            rows = _select(connection, table, session)
            with _replace_file(directory, f"{table.name}.{kind}") as path:
                counts[table.name] = write(path, table, rows)
    return counts


def _select(connection: sqlite3.Connection, table: Table, session: SessionID | None) -> sqlite3.Cursor:
    names = ", ".join(column.name for column in table.columns)
    key = "id" if table.name == "sessions" else "session_id"
    where, values = ("", ()) if session is None else (f" WHERE {key} = ?", (session,))
    return connection.execute(f"SELECT {names} FROM {table.name}{where}", values)


@contextmanager
def _replace_file(directory: str, name: str) -> Generator[str]:
    """Yield the path of a new file that only its owner can read, and that takes its place when it is complete."""
    path = os.path.join(directory, name)
    temp = f"{path}.{os.getpid()}.part"
    try:
        make_directory(directory)
        os.close(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield temp
        os.replace(temp, path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            os.unlink(temp)


def _write_csv(path: str, table: Table, rows: sqlite3.Cursor) -> int:
    count = 0
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(column.name for column in table.columns)
        for row in rows:
            writer.writerow(row)
            count += 1
    return count


def _write_parquet(path: str, table: Table, rows: sqlite3.Cursor) -> int:
    import pyarrow as pa  # type: ignore[import-untyped]  # noqa: PLC0415  an optional package
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415  an optional package

    types: dict[Kind, Any] = {
        "text": pa.string(),
        "integer": pa.int64(),
        "time": pa.timestamp("ms", tz="UTC"),
        "decimal": pa.decimal128(*DECIMAL_DIGITS),
        "json": pa.string(),
        "boolean": pa.bool_(),
    }
    schema = pa.schema([pa.field(column.name, types[column.kind]) for column in table.columns])
    count = 0
    with pq.ParquetWriter(path, schema) as writer:
        for batch in _split(rows):
            columns = [
                pa.array([_CONVERT[column.kind](value) for value in values], schema.field(index).type)
                for index, (column, values) in enumerate(
                    zip(table.columns, zip(*batch, strict=True), strict=True)
                )
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            count += len(batch)
    return count


def _split(rows: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(islice(rows, ROWS_PER_BATCH)):
        yield batch


def _keep(value: Any) -> Any:
    return value


def _to_decimal(value: Any) -> Decimal | None:
    return None if value is None else Decimal(value).quantize(Decimal(1).scaleb(-DECIMAL_DIGITS[1]))


def _to_boolean(value: Any) -> bool | None:
    return None if value is None else bool(value)


_CONVERT: Final[dict[Kind, Callable[[Any], Any]]] = {
    "text": _keep,
    "integer": _keep,
    "time": _keep,
    "decimal": _to_decimal,
    "json": _keep,
    "boolean": _to_boolean,
}
