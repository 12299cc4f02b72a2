"""Import rollouts of Codex."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from given.damage import IN_ONE_DIRECTORY, check_import, damaged_lines
from weft.errors import DocumentError
from weft.importers.codex import list_codex_sessions
from weft.importers.transcript import ImportedSession
from weft.model.message import AssistantMessage, UserMessage
from weft.model.part import (
    CacheTokens,
    CompactionPart,
    CompletedState,
    FilePart,
    ReasoningPart,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.model.transfer import ExportCounts, count_export

AT = "2026-02-03T04:05:{:02}.000Z"


def line(number: int, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": AT.format(number), "type": kind, "payload": payload}


def item(number: int, kind: str, **payload: Any) -> dict[str, Any]:
    return line(number, "response_item", {"type": kind, **payload})


def message(number: int, role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item(number, "message", role=role, content=[{"type": kind, "text": text}])


USAGE = {"input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 20, "reasoning_output_tokens": 8}
META = {"id": "019a-loom", "timestamp": AT.format(0), "cwd": "/home/ada/loom", "cli_version": "0.50.0"}
LINES = [
    line(0, "session_meta", META),
    message(1, "user", "<environment_context>\n  <cwd>/home/ada/loom</cwd>\n</environment_context>"),
    line(2, "turn_context", {"cwd": "/home/ada/loom", "model": "gpt-5-codex"}),
    message(3, "user", "Mend the loom"),
    line(3, "event_msg", {"type": "user_message", "message": "Mend the loom"}),
    item(
        4,
        "reasoning",
        id="rs_1",
        summary=[{"type": "summary_text", "text": "Looking."}],
        encrypted_content="c2VhbA==",
    ),
    item(
        5,
        "function_call",
        name="shell",
        arguments=json.dumps({"command": ["bash", "-lc", "ls"], "workdir": "/home/ada/loom"}),
        call_id="call_1",
    ),
    item(
        6,
        "function_call_output",
        call_id="call_1",
        output=json.dumps({"output": "a.py\n", "metadata": {"exit_code": 0}}),
    ),
    line(6, "event_msg", {"type": "token_count", "info": {"last_token_usage": USAGE}}),
    item(7, "custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="call_2"),
    item(8, "custom_tool_call_output", call_id="call_2", output="Done"),
    message(9, "assistant", "Mended."),
]


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def read(path: Path) -> ImportedSession:
    [found] = list_codex_sessions(str(path))
    return found.read()


@pytest.fixture
def imported(tmp_path: Path) -> ImportedSession:
    return read(write_lines(tmp_path / "rollout-1.jsonl", LINES))


def test_the_session_has_the_properties_of_the_rollout(imported: ImportedSession) -> None:
    info = imported.export.info
    assert (info.title, info.directory, info.version) == ("Mend the loom", "/home/ada/loom", "codex 0.50.0")


def test_each_step_is_an_answer(imported: ImportedSession) -> None:
    around, prompt, first, second, third = imported.export.messages
    assert isinstance(around.parts[0], TextPart)
    assert around.parts[0].synthetic
    assert isinstance(prompt.info, UserMessage)
    assert prompt.info.model is not None
    assert prompt.info.model.model_id == "gpt-5-codex"
    thought, call = first.parts
    assert isinstance(thought, ReasoningPart)
    assert (thought.text, thought.metadata) == (
        "Looking.",
        {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "c2VhbA=="}},
    )
    assert isinstance(call, ToolPart)
    assert isinstance(call.state, CompletedState)
    assert (call.tool, call.state.input, call.state.output) == (
        "bash",
        {"command": "ls", "workdir": "/home/ada/loom"},
        "a.py\n",
    )
    assert isinstance(first.info, AssistantMessage)
    assert first.info.tokens == Tokens(input=40, output=12, reasoning=8, cache=CacheTokens(read=60))
    assert first.info.finish == "tool-calls"
    [patch] = second.parts
    assert isinstance(patch, ToolPart)
    assert isinstance(patch.state, CompletedState)
    assert (patch.tool, patch.state.input, patch.state.output) == (
        "apply_patch",
        {"input": "*** Begin Patch"},
        "Done",
    )
    assert isinstance(third.info, AssistantMessage)
    assert (third.info.finish, third.info.parent_id) == ("stop", prompt.info.id)


def test_counting_the_lines_gives_the_same_as_reading_them(imported: ImportedSession) -> None:
    assert imported.counted == count_export(imported.export) == ExportCounts(messages=5, parts=6)
    assert imported.troubles == ()


def test_a_compaction_replaces_earlier_messages(tmp_path: Path) -> None:
    imported = read(
        write_lines(tmp_path / "r.jsonl", [*LINES, line(10, "compacted", {"message": "We mended a loom."})])
    )
    *_, asked, summary = imported.export.messages
    assert isinstance(asked.parts[0], CompactionPart)
    assert isinstance(summary.info, AssistantMessage)
    assert summary.info.summary
    assert imported.counted == count_export(imported.export)


def test_the_bare_items_of_the_first_versions_are_read(tmp_path: Path) -> None:
    bare = [
        {"id": "old", "timestamp": AT.format(0), "instructions": None},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Mend the loom"}]},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_image", "image_url": "data:image/png;base64,aGk="}],
        },
        {"record_type": "state"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Mended."}]},
    ]
    imported = read(write_lines(tmp_path / "r.jsonl", bare))
    assert isinstance(imported.export.messages[1].parts[0], FilePart)
    assert imported.counted == count_export(imported.export) == ExportCounts(messages=3, parts=3)


def test_images_in_a_result_and_words_without_a_block_are_kept(tmp_path: Path) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
    lines = [
        item(1, "message", role="user", content=["Look at it"]),
        item(2, "function_call", name="view_image", arguments="{}", call_id="call_1"),
        item(3, "function_call_output", call_id="call_1", output=[{"text": "It is red"}, image]),
    ]
    found = read(write_lines(tmp_path / "a.jsonl", lines))
    (said,), (call,) = (message.parts for message in found.export.messages)
    assert isinstance(said, TextPart)
    assert said.text == "Look at it"
    assert isinstance(call, ToolPart)
    assert isinstance(call.state, CompletedState)
    assert call.state.output == "It is red"
    (file,) = call.state.attachments or ()
    assert (file.mime, file.url) == ("image/png", image["image_url"])
    assert found.counted == count_export(found.export)


def test_a_result_without_a_call_is_reported(tmp_path: Path) -> None:
    lines = [*LINES, item(10, "function_call_output", call_id="call_9", output="?")]
    [trouble] = read(write_lines(tmp_path / "r.jsonl", lines)).troubles
    assert trouble.reason == "a result for call_9, but no such call"


def test_a_file_that_is_not_a_rollout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="nothing in it is a conversation"):
        read(write_lines(tmp_path / "r.jsonl", [{"hello": 1}]))


MORE_ITEMS = [
    item(10, "local_shell_call", id="ls_1", action={"command": ["ls", "-l"]}),
    item(11, "function_call_output", call_id="ls_1", output={"content": "a.py", "success": True}),
    item(12, "web_search_call", id="ws_1", action={"query": "looms"}),
    line(13, "compacted", {"message": "We mended a loom."}),
]


@given(raw=damaged_lines([*LINES, *MORE_ITEMS]))
@IN_ONE_DIRECTORY
def test_whatever_a_rollout_contains_is_imported_or_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "rollout-1.jsonl"
    path.write_bytes(raw)
    for found in list_codex_sessions(str(path)):
        check_import(found)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (json.dumps({"output": "a.py", "metadata": "none"}), "a.py"),
        (json.dumps({"output": "a.py", "metadata": [1]}), "a.py"),
        ("{" + '"a":[' * 20_000, "{" + '"a":[' * 20_000),
        ('{"output": NaN}', '{"output": NaN}'),
    ],
)
def test_output_that_only_resembles_json_is_text(tmp_path: Path, output: str, expected: str) -> None:
    lines = [*LINES[:7], item(6, "function_call_output", call_id="call_1", output=output)]
    [*_, answer] = read(write_lines(tmp_path / "r.jsonl", lines)).export.messages
    call = answer.parts[-1]
    assert isinstance(call, ToolPart)
    assert isinstance(call.state, CompletedState)
    assert call.state.output == expected


@pytest.mark.parametrize("odd", [True, -5, 1.5, "7", None])
def test_an_invalid_token_count_counts_as_zero(tmp_path: Path, odd: Any) -> None:
    usage = {**USAGE, "input_tokens": odd}
    counted = line(7, "event_msg", {"type": "token_count", "info": {"last_token_usage": usage}})
    [*_, answer] = read(write_lines(tmp_path / "r.jsonl", [*LINES[:7], counted])).export.messages
    assert isinstance(answer.info, AssistantMessage)
    assert answer.info.tokens == Tokens(input=0, output=12, reasoning=8, cache=CacheTokens(read=60))
