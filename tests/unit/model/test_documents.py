"""Golden documents of OpenCode 1.1.34 are read and written back unchanged."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from weft.model.agent import AgentInfo
from weft.model.catalog import Model
from weft.model.diff import FileDiff
from weft.model.input import PromptInput
from weft.model.message import AnyMessage, MessageWithParts
from weft.model.part import AnyPart, Part, UnknownPart
from weft.model.permission import PermissionRequest, QuestionRequest
from weft.model.project import Project
from weft.model.session import AnyStatus, SessionInfo, Todo
from weft.model.wire import decode, encode, encode_pretty, from_plain, to_plain

GOLDEN = Path(__file__).parent / "documents"
KINDS = {
    "agent": AgentInfo,
    "diff": FileDiff,
    "message": AnyMessage,
    "message-with-parts": MessageWithParts,
    "model": Model,
    "part": AnyPart,
    "permission": PermissionRequest,
    "project": Project,
    "prompt": PromptInput,
    "question": QuestionRequest,
    "session": SessionInfo,
    "status": AnyStatus,
    "todo": Todo,
}
DOCUMENTS = sorted(GOLDEN.glob("*/*.json"))


def parse_exactly(raw: bytes) -> object:
    return json.loads(raw, parse_float=Decimal)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_document_survives_reading_and_writing(path: Path) -> None:
    raw, kind = path.read_bytes(), KINDS[path.parent.name]
    value = decode(raw, kind)

    assert parse_exactly(encode(value)) == parse_exactly(raw)
    assert parse_exactly(encode_pretty(value)) == parse_exactly(raw)
    assert from_plain(json.loads(raw), kind) == value
    assert from_plain(to_plain(value), kind) == value
    assert decode(encode(value), kind) == value


def test_every_kind_of_part_has_a_golden_document() -> None:
    written = {parse_exactly(path.read_bytes())["type"] for path in DOCUMENTS if path.parent.name == "part"}  # type: ignore[index]
    known = {kind.__struct_config__.tag for kind in Part.__subclasses__() if kind is not UnknownPart}
    assert written == known
    assert len(known) == 12


def test_a_document_on_disk_has_two_spaces_and_no_newline_at_its_end() -> None:
    todo = Todo(content="weave", status="pending", priority="low", id="1")
    assert (
        encode_pretty(todo)
        == b'{\n  "content": "weave",\n  "status": "pending",\n  "priority": "low",\n  "id": "1"\n}'
    )


OLD_SESSION = b'{"id":"ses_1","version":"0.3.1","title":"old","time":{"created":1,"updated":2}}'


def test_a_session_of_an_early_version_without_some_fields_is_read() -> None:
    session = decode(OLD_SESSION, SessionInfo)
    assert (session.slug, session.directory, session.project_id) == ("", "", "")
    assert encode(session) == OLD_SESSION


def test_a_summary_without_files_is_written_with_an_empty_list() -> None:
    raw = b'{"id":"ses_1","time":{"created":1,"updated":2},"summary":{"additions":1,"deletions":0}}'
    assert json.loads(encode(decode(raw, SessionInfo)))["summary"] == {
        "additions": 1,
        "deletions": 0,
        "files": 0,
    }
