"""Read the SQLite database of OpenCode 1.2 and later. Nothing is ever written to it."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from urllib.parse import quote

from weft.errors import DocumentError, StoreError
from weft.host.files import stamp_of
from weft.model.wire import parse

NAME = "opencode.db"
ATTEMPTS = 5
REQUIRED_TABLES = {"project", "session", "message", "part"}
Row = dict[str, Any]


class OpenCodeDatabase:
    """Turns rows into OpenCode's JSON documents.

    Sessions come parents first, everything else by time. Unknown columns are ignored.
    """

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._tables = {
            row["name"] for row in self._rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        if missing := sorted(REQUIRED_TABLES - self._tables):
            raise DocumentError(path, f"it has no table {missing[0]!r}, so it is not a database of OpenCode")

    def projects(self) -> Iterator[Row]:
        """Yield one row per project; `to_project` turns a row into a document."""
        yield from self._rows("SELECT * FROM project ORDER BY time_created, id")

    def sessions(self) -> Iterator[Row]:
        """Yield one row per session; `to_session` turns a row into a document."""
        yield from self._rows("SELECT * FROM session ORDER BY parent_id IS NOT NULL, time_created, id")

    def messages(self, session: str) -> list[tuple[str, bytes]]:
        """Return id and JSON of each message."""
        query = "SELECT id, CAST(data AS BLOB) AS data FROM message WHERE session_id = ? ORDER BY time_created, id"
        return [(row["id"], row["data"] or b"") for row in self._rows(query, session)]

    def parts(self, session: str) -> list[tuple[str, str, bytes]]:
        """Return id, message id and JSON of each part."""
        query = "SELECT id, message_id, CAST(data AS BLOB) AS data FROM part WHERE session_id = ? ORDER BY message_id, id"
        found = self._rows(query, session)
        return [(row["id"], _to_text(row["message_id"]), row["data"] or b"") for row in found]

    def todos(self, session: str) -> list[Row]:
        if "todo" not in self._tables:
            return []
        query = "SELECT content, status, priority FROM todo WHERE session_id = ? ORDER BY position"
        return list(self._rows(query, session))

    def diff_path(self, session: str) -> str:
        """Return the path of a session's diff, which the first versions with a database still kept as a file."""
        return os.path.join(os.path.dirname(self.path), "storage", "session_diff", f"{session}.json")

    def count(self, session: str) -> tuple[int, int, int]:
        """Return the numbers of messages, parts and todos, counted by the database itself."""
        tables = ("message", "part", "todo")
        found = [self._count(table, session) if table in self._tables else 0 for table in tables]
        return found[0], found[1], found[2]

    def _count(self, table: str, session: str) -> int:
        [row] = self._rows(f"SELECT count(*) AS n FROM {table} WHERE session_id = ?", session)
        return int(row["n"])

    def _rows(self, query: str, *values: str) -> Iterator[Row]:
        try:
            for row in self._connection.execute(query, values):
                # SQLite stores any value in any column, and an id is text wherever it is used.
                yield {**row, "id": _to_text(row["id"])} if "id" in row.keys() else dict(row)  # noqa: SIM118  a row is no dict
        except sqlite3.Error as error:
            raise DocumentError(self.path, f"the database cannot be read: {error}") from error


def list_session_ids(path: str) -> frozenset[str] | None:
    """Return the ids of all sessions in the database at a path, None if it cannot be read."""
    try:
        with open_opencode_database(path) as database:
            return frozenset(str(row["id"]) for row in database.sessions())
    except (DocumentError, StoreError, OSError):
        return None


@contextmanager
def open_opencode_database(path: str) -> Generator[OpenCodeDatabase]:
    """Open the database at a path, or the one in the directory at that path.

    If the database has a log, a temporary copy is opened, because reading the log could write to the original.
    """
    path = os.path.join(path, NAME) if os.path.isdir(path) else path
    if not os.path.isfile(path):
        raise DocumentError(path, "there is no such database")
    with tempfile.TemporaryDirectory(prefix="weft-import-") as scratch:
        readable = _copy(path, scratch) if _has_log(path) else path
        uri = f"file:{quote(os.path.abspath(readable))}?mode=ro" + (
            "" if readable != path else "&immutable=1"
        )
        try:
            connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        except sqlite3.Error as error:
            raise DocumentError(path, f"the database cannot be opened: {error}") from error
        with closing(connection):
            connection.row_factory = sqlite3.Row
            # A byte that is not UTF-8 costs one character, not the whole import.
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            yield OpenCodeDatabase(path, connection)


