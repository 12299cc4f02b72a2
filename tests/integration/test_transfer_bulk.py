"""Imports of whole stores: a bad file costs one session, and repeating an interrupted import completes it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from given.opencode_tree import write_session, write_tree
from given.session_exports import export, session_id
from weft.local.bulk_import import ImportRequest, open_importer
from weft.model.transfer import ExportCounts

MANY = 1_000
SHELVES = ("session", "message", "part", "todo", "session_diff")


def ignore_progress(done: int, of: int) -> None:
    """Ignore progress."""


def command(storage: Path, source: Path, *more: str, kind: str = "opencode") -> list[str]:
    return [
        *(sys.executable, "-m", "weft", "import", "--from", kind, str(source)),
        *("--store", str(storage), "--format", "json", *more),
    ]


def run(storage: Path, source: Path, *more: str, cwd: Path, kind: str = "opencode") -> tuple[int, Any]:
    done = subprocess.run(
        command(storage, source, *more, kind=kind), cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def files(storage: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(storage)): path.read_bytes()
        for shelf in SHELVES
        for path in sorted((storage / shelf).rglob("*.json"))
    }


async def test_one_corrupt_file_among_a_thousand_is_named_and_the_others_are_imported(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", MANY)
    corrupt = source / "session" / "there" / f"{session_id(500)}.json"
    corrupt.write_text('{"id": "ses_')
    before = files(source)
    wish = ImportRequest(path=str(source.parent), kind="opencode")
    async with open_importer(str(tmp_path), os.environ, store="memory:") as mover:
        report = await mover.run(wish, ignore_progress)
        assert len(report.received) == MANY - 1
        assert (report.refused, [trouble.where for trouble in report.troubles]) == (1, [str(corrupt)])
        assert report.before == report.after == ExportCounts(messages=1998, parts=2997)
        assert files(source) == before

        write_session(source, export(500))
        report = await mover.run(wish, ignore_progress)
        assert (len(report.received), report.troubles) == (MANY, ())
        assert [each.id for each in report.received if each.verdict != "same"] == [session_id(500)]


@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["import", "dry run"])
def test_an_unreadable_project_is_reported_and_no_session_counts_as_refused(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    source = write_tree(tmp_path / "source", 2)
    corrupt = source / "project" / "there.json"
    corrupt.write_text("{")
    code, report = run(tmp_path / "storage", source, *options, cwd=tmp_path)
    assert (code, len(report["sessions"]), report["refused"]) == (1, 2, 0)
    assert [trouble["where"] for trouble in report["troubles"]] == [str(corrupt)]


def test_an_unreadable_message_is_skipped_alone(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", 3)
    second = export(2).messages[1].info
    corrupt = source / "message" / session_id(2) / f"{second.id}.json"
    corrupt.write_text("{")
    code, report = run(tmp_path / "storage", source, cwd=tmp_path)
    assert code == 1
    assert [(each["before"]["messages"], each["after"]["messages"]) for each in report["sessions"]] == [
        (2, 2),
        (2, 1),
        (2, 2),
    ]
    assert [trouble["where"] for trouble in report["troubles"]] == [str(corrupt)]
    write_session(source, export(2))
    code, report = run(tmp_path / "storage", source, cwd=tmp_path)
    assert [each["verdict"] for each in report["sessions"]] == ["same", "updated", "same"]
    assert files(tmp_path / "storage") == files(source)


@pytest.mark.slow
def test_an_import_that_was_killed_and_repeated_imports_once(tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", 60)
    storage = tmp_path / "storage"
    for wanted in (10, 25, 45):
        importing = subprocess.Popen(
            command(storage, source), cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True
        )
        shelf = storage / "session" / "there"
        while importing.poll() is None and (not shelf.exists() or len(os.listdir(shelf)) < wanted):
            pass
        importing.send_signal(signal.SIGKILL)
        importing.wait()
    code, report = run(storage, source, cwd=tmp_path)
    assert (code, len(report["sessions"])) == (0, 60)
    # What those that were killed had completed is the same, and only the rest is new.
    assert {each["verdict"] for each in report["sessions"]} | {"new"} == {"new", "same"}
    assert files(storage) == files(source)


def test_a_source_that_is_neither_tree_nor_database_is_refused_by_name(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    (nothing / "opencode.db").write_bytes(b"no database at all, but long enough to look at" * 100)
    for kind, told in (("opencode", "not a tree of OpenCode"), ("opencode-sqlite", "cannot be read")):
        done = subprocess.run(
            command(tmp_path / "storage", nothing, kind=kind),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert told in done.stderr
