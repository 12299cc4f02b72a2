"""Import transcripts of Claude Code."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from given.damage import IN_ONE_DIRECTORY, check_import, damaged_lines
from weft.errors import DocumentError
from weft.importers.claude import list_claude_sessions
from weft.importers.transcript import ImportedSession
from weft.model.message import AssistantMessage, UserMessage
from weft.model.part import (
    CacheTokens,
    CompactionPart,
    CompletedState,
    ErrorState,
    FilePart,
    ReasoningPart,
    RunningState,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.model.transfer import ExportCounts, count_export
from weft.transfer.session_import import compare_states

SESSION = "11111111-2222-4333-8444-555555555555"


def line(kind: str, number: int, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    return {
        "type": kind,
        "uuid": f"u{number}",
        "parentUuid": f"u{number - 1}",
        "sessionId": SESSION,
        "cwd": "/home/ada/loom",
        "version": "2.0.14",
        "isSidechain": False,
        "timestamp": f"2026-02-03T04:05:{number:02}.000Z",
        "message": message,
        **more,
    }


def answer_line(
    number: int, block: dict[str, Any], id: str = "m1", stop: str | None = None
) -> dict[str, Any]:
    usage = {
        "input_tokens": 5,
        "cache_creation_input_tokens": 6,
        "cache_read_input_tokens": 7,
        "output_tokens": 8,
    }
    more = {"id": id, "model": "claude-sonnet-4-5", "stop_reason": stop, "usage": usage}
    return line("assistant", number, [block], message=more)


def result(number: int, call: str, content: Any, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": content, **more}
    return line("user", number, [block])


PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
LINES = [
    {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
    line("user", 1, "Mend the loom"),
    answer_line(2, {"type": "thinking", "thinking": "Let me look.", "signature": "c2ln"}),
    answer_line(3, {"type": "text", "text": "I shall look."}),
    answer_line(
        4,
        {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "/home/ada/loom/a.py"}},
        stop="tool_use",
    ),
    result(5, "toolu_1", [{"type": "text", "text": "print()"}, PICTURE]),
    answer_line(
        6, {"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {"command": "false"}}, id="m2"
    ),
    result(7, "toolu_2", "exit code 1", is_error=True),
    answer_line(8, {"type": "text", "text": "Mended."}, id="m3", stop="end_turn"),
    line("user", 9, [{"type": "text", "text": "And this?"}, PICTURE]),
    line("user", 10, "<command-name>/clear</command-name>", isMeta=True),
    {"type": "summary", "summary": "Mending a loom", "leafUuid": "u8"},
]


def write_lines(path: Path, lines: list[dict[str, Any]], tail: str = "") -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines) + tail)
    return path


def read(path: Path) -> ImportedSession:
    [found] = list_claude_sessions(str(path))
    return found.read()


@pytest.fixture
def imported(tmp_path: Path) -> ImportedSession:
    return read(write_lines(tmp_path / f"{SESSION}.jsonl", LINES))


def test_the_session_has_the_properties_of_the_transcript(imported: ImportedSession) -> None:
    info = imported.export.info
    assert (info.title, info.directory, info.version) == (
        "Mending a loom",
        "/home/ada/loom",
        "claude-code 2.0.14",
    )
    assert (info.time.created, info.time.updated) == (1_770_091_501_000, 1_770_091_510_000)


def test_lines_with_one_message_id_are_one_answer(imported: ImportedSession) -> None:
    prompt, first, second, third, *rest = imported.export.messages
    assert [type(each.info) for each in imported.export.messages] == [
        UserMessage,
        *[AssistantMessage] * 3,
        *[UserMessage] * 2,
    ]
    assert isinstance(first.info, AssistantMessage)
    assert (first.info.model_id, first.info.provider_id, first.info.finish) == (
        "claude-sonnet-4-5",
        "anthropic",
        "tool-calls",
    )
    assert first.info.tokens == Tokens(input=5, output=8, cache=CacheTokens(read=7, write=6))
    assert not first.info.priced
    assert first.info.parent_id == prompt.info.id
    thought, words, call = first.parts
    assert isinstance(thought, ReasoningPart)
    assert (thought.text, thought.metadata) == ("Let me look.", {"anthropic": {"signature": "c2ln"}})
    assert isinstance(words, TextPart)
    assert words.text == "I shall look."
    assert isinstance(call, ToolPart)
    assert isinstance(call.state, CompletedState)
    assert (call.tool, call.call_id, call.state.input, call.state.output) == (
        "read",
        "toolu_1",
        {"filePath": "/home/ada/loom/a.py"},
        "print()",
    )
    assert [file.url for file in call.state.attachments or ()] == ["data:image/png;base64,aGk="]
    [failed] = second.parts
    assert isinstance(failed, ToolPart)
    assert isinstance(failed.state, ErrorState)
    assert failed.state.error == "exit code 1"
    assert isinstance(third.info, AssistantMessage)
    assert third.info.finish == "stop"
    asked, picture = rest[0].parts
    assert isinstance(asked, TextPart)
    assert isinstance(picture, FilePart)
    [meta] = rest[1].parts
    assert isinstance(meta, TextPart)
    assert meta.synthetic


def test_counting_the_lines_gives_the_same_as_reading_them(imported: ImportedSession) -> None:
    assert imported.counted == count_export(imported.export) == ExportCounts(messages=6, parts=9)
    assert imported.troubles == ()


def test_a_broken_line_is_reported_and_the_rest_is_read(tmp_path: Path, imported: ImportedSession) -> None:
    path = write_lines(tmp_path / "cut.jsonl", LINES, tail='{"type": "user", "mess')
    cut = read(path)
    assert cut.export.messages == imported.export.messages
    [trouble] = cut.troubles
    assert trouble.where == f"{path}:{len(LINES) + 1}"


def test_a_transcript_that_has_grown_keeps_its_old_ids(tmp_path: Path, imported: ImportedSession) -> None:
    for length in range(2, len(LINES)):
        earlier = read(write_lines(tmp_path / f"{SESSION}.jsonl", LINES[:length]))
        assert earlier.export.info.id == imported.export.info.id
        if length not in (3, 4):  # in the middle of an answer that already looked finished
            assert compare_states(imported.export, earlier.export) in ("ahead", "same")


def test_no_text_is_lost_that_is_not_in_a_block_of_text(tmp_path: Path) -> None:
    notes = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "The notes"}}
    lines = [line("user", 1, ["Read this:", notes]), line("assistant", 2, ["Read."])]
    found = read(write_lines(tmp_path / "a.jsonl", lines))
    parts = [part for message in found.export.messages for part in message.parts]
    assert [part.text for part in parts if isinstance(part, TextPart)] == ["Read this:", "The notes", "Read."]
    assert found.counted == count_export(found.export)


def test_a_call_without_a_result_at_the_end_is_running(tmp_path: Path) -> None:
    *_, last = read(write_lines(tmp_path / "a.jsonl", LINES[:5])).export.messages
    call = last.parts[-1]
    assert isinstance(call, ToolPart)
    assert isinstance(call.state, RunningState)
    assert isinstance(last.info, AssistantMessage)
    assert last.info.time.completed is None


def test_a_summary_replaces_earlier_messages(tmp_path: Path) -> None:
    lines = [*LINES, line("user", 11, "We mended a loom.", isCompactSummary=True)]
    imported = read(write_lines(tmp_path / "a.jsonl", lines))
    *_, asked, summary = imported.export.messages
    assert isinstance(asked.parts[0], CompactionPart)
    assert isinstance(summary.info, AssistantMessage)
    assert summary.info.summary
    assert imported.counted == count_export(imported.export)


def test_the_lines_of_a_subagent_become_a_child_session(tmp_path: Path) -> None:
    side = [{**line("user", 20, "Look around"), "isSidechain": True, "agentId": "a1"}]
    side.append(
        {
            **answer_line(21, {"type": "text", "text": "I looked."}, id="m9"),
            "isSidechain": True,
            "agentId": "a1",
        }
    )
    write_lines(tmp_path / f"{SESSION}.jsonl", LINES)
    write_lines(tmp_path / "agent-a1.jsonl", side)
    parent, child = [found.read().export for found in list_claude_sessions(str(tmp_path))]
    assert child.info.parent_id == parent.info.id
    assert count_export(child) == ExportCounts(messages=2, parts=2)


def test_a_file_that_is_not_a_transcript_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"hello": 1}\n')
    with pytest.raises(DocumentError, match="nothing in it is a conversation"):
        read(path)
    path.write_text("no json\n")
    with pytest.raises(DocumentError, match="it has no readable line"):
        read(path)


SUBAGENT = line("user", 11, "Look around", isSidechain=True, agentId="a1")
SUMMARY = line("user", 12, "We mended a loom.", isCompactSummary=True)


@given(raw=damaged_lines([*LINES, SUBAGENT, SUMMARY]))
@IN_ONE_DIRECTORY
def test_whatever_a_transcript_contains_is_imported_or_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(raw)
    for found in list_claude_sessions(str(path)):
        check_import(found)
