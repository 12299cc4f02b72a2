"""A configured model, from `opencode.json` to the request and back: its package selects the API."""

import json
import os
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from given.web import Answer, Web, WebRequest, open_web
from weft.cli.main import run_command

KEY = "sk-secret-0123456789"
Run = Callable[..., tuple[int, str, str]]


def events(*expected: dict[str, Any], named: bool = False, end: bytes = b"") -> Answer:
    lines = [
        (b"event: " + str(each["type"]).encode() + b"\n" if named else b"")
        + b"data: "
        + json.dumps(each).encode()
        + b"\n\n"
        for each in expected
    ]
    return Answer(b"".join(lines) + end, kind="text/event-stream")


def piece(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


CHAT = events(
    piece({"role": "assistant", "content": "Well "}),
    piece({"content": "woven"}),
    piece({}, "stop"),
    {
        "id": "c",
        "choices": [],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100},
    },
    end=b"data: [DONE]\n\n",
)
MESSAGES = events(
    {
        "type": "message_start",
        "message": {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": "m",
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 1000, "output_tokens": 1},
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Well woven"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 100},
    },
    {"type": "message_stop"},
    named=True,
)
ITEM = {"id": "i", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
TEXT = {"type": "output_text", "text": "Well woven", "annotations": []}
RESPONSE = {"id": "r", "object": "response", "status": "in_progress", "output": [], "model": "m"}
RESPONSES = events(
    {"type": "response.created", "response": RESPONSE},
    {"type": "response.output_item.added", "output_index": 0, "item": ITEM},
    {
        "type": "response.output_text.delta",
        "item_id": "i",
        "output_index": 0,
        "content_index": 0,
        "delta": "Well woven",
    },
    {
        "type": "response.output_item.done",
        "output_index": 0,
        "item": {**ITEM, "status": "completed", "content": [TEXT]},
    },
    {
        "type": "response.completed",
        "response": {
            **RESPONSE,
            "status": "completed",
            "usage": {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100},
        },
    },
    named=True,
)
GEMINI = events(
    {
        "candidates": [
            {
                "content": {"role": "model", "parts": [{"text": "Well woven"}]},
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 100, "totalTokenCount": 1100},
    }
)
WIRES = {
    "@ai-sdk/openai-compatible": ("/v1/chat/completions", CHAT, "authorization"),
    "@ai-sdk/groq": ("/v1/chat/completions", CHAT, "authorization"),
    "@ai-sdk/anthropic": ("/v1/messages", MESSAGES, "x-api-key"),
    "@ai-sdk/openai": ("/v1/responses", RESPONSES, "authorization"),
    "@ai-sdk/google": ("/v1/models/m:streamGenerateContent?alt=sse", GEMINI, "x-goog-api-key"),
}


@pytest.fixture
def weft(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(sys, "stdin", StringIO())

    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_command(["run", *arguments, "--dir", str(tmp_path), "--store", str(tmp_path / "store")])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def configure(monkeypatch: pytest.MonkeyPatch, web: Web, npm: str, **more: Any) -> None:
    model = {"limit": {"context": 100_000, "output": 1_000}, "cost": {"input": 1, "output": 10}, **more}
    options = {"baseURL": f"{web.url}/v1", "apiKey": KEY}
    said = {"provider": {"mill": {"npm": npm, "options": options, "models": {"m": model}}}}
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps(said))


@pytest.mark.parametrize("npm", WIRES)
def test_each_package_uses_its_own_api(npm: str, weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path, answer, header = WIRES[npm]
    with open_web({path: answer}) as web:
        configure(monkeypatch, web, npm)
        code, out, err = weft("-m", "mill/m", "weave")
    assert (code, out.strip()) == (0, "Well woven")
    assert "1,000 tokens in, 100 out · $0.0020" in err
    [asked] = web.requests
    assert KEY in asked.headers[header]


def body(asked: WebRequest) -> dict[str, Any]:
    return dict(json.loads(asked.body))


def test_limits_options_and_variants_reach_the_wire(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_web({"/v1/chat/completions": CHAT}) as web:
        configure(
            monkeypatch,
            web,
            "@ai-sdk/openai-compatible",
            id="m-2025",
            reasoning=True,
            options={"seed": 7},
            headers={"x-team": "looms"},
        )
        assert weft("-m", "mill/m", "--variant", "high", "weave")[0] == 0
    [asked] = web.requests
    sent = body(asked)
    assert (sent["model"], sent["max_tokens"], sent["seed"], sent["reasoning_effort"]) == (
        "m-2025",
        1_000,
        7,
        "high",
    )
    assert asked.headers["x-team"] == "looms"


def test_the_one_configured_provider_is_the_default(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_web({"/v1/chat/completions": CHAT}) as web:
        configure(monkeypatch, web, "@ai-sdk/openai-compatible")
        assert weft("weave")[0] == 0
    assert [body(asked)["model"] for asked in web.requests] == ["m"]


def test_an_unknown_model_is_an_error_and_nothing_is_sent(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_web({"/v1/chat/completions": CHAT}) as web:
        configure(monkeypatch, web, "@ai-sdk/openai-compatible")
        code, _, err = weft("-m", "mill/n", "weave")
    assert (code, web.requests) == (2, [])
    assert "did you mean mill/m?" in err


def list_titles(tmp_path: Path, capsys: pytest.CaptureFixture[str], *command: str) -> list[str]:
    """Return the titles of all sessions, including the trash."""
    run_command([*command, "--format", "json", "--dir", str(tmp_path), "--store", str(tmp_path / "store")])
    return [each["title"] for each in json.loads(capsys.readouterr().out)]


def test_without_a_key_the_variable_is_named_and_no_session_is_left(
    weft: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weft("-m", "scripted/demo", "the one before")
    code, _, err = weft("-m", "anthropic/claude-sonnet-4-5", "weave")
    assert code == 1
    assert "set ANTHROPIC_API_KEY" in err
    assert "nothing was answered, so the session is in the trash: weft session restore ses_" in err
    assert list_titles(tmp_path, capsys, "session", "list") == ["the one before"]


def test_a_refused_key_leaves_a_session_only_in_the_trash(
    weft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_web({"/v1/chat/completions": Answer(b'{"error": {"message": "bad key"}}', 401)}) as web:
        configure(monkeypatch, web, "@ai-sdk/openai-compatible")
        code, _, err = weft("-m", "mill/m", "weave")
    assert (code, list_titles(tmp_path, capsys, "session", "list")) == (1, [])
    restored = err.splitlines()[-1].split()[-1]
    place = ("--dir", str(tmp_path), "--store", str(tmp_path / "store"))
    assert run_command(["session", "restore", restored, *place]) == 0
    capsys.readouterr()
    assert list_titles(tmp_path, capsys, "session", "list") == ["weave"]


def test_a_refused_key_in_the_middle_of_a_session_removes_nothing(
    weft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_web({"/v1/chat/completions": CHAT}) as web:
        configure(monkeypatch, web, "@ai-sdk/openai-compatible")
        weft("-m", "mill/m", "weave")
    with open_web({"/v1/chat/completions": Answer(b'{"error": {"message": "bad key"}}', 401)}) as web:
        configure(monkeypatch, web, "@ai-sdk/openai-compatible")
        assert weft("-m", "mill/m", "-c", "weave on")[0] == 1
    assert list_titles(tmp_path, capsys, "session", "list") == ["weave"]


def test_a_package_without_an_adapter_is_named(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_web({}) as web:
        configure(monkeypatch, web, "odd-sdk")
        code, _, err = weft("-m", "mill/m", "weave")
    assert code == 1
    assert "'odd-sdk'" in err


UNCOUNTED = events(
    piece({"role": "assistant", "content": "Well woven"}), piece({}, "stop"), end=b"data: [DONE]\n\n"
)
NOUGHTS = events(
    piece({"role": "assistant", "content": "Well woven"}),
    piece({}, "stop") | {"usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}},
    end=b"data: [DONE]\n\n",
)


@pytest.mark.parametrize("answer", [UNCOUNTED, NOUGHTS], ids=["no usage", "noughts"])
def test_an_answer_without_usage_has_an_unknown_number_of_tokens(
    answer: Answer,
    weft: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_web({"/v1/chat/completions": answer}) as web:
        configure(monkeypatch, web, "@ai-sdk/openai-compatible")
        code, out, err = weft("-m", "mill/m", "weave")
        expected = json.loads(weft("-m", "mill/m", "--format", "json", "weave")[1].splitlines()[-1])
    assert (code, out.strip(), err.splitlines()[-1]) == (
        0,
        "Well woven",
        "1 step · tokens unknown · cost unknown",
    )
    assert (expected["cost"], expected["priced"], expected["tokens"]["input"], expected["counted"]) == (
        0,
        False,
        0,
        False,
    )

    def print_command(*command: str) -> str:
        run_command([*command, "--dir", str(tmp_path), "--store", str(tmp_path / "store")])
        return capsys.readouterr().out

    last = expected["sessionID"]
    spent = json.loads(print_command("session", "cost", last, "--format", "json"))["own"]
    figures = json.loads(print_command("stats", "--format", "json"))["spent"]
    assert print_command("session", "cost", last) == "itself   cost unknown · tokens unknown\n"
    assert (
        print_command("session", "show", last).splitlines()[-1]
        == "2 messages · tokens unknown · cost unknown"
    )
    assert "and more: not every answer was counted" in print_command("stats")
    assert [(each["priced"], each["counted"]) for each in (spent, figures)] == [(False, False)] * 2


def test_a_free_model_costs_nothing_even_without_usage(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_web({"/v1/chat/completions": UNCOUNTED}) as web:
        monkeypatch.setenv("OLLAMA_HOST", web.url)
        code, _, err = weft("-m", "ollama/llama3:8b", "weave")
    assert (code, err.splitlines()[-1]) == (0, "1 step · tokens unknown · $0.0000")


def test_a_budget_that_cannot_be_counted_is_reported(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_web({"/v1/chat/completions": UNCOUNTED}) as web:
        configure(monkeypatch, web, "@ai-sdk/openai-compatible")
        budget = {"experimental": {"weft": {"budget": {"session": {"tokens": 100_000}}}}}
        said = json.loads(os.environ["OPENCODE_CONFIG_CONTENT"]) | budget
        monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps(said))
        weft("-m", "mill/m", "weave")
        err = weft("-m", "mill/m", "-c", "weave on")[2]
    expected = "the usage of an answer is not known, so the budget cannot be kept exactly"
    assert [line for line in err.splitlines() if line.startswith("warning:")] == [
        f"warning: {expected}; limits of steps and seconds still hold"
    ]


def test_usage_is_requested_unless_the_configuration_says_otherwise(
    weft: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_web({"/v1/chat/completions": CHAT}) as web:
        configure(monkeypatch, web, "@ai-sdk/openai-compatible")
        weft("-m", "mill/m", "weave")
        said = json.loads(os.environ["OPENCODE_CONFIG_CONTENT"])
        said["provider"]["mill"]["options"]["includeUsage"] = False
        monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps(said))
        weft("-m", "mill/m", "weave")
    assert [body(asked).get("stream_options") for asked in web.requests] == [{"include_usage": True}, None]


def test_a_local_server_is_used_without_configuration(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_web({"/v1/chat/completions": CHAT}) as web:
        monkeypatch.setenv("OLLAMA_HOST", web.url)
        code, out, err = weft("-m", "ollama/llama3:8b", "weave")
    assert (code, out.strip()) == (0, "Well woven")
    assert "$0.0000" in err
    assert "authorization" not in web.requests[0].headers


def test_a_local_server_that_does_not_run_is_reported_at_once_with_a_hint(
    weft: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing listens on port 1, and the clock is real: a second try would wait for seconds.
    monkeypatch.setenv("OLLAMA_HOST", "localhost:1")
    code, out, err = weft("-m", "ollama/llama3:8b", "weave")
    expected = "nothing listens at localhost:1: the connection was refused"
    hint = "is Ollama running? `ollama serve` starts it"
    assert (code, out, err.splitlines()[0]) == (1, "", f"error: {expected} ({hint})")


def test_no_output_contains_a_key(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_web({"/v1/chat/completions": Answer(b'{"error": {"message": "bad key"}}', 401)}) as web:
        configure(monkeypatch, web, "@ai-sdk/openai-compatible")
        code, out, err = weft("-m", "mill/m", "--format", "json", "weave")
    assert code == 1
    assert KEY not in out + err
