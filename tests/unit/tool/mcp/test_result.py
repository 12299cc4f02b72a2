"""Convert answers of MCP servers to results, prompt texts and resources."""

from typing import Any

import pytest

from weft.errors import McpError
from weft.tool.contract import Attachment
from weft.tool.mcp.contract import ResourcePiece
from weft.tool.mcp.result import MAX_FILES, to_pieces, to_prompt_text, to_result


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def image(data: str = "AA==", mime: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "data": data, "mimeType": mime}


def test_texts_are_joined_and_files_attached() -> None:
    answer = {
        "content": [
            text("one"),
            image(),
            {"type": "audio", "data": "BB==", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "a:b", "text": "two"}},
            {"type": "resource", "resource": {"uri": "a:c", "blob": "CC==", "mimeType": "application/pdf"}},
            {"type": "resource_link", "uri": "a:d", "name": "more"},
            {"type": "new", "x": 1},
        ],
        "_meta": {"took": 3},
    }
    result = to_result(answer)
    assert result.output == (
        "one\n\ntwo\n\n[resource more: a:d]\n\n[left out: content of an unknown kind (new)]"
    )
    assert result.attachments == (
        Attachment(mime="image/png", url="data:image/png;base64,AA=="),
        Attachment(mime="audio/wav", url="data:audio/wav;base64,BB=="),
        Attachment(mime="application/pdf", url="data:application/pdf;base64,CC==", filename="a:c"),
    )
    assert (result.title, result.metadata) == ("", {"took": 3})


def test_a_result_without_text_is_returned_as_json() -> None:
    assert to_result({"content": [], "structuredContent": {"a": [1]}}).output == '{"a":[1]}'
    assert to_result({"content": [text("a")], "structuredContent": {"a": 1}}).output == "a"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"content": [text("no such city")], "isError": True}, "no such city"),
        ({"content": [], "isError": True}, "The tool failed, and did not say why."),
    ],
)
def test_an_error_result_raises_an_error(answer: dict[str, Any], said: str) -> None:
    with pytest.raises(McpError, match=said):
        to_result(answer)


def test_the_message_of_a_failure_is_bounded() -> None:
    with pytest.raises(McpError) as raised:
        to_result({"content": [text("x" * 1_000_000)], "isError": True})
    assert len(str(raised.value)) < 60_000


def test_too_many_files_are_omitted_with_a_notice() -> None:
    result = to_result({"content": [image() for _ in range(MAX_FILES + 3)]})
    assert len(result.attachments) == MAX_FILES
    assert "3 more files left out" in result.output
    assert to_result({"content": [image("A" * 30_000_000)]}).attachments == ()


def test_an_invalid_media_type_cannot_break_a_data_url() -> None:
    [file] = to_result({"content": [image(mime="image/png;x,y\n<script>")]}).attachments
    assert file.url == "data:image/png;base64,AA=="
    [file] = to_result({"content": [image(mime="<script>,")]}).attachments
    assert file.mime == "application/octet-stream"


@pytest.mark.parametrize("answer", [{}, {"content": None}, {"content": [3, None, "x"]}, {"_meta": [1]}])
def test_an_invalid_answer_counts_as_empty(answer: dict[str, Any]) -> None:
    assert to_result(answer).output == ""


def test_metadata_of_a_server_cannot_claim_that_output_was_truncated() -> None:
    assert to_result({"content": [text("a")], "_meta": {"truncated": True}}).metadata == {}


def test_a_prompt_is_the_text_of_its_messages_of_any_role() -> None:
    answer = {
        "messages": [
            {"role": "user", "content": text("one")},
            {"role": "assistant", "content": {"type": "resource", "resource": {"text": "two"}}},
            {"role": "user", "content": image()},
            "odd",
        ]
    }
    assert to_prompt_text(answer) == "one\ntwo"
    assert to_prompt_text({"messages": None}) == ""


def test_a_resource_is_converted_to_text_and_files() -> None:
    answer = {
        "contents": [
            {"uri": "a:b", "text": "one"},
            {"uri": "a:b", "blob": "AA==", "mimeType": "image/png"},
            {"uri": "a:b", "blob": "A" * 30_000_000},
            {"uri": "a:b"},
        ]
    }
    assert to_pieces(answer) == (
        ResourcePiece(text="one"),
        ResourcePiece(file=Attachment(mime="image/png", url="data:image/png;base64,AA==")),
        ResourcePiece(text="[left out: a file that is too large]"),
    )
