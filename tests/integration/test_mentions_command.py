"""`weft run "… @name …"`: files and agents that a prompt mentions are attached if they may be read."""

import json
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from given.web import Answer, open_web
from weft.cli.main import run_command

CHAT = "/v1/chat/completions"
SAID = {"id": "c", "choices": [{"index": 0, "delta": {"content": "Seen."}, "finish_reason": "stop"}]}
SEEN = Answer(b"data: " + json.dumps(SAID).encode() + b"\n\ndata: [DONE]\n\n", kind="text/event-stream")

Ask = Callable[..., str]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Run a prompt in a directory with some files, and return the request text."""
    here = tmp_path / "here"
    (here / "pkg").mkdir(parents=True)
    (here / "pkg" / "one.py").write_text("first\nsecond\nthird\n")
    (here / "notes.txt").write_text("buy yarn")
    (here / ".env").write_text("KEY=hidden-value")
    (tmp_path / "outside.txt").write_text("not yours")

    def run(words: str, piped: str = "") -> str:
        monkeypatch.setattr(sys, "stdin", StringIO(piped))
        with open_web({CHAT: SEEN}) as web:
            mill = {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{web.url}/v1", "apiKey": "sk-secret-0123456789"},
                "models": {"m": {"limit": {"context": 100_000, "output": 1_000}}},
            }
            said = {"provider": {"mill": mill}, "model": "mill/m", "agent": {"title": {"disable": True}}}
            monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps(said))
            arguments = ["--dir", str(here), "--store", str(tmp_path / "store"), "--title", "T"]
            assert run_command(["run", words, *arguments]) == 0
        [asked] = web.requests
        return str(json.loads(asked.body)["messages"][1:])

    return run


@pytest.mark.parametrize(
    ("words", "request_text"),
    [
        ("see @notes.txt.", "00001| buy yarn"),
        ("see @pkg", "one.py"),
        ("see @pkg/one.py#2", "00002| second"),
        ("see @pkg/one.py#2-3 now", "00003| third"),
        ("have @explore look", "call the task tool with subagent: explore"),
    ],
)
def test_mentioned_files_are_attached(ask: Ask, words: str, request_text: str) -> None:
    assert request_text in ask(words)


def test_only_the_named_lines_are_attached(ask: Ask) -> None:
    request_text = ask("see @pkg/one.py#2")

    assert ("first" in request_text, "second" in request_text, "third" in request_text) == (
        False,
        True,
        False,
    )


@pytest.mark.parametrize(
    "words",
    [
        "see @.env",
        "see @../outside.txt",
        "see `@notes.txt`",
        "mail me@notes.txt",
        "see @nothing-of-the-kind",
        "ask @build",
    ],
)
def test_a_mention_that_may_not_be_read_without_asking_stays_text(ask: Ask, words: str) -> None:
    request_text = ask(words)

    assert words in request_text
    assert "Called the" not in request_text
    assert "subagent:" not in request_text


def test_piped_text_mentions_nothing(ask: Ask) -> None:
    request_text = ask("what is this?", piped="see @notes.txt")

    assert "see @notes.txt" in request_text
    assert "buy yarn" not in request_text
