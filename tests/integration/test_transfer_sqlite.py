"""Import from OpenCode's SQLite database: every row is imported, a bad one is named, and nothing is written to it."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from given.damage import (
    IN_ONE_DIRECTORY,
    ODD_VALUES,
    allow_refusal,
    check_import,
    damaged_bytes,
    damaged_values,
    to_json,
)
from given.session_exports import export, list_texts, session_id
from weft.errors import DocumentError, InvalidInputError
from weft.importers.opencode_sqlite import OpenCodeSqlite
from weft.importers.transcript import ImportTrouble
from weft.local.bulk_import import ImportRequest, open_importer
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


def insert(connection: sqlite3.Connection, table: str, **row: Any) -> None:
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def to_json_without(value: Any, *keys: str) -> str:
    return json.dumps({key: item for key, item in to_plain(value).items() if key not in keys}, default=float)


def put_session(connection: sqlite3.Connection, given: SessionExport, **more: Any) -> None:
    info = given.info
    times = {"time_created": info.time.created, "time_updated": info.time.updated}
    names = {"slug": info.slug, "title": info.title, "version": "1.2.0", "directory": info.directory}
    insert(connection, "session", id=info.id, project_id=info.project_id, **names, **times, **more)
    for message in given.messages:
        data = to_json_without(message.info, "id", "sessionID")
        row = {"id": message.info.id, "session_id": info.id, "time_created": message.info.time.created}
        insert(connection, "message", **row, data=data)
        for part in message.parts:
            row = {"id": part.id, "session_id": info.id, "message_id": message.info.id}
            insert(connection, "part", **row, data=to_json_without(part, "id", "sessionID", "messageID"))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(TABLES)
        insert(
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
            insert(connection, "todo", session_id=session_id(1), **row)
    return path


def test_every_row_is_imported_parents_first(database: Path) -> None:
    with open_opencode_database(str(database)) as opened:
        origin = OpenCodeSqlite(opened)
        [project] = origin.list_projects([])
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


def test_an_unreadable_row_is_skipped_alone(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        message, part = export(1, turns=2).messages[2], export(1, turns=2).messages[0].parts[0]
        connection.execute("UPDATE message SET data = '{' WHERE id = ?", [message.info.id])
        connection.execute("UPDATE part SET data = x'ff00' WHERE id = ?", [part.id])
    with open_opencode_database(str(database)) as opened:
        first, second = [found.read() for found in OpenCodeSqlite(opened).list_sessions()]
    assert list_texts(first.export.messages) == ["answer 0", "answer 1"]
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


def test_reading_writes_nothing_even_beside_a_write_ahead_log(database: Path) -> None:
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


def test_a_log_that_goes_away_while_it_is_copied_is_not_applied_to_the_newer_database(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program that ends moves its log into the database, and removes it."""
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("UPDATE session SET title = 'old'")
    connection.commit()
    original = shutil.copyfile

    def copy_while_the_writer_ends(source: str, target: str) -> None:
        original(source, target)
        if source.endswith("-wal"):
            with connection:
                connection.execute("UPDATE session SET title = 'new'")
            connection.close()

    monkeypatch.setattr(shutil, "copyfile", copy_while_the_writer_ends)
    with open_opencode_database(str(database)) as opened:
        assert {row["title"] for row in opened.sessions()} == {"new"}


def test_a_log_that_vanishes_before_it_is_copied_is_not_needed(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("UPDATE session SET title = 'new'")
    connection.commit()
    original = shutil.copyfile

    def copy_after_the_writer_ended(source: str, target: str) -> None:
        if source.endswith("-wal"):
            connection.close()
        original(source, target)

    monkeypatch.setattr(shutil, "copyfile", copy_after_the_writer_ended)
    with open_opencode_database(str(database)) as opened:
        assert {row["title"] for row in opened.sessions()} == {"new"}


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


def test_the_data_directory_of_a_newer_opencode_is_reported_and_not_changed(database: Path) -> None:
    home = database.parent
    for number in (1, 9):  # the first is a session of the database, the other one does not exist
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


TABLE_NAMES = ("project", "session", "message", "part", "todo")


@st.composite
def odd_columns(draw: st.DrawFn, stored: Any) -> Any:
    """Return another value for a column: damaged JSON, or something of another type, which SQLite stores all the same."""
    if isinstance(stored, str) and stored.startswith(("{", "[")) and draw(st.booleans()):
        raw = to_json(draw(damaged_values(json.loads(stored))))
        return draw(st.sampled_from([raw.decode(), raw]))
    return draw(
        st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=8).map(str.encode)
        | ODD_VALUES.map(to_json).map(bytes.decode) | st.sampled_from(["5", '"x"', "null", "[]", "../x", ""])
    )  # fmt: skip


