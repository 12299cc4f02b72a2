"""`weft run --json-schema`: stdout contains only the value, also if the model is slow or fails."""

import json
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from given.web import Answer, Web, open_web
from weft.cli.main import run_command

Run = Callable[..., tuple[int, str, str]]
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
ADA = {"name": "Ada"}


def piece(delta: dict[str, Any], reason: str | None = None) -> bytes:
    chunk = {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def answer_with_value(value: Any) -> Answer:
    call = {
        "index": 0,
        "id": "call_1",
        "type": "function",
        "function": {"name": "StructuredOutput", "arguments": json.dumps(value)},
    }
    said = piece({"role": "assistant", "content": "I know her."})
    end = piece({}, "tool_calls") + b"data: [DONE]\n\n"
    return Answer(said + piece({"tool_calls": [call]}) + end, kind="text/event-stream")


@pytest.fixture
def weft(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(sys, "stdin", StringIO())

    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_command(["run", *arguments, "--dir", str(tmp_path), "--store", str(tmp_path / "store")])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def configure(monkeypatch: pytest.MonkeyPatch, webs: dict[str, Web], **more: Any) -> None:
    """Configure a provider for each server, all with a model `m`."""
    model = {"limit": {"context": 100_000, "output": 1_000}, "cost": {"input": 1, "output": 10}}
    providers = {
        name: {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{web.url}/v1", "apiKey": "sk-secret-0123456789"},
            "models": {"m": model},
        }
        for name, web in webs.items()
    }
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps({"provider": providers, **more}))


def test_only_the_value_is_on_stdout(weft: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_web({"/v1/chat/completions": answer_with_value(ADA)}) as web:
        configure(monkeypatch, {"mill": web})
        code, out, err = weft("-m", "mill/m", "--json-schema", json.dumps(PERSON), "who?")

    assert (code, json.loads(out)) == (0, ADA)
    assert "I know her." in err
    [asked] = web.requests
    body = json.loads(asked.body)
    assert body["tool_choice"] == "required"
    assert body["tools"][-1]["function"]["parameters"] == PERSON


def test_the_schema_may_be_a_file_and_the_value_is_in_the_last_json_line(
    weft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = tmp_path / "person.json"
    schema.write_text(json.dumps(PERSON))
    with open_web({"/v1/chat/completions": answer_with_value(ADA)}) as web:
        configure(monkeypatch, {"mill": web})
        code, out, _ = weft("-m", "mill/m", "--format", "json", "--json-schema", str(schema), "who?")
        last = json.loads(out.splitlines()[-1])

    assert (code, last["type"], last["structured"]) == (0, "result", ADA)


def test_repeated_wrong_values_fail_with_nothing_on_stdout(
    weft: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_web({"/v1/chat/completions": answer_with_value({"nom": "Ada"})}) as web:
        configure(monkeypatch, {"mill": web})
        code, out, err = weft("-m", "mill/m", "--json-schema", json.dumps(PERSON), "who?")

    assert (code, out, len(web.requests)) == (1, "", 3)
    assert "the model did not give the value that was asked for" in err


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("nowhere.json", "cannot read 'nowhere.json'"),
        ("{not json", "not JSON"),
        ('{"type": "objet"}', "not a JSON schema"),
    ],
)
def test_an_invalid_schema_is_a_usage_error_and_starts_nothing(
    given: str, reason: str, weft: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_web({}) as web:
        configure(monkeypatch, {"mill": web})
        code, out, err = weft("-m", "mill/m", "--json-schema", given, "who?")

    assert (code, out, web.requests) == (2, "", [])
    assert reason in err
    assert not list(tmp_path.glob("store/session/**/*.json"))


def test_a_chain_of_models_is_asked_in_turn_and_the_switch_is_shown(
    weft: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = {"build": {"model": ["mill/m", "other/m"]}}
    refusal = Answer(b'{"error": {"message": "bad key"}}', status=401)
    with (
        open_web({"/v1/chat/completions": refusal}) as bad,
        open_web({"/v1/chat/completions": answer_with_value(ADA)}) as good,
    ):
        configure(monkeypatch, {"mill": bad, "other": good}, agent=agent)
        code, out, err = weft("--json-schema", json.dumps(PERSON), "who?")

    assert (code, json.loads(out)) == (0, ADA)
    assert "bad key; asking other/m instead" in err
    assert (len(bad.requests), len(good.requests)) == (1, 1)
