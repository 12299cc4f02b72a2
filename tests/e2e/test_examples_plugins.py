"""The examples of plugins, tools and shell hooks do what their pages say, with the installed command."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from given.web import Answer, open_web

WEFT = str(Path(sys.executable).with_name("weft"))
EXAMPLES = Path(__file__).parents[2] / "examples"

Run = Callable[..., subprocess.CompletedProcess[str]]


def set_up(name: str, tmp_path: Path) -> Run:
    """Copy an example into its own project, and trust it as its page says."""
    where = tmp_path / name
    shutil.copytree(EXAMPLES / name, where, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "init", "-q"], cwd=where, check=True)

    def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [WEFT, *arguments],
            cwd=where,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    held = run("plugin", "list", "--format", "json")
    assert {row["state"] for row in json.loads(held.stdout)} == {"held back"}
    assert run("trust", "--yes").returncode == 0
    return run


def plugins(run: Run) -> list[dict[str, Any]]:
    listed = run("plugin", "list", "--format", "json")
    assert listed.stderr == ""
    found: list[dict[str, Any]] = json.loads(listed.stdout)
    return found


def lines(ran: subprocess.CompletedProcess[str], kind: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, ran.stdout.splitlines()) if line["type"] == kind]


class Script(dict[str, Answer]):
    """The answers of a model, one after the other."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__()
        self._answers = list(answers)

    def get(self, path: str, default: Any = None) -> Any:
        del path
        return self._answers.pop(0) if self._answers else default


def chat(*deltas: dict[str, Any], reason: str) -> Answer:
    pieces = [{"id": "c", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    chunks = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in (*pieces, end))
    return Answer(chunks + b"data: [DONE]\n\n", kind="text/event-stream")


def make_config(url: str) -> str:
    options = {"baseURL": f"{url}/v1", "apiKey": "key"}
    model = {"limit": {"context": 100_000, "output": 1000}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": model}}
    return json.dumps({"provider": {"near": provider}})


DONE = chat({"role": "assistant", "content": "Done."}, reason="stop")


def test_the_plugin_changes_parameters_and_blocks_a_call(tmp_path: Path) -> None:
    run = set_up("plugin", tmp_path)
    (row,) = plugins(run)
    ran = run("run", "--format", "json", "-m", "scripted/demo", "greet by name")

    assert (row["name"], row["state"], row["kind"]) == ("careful", "loaded", "file")
    assert row["hooks"] == ["chat.params", "tool.execute.before"]
    assert (ran.returncode, ran.stderr) == (0, "")
    calls = [line["part"] for line in lines(ran, "tool_use")]
    assert [(call["tool"], call["state"]["status"]) for call in calls] == [
        ("read", "completed"),
        ("edit", "completed"),
        ("bash", "error"),
    ]
    assert "One command at a time, please" in calls[2]["state"]["error"]

    with open_web(Script(DONE, DONE)) as web:
        ran = run(
            "run", "-m", "near/m", "--title", "x", "hello", OPENCODE_CONFIG_CONTENT=make_config(web.url)
        )
        assert ran.returncode == 0, ran.stderr
        assert json.loads(web.requests[0].body)["temperature"] == 0.2


def test_the_tool_is_offered_called_and_needs_permission(tmp_path: Path) -> None:
    run = set_up("tool", tmp_path)
    (row,) = plugins(run)
    function = {"name": "count", "arguments": json.dumps({"path": "README.md", "what": "words"})}
    call = {"role": "assistant", "tool_calls": [{"index": 0, "id": "call_1", "function": function}]}
    with open_web(Script(chat(call, reason="tool_calls"), DONE)) as web:
        ran = run(
            *("run", "--format", "json", "-m", "near/m", "--title", "x", "how many?"),
            OPENCODE_CONFIG_CONTENT=make_config(web.url),
        )
        asked = [json.loads(each.body) for each in web.requests]

    assert (row["kind"], row["tools"]) == ("tools", ["count"])
    assert (ran.returncode, ran.stderr) == (0, "")
    (used,) = [line["part"] for line in lines(ran, "tool_use")]
    number = len((tmp_path / "tool" / "README.md").read_text().split())
    assert used["state"]["output"] == f"{number} words"
    assert used["state"]["title"] == f"README.md: {number} words"
    (offered,) = [each["function"] for each in asked[0]["tools"] if each["function"]["name"] == "count"]
    assert offered["parameters"]["required"] == ["path"]
    assert asked[1]["messages"][-1]["content"] == f"{number} words"


def test_the_shell_hooks_block_a_call_and_receive_the_end(tmp_path: Path) -> None:
    run = set_up("shell-hooks", tmp_path)
    rows = plugins(run)
    ran = run("run", "--format", "json", "-m", "scripted/demo", "greet by name")

    assert [(row["kind"], row["hooks"]) for row in rows] == [
        ("command", ["tool.execute.before"]),
        ("command", ["event"]),
    ]
    assert (ran.returncode, ran.stderr) == (0, "")
    state = lines(ran, "tool_use")[-1]["part"]["state"]
    assert "One command at a time, please" in state["error"]
    (idle,) = (tmp_path / "shell-hooks" / "idle.log").read_text().splitlines()
    assert json.loads(idle)["input"]["event"]["type"] == "session.idle"


@pytest.mark.parametrize("command", [("plugin", "list"), ("plugin", "list", "--format", "json")])
def test_without_plugins_the_list_is_empty(tmp_path: Path, command: tuple[str, ...]) -> None:
    listed = subprocess.run([WEFT, *command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert listed.stdout.startswith(("[]", "no plugins: put Python files"))