def put_odd_values(path: Path, data: st.DataObject) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.row_factory = sqlite3.Row
        # Without NOT NULL a column also accepts NULL, and somebody else's database may lack the constraint.
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '')")
        connection.execute("PRAGMA writable_schema = RESET")
        for _ in range(data.draw(st.integers(0, 4))):
            table = data.draw(st.sampled_from(TABLE_NAMES))
            rows = connection.execute(f"SELECT rowid AS n, * FROM {table} ORDER BY rowid").fetchall()
            row = data.draw(st.sampled_from(rows))
            column = data.draw(st.sampled_from(row.keys()[1:]))
            odd = data.draw(odd_columns(row[column]))
            connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", [odd, row["n"]])


@given(data=st.data())
@IN_ONE_DIRECTORY
def test_whatever_a_database_contains_is_imported_or_refused(database: Path, data: st.DataObject) -> None:
    path = database.with_name("odd.db")
    path.write_bytes(database.read_bytes())
    put_odd_values(path, data)
    if data.draw(st.booleans()):
        path.write_bytes(data.draw(damaged_bytes(path.read_bytes())))
    with allow_refusal(DocumentError, naming=str(path)), open_opencode_database(str(path)) as opened:
        origin = OpenCodeSqlite(opened)
        origin.list_projects([])
        for found in origin.list_sessions():
            check_import(found)


def change(database: Path, statement: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(statement)


def test_a_project_that_cannot_be_read_is_reported_and_stops_no_session(database: Path) -> None:
    change(database, "UPDATE project SET sandboxes = x'ff'")
    with open_opencode_database(str(database)) as opened:
        origin = OpenCodeSqlite(opened)
        troubles: list[ImportTrouble] = []
        assert origin.list_projects(troubles) == []
        assert [trouble.where for trouble in troubles] == ["project there"]
        assert len([found.read() for found in origin.list_sessions()]) == 2


def ignore_progress(done: int, of: int) -> None:
    """Ignore progress."""


@pytest.mark.parametrize("dry_run", [False, True])
async def test_an_unreadable_project_is_reported_and_no_session_counts_as_refused(
    database: Path, tmp_path: Path, *, dry_run: bool
) -> None:
    change(database, "UPDATE project SET sandboxes = x'ff'")
    wish = ImportRequest(path=str(database), kind="opencode-sqlite", dry_run=dry_run)
    async with open_importer(str(tmp_path), os.environ, store="memory:", dry_run=dry_run) as mover:
        report = await mover.run(wish, ignore_progress)
    assert [trouble.where for trouble in report.troubles] == ["project there"]
    assert (len(report.received), report.refused) == (2, 0)


@pytest.mark.parametrize(
    "statement",
    ["UPDATE todo SET content = x'00' WHERE position = 0", "UPDATE part SET data = x'' WHERE id = '{part}'"],
)
def test_a_value_of_the_wrong_type_loses_only_its_row(database: Path, statement: str) -> None:
    first_part = export(1, turns=2).messages[0].parts[0].id
    change(database, statement.format(part=first_part))
    with open_opencode_database(str(database)) as opened:
        first, second = [found.read() for found in OpenCodeSqlite(opened).list_sessions()]
    assert (len(first.troubles), second.troubles) == (1, ())


@pytest.mark.parametrize("odd", ["5", "x'5b5d'", "'[[[['", "1.5"])
def test_a_session_with_an_odd_column_is_refused_by_name(database: Path, odd: str) -> None:
    change(database, f"UPDATE session SET permission = {odd} WHERE id = '{session_id(1)}'")
    with open_opencode_database(str(database)) as opened:
        first, second = OpenCodeSqlite(opened).list_sessions()
        with allow_refusal(DocumentError, naming=session_id(1)):
            first.read()
        assert second.read().troubles == ()


def test_an_id_that_is_not_text_is_refused(database: Path) -> None:
    change(database, f"UPDATE session SET id = x'ff00' WHERE id = '{session_id(1)}'")
    with open_opencode_database(str(database)) as opened:
        reads = [found.read for found in OpenCodeSqlite(opened).list_sessions()]
        with pytest.raises(InvalidInputError):
            reads[0]()