def to_session(row: Row) -> Row:
    """Turn a row into a session document. Raise `DocumentError` if a column that should hold JSON does not."""
    summary = {
        key: value
        for key in ("additions", "deletions", "files")
        if (value := row.get(f"summary_{key}")) is not None
    }
    tokens = {key: row.get(f"tokens_{key}") or 0 for key in ("input", "output", "reasoning")}
    cache = {key: row.get(f"tokens_cache_{key}") or 0 for key in ("read", "write")}
    names = ("created", "updated", "compacting", "archived")
    session: Row = {
        "id": row["id"],
        "slug": row.get("slug"),
        "projectID": row.get("project_id"),
        "workspaceID": row.get("workspace_id"),
        "directory": row.get("directory"),
        "path": row.get("path"),
        "parentID": row.get("parent_id"),
        "title": row.get("title"),
        "agent": row.get("agent"),
        "model": _parse(row, "model"),
        "version": row.get("version"),
        "summary": {**summary, "diffs": _parse(row, "summary_diffs")} if summary else None,
        "share": {"url": row["share_url"]} if row.get("share_url") else None,
        "metadata": _parse(row, "metadata"),
        "revert": _parse(row, "revert"),
        "permission": _parse(row, "permission"),
        "cost": row.get("cost"),
        "tokens": {**tokens, "cache": cache} if "tokens_input" in row else None,
        "time": {key: row[f"time_{key}"] for key in names if row.get(f"time_{key}") is not None},
    }
    return {key: _drop_nulls(value) for key, value in session.items() if value is not None}


def to_project(row: Row) -> Row:
    """Turn a row into the document of a project. Raise `DocumentError` if a column that should hold JSON does not."""
    icon = {
        "url": row.get("icon_url"),
        "override": row.get("icon_url_override"),
        "color": row.get("icon_color"),
    }
    project = {
        "id": row["id"],
        "worktree": row.get("worktree"),
        "vcs": row.get("vcs"),
        "name": row.get("name"),
        "icon": icon if any(icon.values()) else None,
        "commands": _parse(row, "commands"),
        "time": {
            "created": row.get("time_created"),
            "updated": row.get("time_updated") or 0,
            "initialized": row.get("time_initialized"),
        },
        "sandboxes": _parse(row, "sandboxes") or [],
    }
    return {key: _drop_nulls(value) for key, value in project.items() if value is not None}


def _drop_nulls(value: Any) -> Any:
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


def _parse(row: Row, column: str) -> Any:
    value, where = row.get(column), f"{row['id']}: {column}"
    match value:
        case None:
            return None
        case str():
            return parse(value.encode(), where=where)
        case bytes():
            return parse(value, where=where)
        case _:
            raise DocumentError(where, "not JSON")


def _to_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bytes():
            return value.decode("utf-8", "replace")
        case _:
            return str(value)


def _has_log(path: str) -> bool:
    return os.path.exists(f"{path}-wal") or os.path.exists(f"{path}-journal")


def _copy(path: str, scratch: str) -> str:
    """Copy the database and its log in a consistent state. Raise `StoreError` if they keep changing."""
    copy = os.path.join(scratch, NAME)
    for _ in range(ATTEMPTS):
        with suppress(FileNotFoundError):  # the log was moved into the database meanwhile
            before = _stamps(path)
            for suffix in ("", "-wal", "-journal"):
                # A log that an earlier attempt has copied would be applied to a later state of the database.
                with suppress(FileNotFoundError):
                    os.unlink(copy + suffix)
                if os.path.exists(path + suffix):
                    shutil.copyfile(path + suffix, copy + suffix)
            if _stamps(path) == before:
                return copy
    raise StoreError(f"{path} changes while it is read", hint="quit OpenCode, or try again when it is idle")


def _stamps(path: str) -> list[Any]:
    return [
        stamp_of(os.stat(path + suffix)) if os.path.exists(path + suffix) else None
        for suffix in ("", "-wal", "-journal")
    ]
