"""`weft session compact` and `uncompact`, from the command line."""

import json
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from given.web import Answer, open_web
from weft.cli.main import run_command

Weft = Callable[..., tuple[int, str, str]]
CHAT = "/v1/chat/completions"


def make_answer(words: str, *, used: int = 100) -> Answer:
    said: dict[str, Any] = {
        "id": "c",
        "choices": [{"index": 0, "delta": {"content": words}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": used, "completion_tokens": 1, "total_tokens": used + 1},
    }
    return Answer(b"data: " + json.dumps(said).encode() + b"\n\ndata: [DONE]\n\n", kind="text/event-stream")


@pytest.fixture
def weft(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Weft:
    monkeypatch.setattr(sys, "stdin", StringIO())

    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_command([*arguments, "--dir", str(tmp_path), "--store", str(tmp_path / "store")])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def configure(monkeypatch: pytest.MonkeyPatch, url: str, **more: Any) -> None:
    mill = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "sk-secret-0123456789"},
        "models": {"m": {"limit": {"context": 100_000, "output": 1_000}}},
    }
    said = {"provider": {"mill": mill}, "model": "mill/m", "small_model": "mill/m", **more}
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps(said))


def begin(weft: Weft) -> str:
    _, out, _ = weft("run", "--title", "Sums", "--format", "json", "remember seven")
    id: str = json.loads(out.splitlines()[-1])["sessionID"]
    return id


def test_a_summary_is_shown_and_can_be_undone(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_web({CHAT: make_answer("It was about seven.")}) as web:
        configure(monkeypatch, web.url)
        session = begin(weft)
        code, out, _ = weft("session", "compact", session)
        assert (code, out) == (0, f"{session} was summarised:\n\nIt was about seven.\n")
        _, cut, _ = weft("session", "context", session, "--format", "json")
        code, out, _ = weft("session", "uncompact", session)
        assert (code, out) == (0, f"{session} is shown to the model in full again\n")
        _, whole, _ = weft("session", "context", session, "--format", "json")

    assert "It was about seven." in str(json.loads(cut)["messages"][:2])
    assert json.loads(cut)["messages"][0]["content"][0]["text"] != "remember seven"
    assert "recall" in [tool["name"] for tool in json.loads(cut)["tools"]]
    assert json.loads(whole)["messages"][0]["content"][0]["text"] == "remember seven"


@pytest.mark.parametrize("format", ["table", "json"])
def test_a_summary_that_cannot_be_made_is_an_error(
    weft: Weft, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    pages = {CHAT: make_answer("Noted.")}
    with open_web(pages) as web:
        configure(monkeypatch, web.url)
        session = begin(weft)
        pages[CHAT] = Answer(b'{"error": {"message": "no such key"}}', status=401)
        code, out, err = weft("session", "compact", session, "--format", format)

    assert code == 1
    assert "was summarised" not in out
    assert "error: it was not summarised: no such key" in err


def test_a_disabled_compaction_agent_is_reported_as_missing(
    weft: Weft, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_web({CHAT: make_answer("Noted.")}) as web:
        configure(monkeypatch, web.url, agent={"compaction": {"disable": True}})
        session = begin(weft)
        code, _, err = weft("session", "compact", session)

    assert code == 1
    assert "there is no agent 'compaction'" in err


@pytest.mark.parametrize(("used", "crowded"), [(90_000, False), (99_500, True)])
def test_the_context_command_says_if_the_conversation_will_be_compacted_first(
    weft: Weft, monkeypatch: pytest.MonkeyPatch, used: int, crowded: bool
) -> None:
    pages = {CHAT: make_answer("Noted.", used=used)}
    with open_web(pages) as web:
        configure(monkeypatch, web.url)
        session = begin(weft)
        _, shown, _ = weft("session", "context", session)
        _, report, _ = weft("session", "context", session, "--format", "json")
        pages[CHAT] = make_answer("About seven.")
        weft("run", "--session", session, "and now?")

    assert json.loads(report)["crowded"] is crowded
    assert ("summarised first" in shown.splitlines()[-1]) is crowded
    answers = [each for each in web.requests if b"Generate a title" not in each.body]
    assert len(answers) == (3 if crowded else 2)  # as the context command announced
