"""`weft run --json-schema` on APIs with an output format: by the format, and by a forced tool call if that fails."""

import json
import sys
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from given.web import Answer, Web, open_web
from integration.test_configured_model import body, events, piece
from integration.test_json_schema_command import ADA, PERSON, answer_with_value
from weft.cli.main import run_command

Run = Callable[..., tuple[int, str, str]]
SAID = json.dumps(ADA)
OPEN = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
CHAT = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"


def answer_in_chat(text: str) -> Answer:
    return events(piece({"role": "assistant", "content": text}), piece({}, "stop"), end=DONE)


def answer_in_responses(text: str) -> Answer:
    item = {"id": "i", "type": "message", "role": "assistant", "status": "completed", "content": []}
    whole = {"id": "r", "object": "response", "status": "completed", "output": [], "model": "m"}
    inside = {"item_id": "i", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": text, "annotations": []}
    return events(
        {"type": "response.created", "response": whole | {"status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_text.delta", **inside, "delta": text},
        {"type": "response.output_item.done", "output_index": 0, "item": item | {"content": [part]}},
        {"type": "response.completed", "response": whole},
        named=True,
    )


def answer_in_messages(text: str) -> Answer:
    used = {"input_tokens": 10, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "m", "usage": used}
    return events(
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
        named=True,
    )


def answer_in_gemini(text: str) -> Answer:
    content = {"role": "model", "parts": [{"text": text}]}
    return events({"candidates": [{"content": content, "finishReason": "STOP", "index": 0}]})


class Turns(Mapping[str, Answer]):
    """Answers in order, for any request; the last one repeats."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)

    def __getitem__(self, path: str) -> Answer:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return len(self._answers)


@pytest.fixture
def weft(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(sys, "stdin", StringIO())

    def run(web: Web, npm: str, schema: Any, provider: str = "mill", **model: Any) -> tuple[int, str, str]:
        given = {"limit": {"context": 100_000, "output": 1_000}, **model}
        options = {"baseURL": f"{web.url}/v1", "apiKey": "sk-secret-0123456789"}
        said = {"provider": {provider: {"npm": npm, "options": options, "models": {"m": given}}}}

        monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps(said))
        place = ("--dir", str(tmp_path), "--store", str(tmp_path / "store"))
        code = run_command(
            ["run", "-m", f"{provider}/m", "--json-schema", json.dumps(schema), *place, "who?"]
        )
        heard = capsys.readouterr()
        return code, heard.out, heard.err

    return run


FORMAT = {"name": "StructuredOutput", "schema": PERSON, "strict": True}
NATIVE: dict[str, tuple[str, Answer, dict[str, Any], Callable[[Any], Any], Any]] = {
    "chat": (
        "@ai-sdk/openai-compatible",
        answer_in_chat(SAID),
        {"options": {"structuredOutputs": True}},
        lambda sent: sent["response_format"],
        {"type": "json_schema", "json_schema": FORMAT},
    ),
    "responses": (
        "@ai-sdk/openai",
        answer_in_responses(SAID),
        {},
        lambda sent: sent["text"]["format"],
        {"type": "json_schema", **FORMAT},
    ),
    "messages": (
        "@ai-sdk/anthropic",
        answer_in_messages(SAID),
        {"structured_output": True},
        lambda sent: sent["output_config"]["format"],
        {"type": "json_schema", "schema": PERSON},
    ),
}


@pytest.mark.parametrize("wire", NATIVE)
def test_an_api_with_response_formats_gets_one_and_tools_stay_optional(wire: str, weft: Run) -> None:
    npm, answer, model, where, expected = NATIVE[wire]
    with open_web(Turns(answer)) as web:
        code, out, _ = weft(web, npm, PERSON, **model)
    [asked] = web.requests
    sent = body(asked)
    assert (code, json.loads(out), where(sent)) == (0, ADA, expected)
    assert sent["tool_choice"] in ("auto", {"type": "auto"})
    assert "StructuredOutput" not in json.dumps(sent["tools"])


def test_gemini_with_tools_gets_a_value_tool_instead_of_a_format(weft: Run) -> None:
    with open_web(Turns(answer_in_gemini(SAID))) as web:
        code, out, _ = weft(web, "@ai-sdk/google", PERSON)
    sent = body(web.requests[0])
    assert (code, json.loads(out)) == (0, ADA)  # its text is the value, and is accepted
    assert sent["toolConfig"] == {"functionCallingConfig": {"mode": "ANY"}}
    assert "responseJsonSchema" not in sent["generationConfig"]


def test_a_value_that_is_not_an_object_is_unwrapped(weft: Run) -> None:
    with open_web(Turns(answer_in_responses('{"value": ["a", "b"]}'))) as web:
        code, out, _ = weft(web, "@ai-sdk/openai", {"type": "array", "items": {"type": "string"}})
    assert (code, json.loads(out)) == (0, ["a", "b"])


def test_a_schema_that_cannot_be_enforced_is_sent_as_advice(weft: Run) -> None:
    with open_web(Turns(answer_in_responses(SAID))) as web:
        code, out, _ = weft(web, "@ai-sdk/openai", OPEN)
    assert (code, json.loads(out)) == (0, ADA)
    assert body(web.requests[0])["text"]["format"]["strict"] is False


def test_a_refused_format_is_replaced_by_a_value_tool(weft: Run) -> None:
    no = b'{"error": {"message": "response_format is not supported", "type": "invalid_request_error"}}'
    with open_web(Turns(Answer(no, 400), answer_with_value(ADA))) as web:
        code, out, _ = weft(web, "@ai-sdk/openai-compatible", PERSON, options={"structuredOutputs": True})
    first, second = map(body, web.requests)
    assert (code, json.loads(out)) == (0, ADA)
    assert ("response_format" in first, "response_format" in second) == (True, False)
    assert second["tool_choice"] == "required"


@pytest.mark.parametrize("wrong", ["Her name is Ada.", '{"nom": "Ada"}', '{"name": "A'])
def test_a_wrong_value_is_corrected_with_a_forced_call(wrong: str, weft: Run) -> None:
    with open_web(Turns(answer_in_chat(wrong), answer_with_value(ADA))) as web:
        code, out, _ = weft(web, "@ai-sdk/openai-compatible", PERSON, options={"structuredOutputs": True})
    _, second = map(body, web.requests)
    assert (code, json.loads(out)) == (0, ADA)
    assert second["tool_choice"] == {"type": "function", "function": {"name": "StructuredOutput"}}


def test_a_value_that_stays_wrong_is_a_failure_that_names_the_fault(weft: Run) -> None:
    with open_web(Turns(answer_in_responses('{"nom": "Ada"}'))) as web:
        code, out, err = weft(web, "@ai-sdk/openai", PERSON)
    assert (code, out, len(web.requests)) == (1, "", 3)
    assert "its answer does not match the schema: $: 'name' is a required property" in err


def test_the_configuration_of_a_model_wins(weft: Run) -> None:
    with open_web(Turns(answer_in_responses(SAID))) as web:
        weft(web, "@ai-sdk/openai", PERSON, structured_output=False)
    assert ("text" in body(web.requests[0]), body(web.requests[0])["tool_choice"]) == (False, "required")
