"""`weft plugin list`: plugins with their origin and status."""

import json
from pathlib import Path
from typing import Any

import pytest

from given.plugins import Project
from weft.cli.main import run_command


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def list_plugins(project: Project, capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, Any]], str]:
    assert run_command(["plugin", "list", "--format", "json", "--dir", str(project.root)]) == 0
    said = capsys.readouterr()
    return json.loads(said.out), said.err


def fill(project: Project) -> None:
    code = "from weft.plugin.hooks import hook\nfrom weft.plugin.tools import tool\n"
    project.plugin(
        "both",
        code + "def setup(context):\n    raise SystemExit\n"
        "@hook('event')\n@hook('chat.params')\ndef a(told, now): ...\n"
        "@hook('event')\ndef b(told, now): ...\n@tool\ndef weave() -> str:\n    'Weave.'\n    return ''\n",
    )
    project.plugin("broken", "import nowhere_at_all\n")
    project.tool("math", code + "@tool\ndef add(a: int) -> str:\n    'Add.'\n    return ''\n")
    hooks = {"event": [{"command": ["./note", "it"]}]}
    project.configure(plugin=["from-npm@2"], experimental={"weft": {"hooks": hooks}})


def test_each_plugin_is_listed_with_its_hooks_and_tools_and_not_set_up(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(project)
    monkeypatch.setenv("WEFT_TRUST", "1")
    rows, said = list_plugins(project, capsys)

    both, broken, math, command, npm = rows
    where = f"{project.root}/.opencode"
    assert both == {
        "name": "both",
        "kind": "file",
        "where": f"{where}/plugin/both.py",
        "state": "loaded",
        "hooks": ["chat.params", "event"],
        "tools": ["weave"],
        "why": "",
    }
    assert (broken["state"], broken["why"]) == (
        "failed",
        f"{where}/plugin/broken.py:1: ModuleNotFoundError: No module named 'nowhere_at_all'",
    )
    assert (math["kind"], math["tools"]) == ("tools", ["math_add"])
    assert (command["name"], command["hooks"]) == ("./note it", ["event"])
    assert (npm["name"], npm["state"]) == ("from-npm@2", "passed over")
    assert said == ""


def test_held_back_plugins_are_listed_and_not_loaded(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(project)
    rows, _ = list_plugins(project, capsys)

    assert [(row["kind"], row["name"], row["state"]) for row in rows] == [
        ("plugin", "from-npm@2", "held back"),
        ("hook", "event", "held back"),
        ("plugin", "both", "held back"),
        ("plugin", "broken", "held back"),
        ("tool", "math", "held back"),
    ]


def test_failures_are_named_below_the_table(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(project)
    monkeypatch.setenv("WEFT_TRUST", "1")
    assert run_command(["plugin", "list", "--dir", str(project.root)]) == 0
    said = capsys.readouterr()

    lines = said.out.splitlines()
    assert lines[0].split() == ["plugin", "state", "hooks", "and", "tools", "from"]
    assert "chat.params, event, tool weave" in lines[1]
    assert "failed:" in said.err
