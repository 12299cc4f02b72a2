"""The Markdown examples do what their READMEs say: in a copy of each, with the installed command."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from given.web import Answer, open_web
from weft.cli.demo import GREETING

WEFT = str(Path(sys.executable).with_name("weft"))
EXAMPLES = Path(__file__).parents[2] / "examples"


class Example:
    """A copy of an example, as its own repository."""

    def __init__(self, name: str, root: Path) -> None:
        self.root = root / name
        shutil.copytree(EXAMPLES / name, self.root)
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Mend the loom"]):
            subprocess.run(["git", *command], cwd=self.root, check=True)

    def weft(self, *arguments: str, **env: str) -> str:
        ran = subprocess.run(
            [WEFT, *arguments],
            cwd=self.root,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout + ran.stderr

    def context(self) -> str:
        """Return the context of the only session."""
        (session,) = json.loads(self.weft("session", "list", "--format", "json"))
        return self.weft("session", "context", session["id"], "--format", "json")


def test_the_agent_reads_and_may_not_write(tmp_path: Path) -> None:
    example = Example("agent", tmp_path)
    assert (example.root / "greet.py").read_text() == GREETING
    assert "review changes" in example.weft("agent", "show", "reviewer")
    said = example.weft("run", "--agent", "reviewer", "-m", "scripted/demo", "let it greet a name")
    assert re.search(r"^\| Edit +the tool 'edit' is not available in this step", said, re.MULTILINE)
    assert re.search(r"^\| Bash +A rule forbids this call \(bash 'python3 greet.py", said, re.MULTILINE)
    assert (example.root / "greet.py").read_text() == GREETING


def test_the_command_becomes_a_prompt_with_its_mentions(tmp_path: Path) -> None:
    example = Example("command", tmp_path)
    example.weft("trust", "--yes")
    assert "standup" in example.weft("command", "list")
    example.weft("run", "--command", "standup", "-m", "scripted/demo", "monday")
    shown = example.context()
    assert "what was done here since monday" in shown
    assert "Mend the loom" in shown
    assert "The loom is called" in shown


def chat(*deltas: dict[str, Any], reason: str) -> Answer:
    chunks = [
        *({"id": "c", "choices": [{"index": 0, "delta": delta}]} for delta in deltas),
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
    ]
    lines = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks)
    return Answer(lines + b"data: [DONE]\n\n", kind="text/event-stream")


class Turns(dict[str, Answer]):
    """A model that gives the first answer once, and then always the second."""

    def get(self, path: str, otherwise: Any = None) -> Any:
        del path, otherwise
        return self.pop("first", None) or self["then"]


def test_the_skill_is_offered_by_name_and_loaded_when_called(tmp_path: Path) -> None:
    example = Example("skill", tmp_path)
    call = {"index": 0, "id": "c1", "function": {"name": "skill", "arguments": '{"name": "release-notes"}'}}
    pages = Turns(
        first=chat({"tool_calls": [call]}, reason="tool_calls"),
        then=chat({"content": "Written."}, reason="stop"),
    )
    with open_web(pages) as web:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{web.url}/v1"},
            "models": {"m": {"tool_call": True, "limit": {"context": 100_000, "output": 4000}}},
        }
        config = {"provider": {"here": provider}, "model": "here/m"}
        said = example.weft("run", "write them", OPENCODE_CONFIG_CONTENT=json.dumps(config))
        first, *rest = [json.loads(each.body) for each in web.requests]

    assert "Written." in said
    offered = next(each["function"] for each in first["tools"] if each["function"]["name"] == "skill")
    assert "release-notes" in offered["description"]
    loaded = [each["content"] for body in rest for each in body["messages"] if each["role"] == "tool"]
    assert any("No line for what nobody can notice." in each for each in loaded)


@pytest.mark.parametrize("name", ["agent", "command", "skill"])
def test_the_index_lists_every_example(name: str) -> None:
    assert f"]({name})" in (EXAMPLES / "README.md").read_text()
    assert (EXAMPLES / name / "README.md").is_file()
