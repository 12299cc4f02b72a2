"""Import from OpenCode's SQLite database: every row is imported, a bad one is named, and nothing is written to it."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from given.session_exports import export, session_id, words
from weft.errors import DocumentError
from weft.importers.opencode_sqlite import OpenCodeSqlite
from weft.model.transfer import ExportCounts, SessionExport, count_export
from weft.model.wire import to_plain
from weft.store.opencode_database import open_opencode_database

TABLES = """
CREATE TABLE project (id text PRIMARY KEY, worktree text NOT NULL, vcs text, name text, time_created integer NOT NULL,
  time_updated integer NOT NULL, time_initialized integer, sandboxes text NOT NULL, commands text);
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL,
  directory text NOT NULL, title text NOT NULL, version text NOT NULL, share_url text, summary_additions integer,
  summary_deletions integer, summary_files integer, summary_diffs text, revert text, permission text,
  time_created integer NOT NULL, time_updated integer NOT NULL, time_compacting integer, time_archived integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL, data text NOT NULL);
CREATE TABLE todo (session_id text NOT NULL, content text NOT NULL, status text NOT NULL, priority text NOT NULL,
  position integer NOT NULL);
"""
RULES = [{"permission": "bash", "pattern": "*", "action": "deny"}]


def put(connection: sqlite3.Connection, table: str, **row: Any) -> None:
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def without(value: Any, *keys: str) -> str:
    return json.dumps({key: item for key, item in to_plain(value).items() if key not in keys}, default=float)


def put_session(connection: sqlite3.Connection, given: SessionExport, **more: Any) -> None:
    info = given.info
    times = {"time_created": info.time.created, "time_updated": info.time.updated}
    names = {"slug": info.slug, "title": info.title, "version": "1.2.0", "directory": info.directory}
    put(connection, "session", id=info.id, project_id=info.project_id, **names, **times, **more)
    for message in given.messages:
        data = without(message.info, "id", "sessionID")
        row = {"id": message.info.id, "session_id": info.id, "time_created": message.info.time.created}
        put(connection, "message", **row, data=data)
        for part in message.parts:
            row = {"id": part.id, "session_id": info.id, "message_id": message.info.id}
            put(connection, "part", **row, data=without(part, "id", "sessionID", "messageID"))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(TABLES)
        put(
            connection,
            "project",
            id="there",
            worktree="/there/project",
            vcs="git",
            time_created=1,
            time_updated=2,
            sandboxes="[]",
        )
        put_session(connection, export(2), parent_id=session_id(1))
        put_session(
            connection, export(1, turns=2), permission=json.dumps(RULES), share_url="https://share.test/x"
        )
        for position, content in enumerate(("first", "second")):
            row = {"content": content, "status": "pending", "priority": "low", "position": position}
            put(connection, "todo", session_id=session_id(1), **row)
    return path


def test_every_row_comes_across_parents_first(database: Path) -> None:
    with open_opencode_database(str(database)) as opened:
        origin = OpenCodeSqlite(opened)
        [project] = origin.list_projects()
        first, second = [found.read() for found in origin.list_sessions()]
    assert (project.id, project.worktree, project.vcs) == ("there", "/there/project", "git")
    assert first.export.messages == export(1, turns=2).messages
    assert [todo.content for todo in first.export.todos] == ["first", "second"]
    assert first.counted == count_export(first.export) == ExportCounts(messages=4, parts=6, todos=2)
    info = first.export.info
    assert (info.title, info.version, info.project_id) == ("A session", "1.2.0", "there")
    assert to_plain(info.permission) == RULES
    assert info.share is not None
    assert second.export.info.parent_id == session_id(1)
    assert (first.troubles, second.troubles) == ((), ())


def test_a_row_that_cannot_be_read_costs_itself_alone(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        message, part = export(1, turns=2).messages[2], export(1, turns=2).messages[0].parts[0]
        connection.execute("UPDATE message SET data = '{' WHERE id = ?", [message.info.id])
        connection.execute("UPDATE part SET data = x'ff00' WHERE id = ?", [part.id])
    with open_opencode_database(str(database)) as opened:
        first, second = [found.read() for found in OpenCodeSqlite(opened).list_sessions()]
    assert words(first.export.messages) == ["answer 0", "answer 1"]
    orphan = message.parts[0].id
    assert {trouble.where for trouble in first.troubles} == {message.info.id, part.id, orphan}
    assert first.counted.messages == count_export(first.export).messages + 1
    assert second.troubles == ()


def test_a_session_whose_row_is_broken_is_refused_and_the_other_is_not(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE session SET permission = 'no json' WHERE id = ?", [session_id(1)])
    with open_opencode_database(str(database)) as opened:
        first, second = OpenCodeSqlite(opened).list_sessions()
        with pytest.raises(DocumentError, match="not JSON"):
            first.read()
        assert second.read().troubles == ()


def test_reading_writes_nothing_also_beside_a_log(database: Path) -> None:
    """A database that is open elsewhere has a write-ahead log, whose content counts."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        with connection:
            put_session(connection, export(3))
        before = {path.name: path.read_bytes() for path in database.parent.iterdir()}
        assert f"{database.name}-wal" in before
        with open_opencode_database(str(database.parent)) as opened:
            assert len([found.read() for found in OpenCodeSqlite(opened).list_sessions()]) == 3
        assert {path.name: path.read_bytes() for path in database.parent.iterdir()} == before


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE session (id text)")
    with pytest.raises(DocumentError, match="no table 'message'"), open_opencode_database(str(path)):
        pass


WEFT = str(Path(sys.executable).with_name("weft"))


def weft(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [WEFT, *arguments, "--store", str(tmp_path / "storage")]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)


def test_a_home_of_a_newer_opencode_is_said_to_be_one_and_nothing_of_it_is_touched(database: Path) -> None:
    home = database.parent
    for number in (1, 9):  # the first is a session of the database, the other one of nobody
        path = home / "storage/session_diff" / f"{session_id(number)}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[]")
        os.utime(path, (1, 1))
    (home / "storage/migration").write_text("2")
    before = database.read_bytes()
    live = str(home / "storage/session_diff" / f"{session_id(1)}.json")
    said = (
        f"OpenCode 1.2 or later stores its sessions in {database}, which weft does not use"
        f" (weft import --from opencode-sqlite {database} copies them and leaves the database as it is)"
    )

    listed = weft(home, "session", "list", "--all")
    assert (listed.returncode, listed.stdout) == (0, "")
    assert f"note: {said}\n" in listed.stderr
    found = json.loads(weft(home, "doctor", "--format", "json").stdout)["findings"]
    [newer] = [each for each in found if "OpenCode 1.2" in each["what"]]
    assert newer["repair"] == f"weft import --from opencode-sqlite {database}"
    assert live not in json.dumps(found)
    swept = json.loads(weft(home, "storage", "gc", "--dry-run", "--age", "0d", "--format", "json").stdout)
    assert live not in [each["path"] for each in swept["found"]]
    assert database.read_bytes() == before
    assert sorted(path.name for path in home.iterdir()) == ["opencode.db", "storage"]

    assert weft(home, "import", "--from", "opencode-sqlite", str(database)).returncode == 0
    assert weft(home, "session", "list", "--all").stderr == ""
