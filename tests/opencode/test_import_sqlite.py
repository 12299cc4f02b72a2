"""Import of the SQLite file that the real OpenCode 1.18.33 writes: every session, message and part; nothing else is touched."""

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opencode.engine import open_sandbox_store
from opencode.fake_model import Answer, Called, FakeModel, called, said
from opencode.sandbox import Sandbox, make_sandbox
from weft.model.ids import SessionID

pytestmark = pytest.mark.opencode

VERSION = "1.18.33"
# Looked up while this file is loaded: later every test has a home of its own.
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft-tools" / f"opencode-{VERSION}"
)
TODO = {"content": "Say goodbye", "status": "completed", "priority": "high"}


@pytest.fixture(scope="module")
def newer_program() -> Path:
    """The binary itself, without the script that selects one for this machine."""
    if not (CACHE / "node_modules").exists():
        install = ["npm", "install", "--prefix", str(CACHE), "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run([*install, f"opencode-ai@{VERSION}"], check=True)
    [program, *_] = sorted(
        (CACHE / "node_modules").glob("opencode-*/bin/opencode"), key=lambda it: len(str(it))
    )
    return program


@pytest.fixture(scope="module")
def newer(
    newer_program: Path, served: tuple[FakeModel, str], tmp_path_factory: pytest.TempPathFactory
) -> Sandbox:
    """Two sessions and a child, written by OpenCode 1.18.33."""
    sandbox = make_sandbox(tmp_path_factory.mktemp("newer"), newer_program, served[1])
    model, hello = served[0], str(sandbox.project / "hello.txt")
    read = Called("read", {"filePath": hello})
    model.plays(
        Answer(thought="Let me see.", words=["I shall", " look."], calls=(read,)),
        called("edit", filePath=hello, oldString="hello", newString="goodbye – «ä» \U0001f9f6"),
        called("bash", command="echo said; exit 3", description="Says something and fails"),
        called("todowrite", todos=[TODO]),
        called("task", description="Look around", prompt="Look around.", subagent_type="general"),
        said("I looked around."),
        said("It says goodbye now."),
    )
    sandbox.opencode("run", "--format", "json", "Let the file say goodbye.")
    model.plays(said("Second."))
    sandbox.opencode("run", "--format", "json", "A second one.")
    return sandbox


def held(database: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(database)) as connection:
        return {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("session", "message", "part", "todo")
        }


def files(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def without_empty_texts(value: Any) -> Any:
    """Drop empty texts: our diffs always have before and after, theirs have a patch instead."""
    match value:
        case {"patch": _, "before": "", "after": ""}:
            return {key: item for key, item in value.items() if key not in ("before", "after")}
        case dict():
            return {key: without_empty_texts(item) for key, item in value.items()}
        case list():
            return [without_empty_texts(item) for item in value]
        case _:
            return value


async def test_everything_in_the_database_comes_across(
    newer: Sandbox, sandbox: Sandbox, tmp_path: Path
) -> None:
    data = newer.root / "data" / "opencode"
    before = files(data)
    imported = sandbox.weft("import", "--from", "opencode-sqlite", str(data), "--format", "json")
    assert files(data) == before

    report = json.loads(imported)
    counts = held(data / "opencode.db")
    async with open_sandbox_store(sandbox) as store:
        sessions = [each for each in await store.list_sessions() if each.directory == str(newer.project)]
        messages = [message for each in sessions for message in await store.list_messages(each.id)]
        todos = [todo for each in sessions for todo in await store.list_todos(each.id)]
        diffs = [diff for each in sessions for diff in await store.list_diff(each.id)]
        assert await store.damage() == []
    assert counts["session"] == 3
    assert {
        "session": len(sessions),
        "message": len(messages),
        "part": sum(len(message.parts) for message in messages),
        "todo": len(todos),
    } == counts
    assert report["before"] == report["after"]
    assert report["troubles"] == []
    assert {each["verdict"] for each in report["sessions"]} == {"new"}
    assert [session.parent_id for session in sessions if session.parent_id] != []
    assert diffs == []  # this version keeps them with the prompts alone


def test_an_import_is_printed_as_a_table_with_equal_counts(newer: Sandbox, sandbox: Sandbox) -> None:
    data = str(newer.root / "data" / "opencode" / "opencode.db")
    result = sandbox.weft("import", "--from", "opencode-sqlite", data, "--dry-run")
    counts = held(Path(data))
    rows = {line.split()[0]: line.split()[1:] for line in result.splitlines() if len(line.split()) == 3}
    assert rows["sessions"] == [str(counts["session"])] * 2
    assert rows["messages"] == [str(counts["message"])] * 2
    assert rows["parts"] == [str(counts["part"])] * 2


def test_what_came_across_says_what_opencode_says(newer: Sandbox, sandbox: Sandbox) -> None:
    sandbox.weft("import", "--from", "opencode-sqlite", str(newer.root / "data" / "opencode"))
    for session in json.loads(newer.opencode("session", "list", "--format", "json")):
        id = SessionID(session["id"])
        theirs, ours = json.loads(newer.opencode("export", id)), json.loads(sandbox.weft("export", id))
        assert without_empty_texts(ours["messages"]) == theirs["messages"]
        assert {key: ours["info"].get(key) for key in theirs["info"]} == theirs["info"]
