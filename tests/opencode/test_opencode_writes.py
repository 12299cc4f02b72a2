"""weft reads what OpenCode wrote: every document, every field, in the right order."""

import json
from pathlib import Path
from typing import Any

import pytest

from opencode.comparison import list_shapes, parse_strictly, texts, to_export
from opencode.engine import open_sandbox_store
from opencode.fake_model import (
    TITLE,
    Answer,
    FakeModel,
    ModelCall,
    answer_call,
    answer_slow_call,
    answer_text,
)
from opencode.sandbox import Sandbox
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import AnyMessage
from weft.model.part import AnyPart
from weft.model.project import Project
from weft.model.session import SessionInfo, Todo
from weft.model.wire import decode, encode

pytestmark = pytest.mark.opencode

KINDS: dict[str, Any] = {
    "project": Project,
    "session": SessionInfo,
    "message": AnyMessage,
    "part": AnyPart,
    "session_diff": tuple[FileDiff, ...],
    "todo": tuple[Todo, ...],
}
TODO = {"id": "1", "content": "Say goodbye", "status": "completed", "priority": "high"}


@pytest.fixture(scope="module")
def session(sandbox: Sandbox, model: FakeModel) -> SessionID:
    """A session in which the model thinks, reads, runs a failing command, edits, plans and answers."""
    hello = str(sandbox.project / "hello.txt")
    read = ModelCall("read", {"filePath": hello})
    model.play(
        Answer(thought="Let me see what the file says.", words=["I shall", " look."], calls=(read,)),
        answer_call("bash", command="echo said; exit 3", description="Says something and fails"),
        answer_slow_call("edit", filePath=hello, oldString="hello", newString="goodbye – «ä» \U0001f9f6"),
        answer_call("read", filePath=str(sandbox.project / "missing.txt")),
        answer_call("todowrite", todos=[TODO]),
        answer_text("It says goodbye now."),
    )
    lines = sandbox.opencode("run", "--format", "json", "Let the file say goodbye.").splitlines()
    assert len(model.requests) == 6
    return SessionID(json.loads(lines[0])["sessionID"])


@pytest.fixture(scope="module")
def exported(sandbox: Sandbox, session: SessionID) -> str:
    return sandbox.opencode("export", session)


def documents(sandbox: Sandbox) -> list[Path]:
    return [path for shelf in KINDS for path in sorted((sandbox.storage / shelf).rglob("*.json"))]


def test_every_document_of_opencode_survives_reading_and_writing(
    sandbox: Sandbox, session: SessionID
) -> None:
    raws = {str(path.relative_to(sandbox.storage)): path.read_bytes() for path in documents(sandbox)}
    assert {name.partition("/")[0] for name in raws} == set(KINDS)
    again = {name: encode(decode(raw, KINDS[name.partition("/")[0]])) for name, raw in raws.items()}
    assert {name: parse_strictly(raw) for name, raw in again.items()} == {
        name: parse_strictly(raw) for name, raw in raws.items()
    }


def test_no_document_of_opencode_has_unknown_fields(sandbox: Sandbox, session: SessionID) -> None:
    """Nothing that OpenCode 1.1.34 writes is unknown to us."""
    raws = {path: path.read_bytes() for path in documents(sandbox)}
    carried = {
        path: decode(raw, KINDS[path.relative_to(sandbox.storage).parts[0]]) for path, raw in raws.items()
    }
    assert [path for path, value in carried.items() if b"$extra" in encode(value)] == []


async def test_the_store_returns_what_opencode_exports(
    sandbox: Sandbox, session: SessionID, exported: str
) -> None:
    async with open_sandbox_store(sandbox) as store:
        [project] = await store.list_projects()
        [listed] = await store.list_sessions(project.id)
        messages = await store.list_messages(session)
        assert await store.damage() == []
    assert (project.worktree, listed.id, listed.title, listed.version) == (
        str(sandbox.project),
        session,
        TITLE,
        "1.1.34",
    )
    assert to_export(listed, messages) == parse_strictly(exported)


def test_session_show_prints_what_opencode_exports(
    sandbox: Sandbox, session: SessionID, exported: str
) -> None:
    assert parse_strictly(sandbox.weft("session", "show", session, "--format", "json")) == parse_strictly(
        exported
    )


def test_session_list_prints_what_opencode_lists(sandbox: Sandbox, session: SessionID) -> None:
    command = ("session", "list", "--format", "json")
    assert parse_strictly(sandbox.weft(*command)) == parse_strictly(sandbox.opencode(*command))


async def test_messages_and_parts_are_in_chronological_order(sandbox: Sandbox, session: SessionID) -> None:
    async with open_sandbox_store(sandbox) as store:
        messages = await store.list_messages(session)
    assert [message.info.time.created for message in messages] == sorted(
        message.info.time.created for message in messages
    )
    prompt, *answers = messages
    assert list_shapes(prompt) == ["text"]
    assert [list_shapes(answer) for answer in answers] == [
        ["step-start", "reasoning", "text", "read completed", "step-finish"],
        ["step-start", "bash completed", "step-finish"],
        ["step-start", "edit completed", "step-finish", "patch"],
        ["step-start", "read error", "step-finish"],
        ["step-start", "todowrite completed", "step-finish"],
        ["step-start", "text", "step-finish"],
    ]
    assert texts(messages) == [
        '"Let the file say goodbye."\n',
        "Let me see what the file says.",
        "I shall look.",
        "It says goodbye now.",
    ]


async def test_todos_diffs_and_single_messages_are_found(sandbox: Sandbox, session: SessionID) -> None:
    async with open_sandbox_store(sandbox) as store:
        messages = await store.list_messages(session)
        assert [parse_strictly(encode(todo)) for todo in await store.list_todos(session)] == [TODO]
        [diff] = await store.list_diff(session)
        assert (diff.file, diff.additions, diff.deletions) == ("hello.txt", 1, 1)
        assert await store.find_message(session, messages[3].info.id) == messages[3]
        assert await store.list_messages(session, last=2) == messages[-2:]
        assert await store.find_message(session, MessageID("msg_none")) is None


async def test_reading_changes_nothing_on_disk(sandbox: Sandbox, session: SessionID) -> None:
    before = {path: path.read_bytes() for path in sandbox.storage.rglob("*.json")}
    async with open_sandbox_store(sandbox) as store:
        for project in await store.list_projects():
            await store.list_sessions(ProjectID(project.id))
        await store.list_messages(session)
        await store.damage()
    assert {path: path.read_bytes() for path in sandbox.storage.rglob("*.json")} == before
