"""Import of the SQLite file that the real OpenCode 1.18.33 writes: every session, message and part; nothing else is touched."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opencode.engine import open_sandbox_store
from opencode.fake_model import Answer, FakeModel, ModelCall, answer_call, answer_text
from opencode.sandbox import Sandbox, make_sandbox
from weft.model.ids import SessionID

pytestmark = pytest.mark.opencode

TODO = {"content": "Say goodbye", "status": "completed", "priority": "high"}


@pytest.fixture(scope="module")
def newer_sandbox(
    newer_program: Path, model_server: tuple[FakeModel, str], tmp_path_factory: pytest.TempPathFactory
) -> Sandbox:
    """Two sessions and a child, written by OpenCode 1.18.33."""
    sandbox = make_sandbox(tmp_path_factory.mktemp("newer"), newer_program, model_server[1])
    model, hello = model_server[0], str(sandbox.project / "hello.txt")
    read = ModelCall("read", {"filePath": hello})
    model.play(
        Answer(thought="Let me see.", words=["I shall", " look."], calls=(read,)),
        answer_call("edit", filePath=hello, oldString="hello", newString="goodbye – «ä» \U0001f9f6"),
        answer_call("bash", command="echo said; exit 3", description="Says something and fails"),
        answer_call("todowrite", todos=[TODO]),
        answer_call("task", description="Look around", prompt="Look around.", subagent_type="general"),
        answer_text("I looked around."),
        answer_text("It says goodbye now."),
    )
    sandbox.opencode("run", "--format", "json", "Let the file say goodbye.")
    model.play(answer_text("Second."))
    sandbox.opencode("run", "--format", "json", "A second one.")
    return sandbox


def count_rows(database: Path) -> dict[str, Any]:
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


async def test_everything_in_the_database_is_imported(
    newer_sandbox: Sandbox, sandbox: Sandbox, tmp_path: Path
) -> None:
    data = newer_sandbox.root / "data" / "opencode"
    before = files(data)
    imported = sandbox.weft("import", "--from", "opencode-sqlite", str(data), "--format", "json")
    assert files(data) == before

    report = json.loads(imported)
    counts = count_rows(data / "opencode.db")
    async with open_sandbox_store(sandbox) as store:
        sessions = [
            each for each in await store.list_sessions() if each.directory == str(newer_sandbox.project)
        ]
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


def test_an_import_is_printed_as_a_table_with_equal_counts(newer_sandbox: Sandbox, sandbox: Sandbox) -> None:
    data = str(newer_sandbox.root / "data" / "opencode" / "opencode.db")
    result = sandbox.weft("import", "--from", "opencode-sqlite", data, "--dry-run")
    counts = count_rows(Path(data))
    rows = {line.split()[0]: line.split()[1:] for line in result.splitlines() if len(line.split()) == 3}
    assert rows["sessions"] == [str(counts["session"])] * 2
    assert rows["messages"] == [str(counts["message"])] * 2
    assert rows["parts"] == [str(counts["part"])] * 2


def test_the_imported_sessions_equal_the_export_of_opencode(newer_sandbox: Sandbox, sandbox: Sandbox) -> None:
    sandbox.weft("import", "--from", "opencode-sqlite", str(newer_sandbox.root / "data" / "opencode"))
    listed = json.loads(newer_sandbox.opencode("session", "list", "--format", "json"))
    assert listed
    for session in listed:
        id = SessionID(session["id"])
        theirs, ours = (
            json.loads(newer_sandbox.opencode("export", id)),
            json.loads(sandbox.weft("export", id)),
        )
        assert without_empty_texts(ours["messages"]) == theirs["messages"]
        assert {key: ours["info"].get(key) for key in theirs["info"]} == theirs["info"]
