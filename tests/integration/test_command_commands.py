"""`weft command` and `weft run --command`, from the command line."""

import json
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from weft.cli.main import run_command


@pytest.fixture
def weft(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "stdin", StringIO())
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()

    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_command(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def write_user_command(name: str, text: str) -> None:
    path = Path.home() / "config" / "opencode" / "command" / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_commands_are_listed_and_shown(weft: Any) -> None:
    write_user_command(
        "git/tidy", "---\ndescription: tidy up\nmodel: a/b\nsubtask: true\n---\nTidy $1, then $ARGUMENTS."
    )
    code, out, err = weft("command", "list")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["command", "takes", "what", "it", "is", "for"],
        ["init", "$ARGUMENTS", "write", "or", "improve", "AGENTS.md"],
        [
            *["review", "$ARGUMENTS", "review", "changes:", "not", "committed"],
            *["(default),", "a", "commit,", "a", "branch", "or", "a", "pull", "request"],
        ],
        ["git/tidy", "$1", "$ARGUMENTS", "tidy", "up"],
    ]
    assert json.loads(weft("command", "show", "git/tidy", "--format", "json")[1]) == {
        "name": "git/tidy",
        "description": "tidy up",
        "model": "a/b",
        "template": "Tidy $1, then $ARGUMENTS.",
        "subtask": True,
        "hints": ["$1", "$ARGUMENTS"],
    }
    assert weft("command", "show", "/git/tidy")[1].splitlines()[-1] == "Tidy $1, then $ARGUMENTS."
    code, _, err = weft("command", "show", "reveiw")
    assert (code, "did you mean review?" in err) == (2, True)


def test_servers_whose_prompts_were_not_listed_are_named(weft: Any) -> None:
    path = Path.home() / "config" / "opencode" / "opencode.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    notes, off = {"type": "local", "command": ["x"]}, {"type": "local", "command": ["y"], "enabled": False}
    path.write_text(json.dumps({"mcp": {"notes": notes, "later": off}}))
    said = (
        "1 MCP server was not asked for prompts, which are commands too (notes): weft mcp debug NAME asks one"
    )
    assert weft("command", "list")[2].splitlines() == [said]
    assert [each["name"] for each in json.loads(weft("command", "list", "--format", "json")[1])] == [
        "init",
        "review",
    ]
    assert said in weft("command", "show", "notes:tidy")[2]


def test_commands_of_an_untrusted_project_are_missing_with_a_notice(
    weft: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".opencode" / "command").mkdir(parents=True)
    (tmp_path / ".opencode" / "command" / "theirs.md").write_text("Go.")
    _, out, err = weft("command", "list")
    assert ("theirs" in out, "held back: command theirs" in err) == (False, True)

    monkeypatch.setenv("WEFT_TRUST", "1")
    _, out, err = weft("command", "list")
    assert ("theirs" in out, err) == (True, "")


def prompts(weft: Any) -> list[str]:
    shown = json.loads(weft("session", "show", "last", "--format", "json")[1])
    asked = [each for each in shown["messages"] if each["info"]["role"] == "user"]
    return [part["text"] for each in asked for part in each["parts"] if part["type"] == "text"]


def test_a_command_runs_with_its_arguments(weft: Any) -> None:
    write_user_command("fix", "Fix $1; mind $2. !`echo from the shell`")
    code, _, err = weft("run", "-m", "scripted/demo", "--command", "fix", "42", "the tests", "too")
    assert code in (0, 1), err  # the demo needs files that are not here
    assert prompts(weft) == ["Fix 42; mind the tests too. from the shell"]


def test_a_mistake_leaves_no_session_behind(weft: Any) -> None:
    code, _, err = weft("run", "-m", "scripted/demo", "--command", "fxi")
    assert (code, "there is no command 'fxi'" in err) == (2, True)
    assert weft("session", "list", "--format", "json")[1] == "[]\n"


def test_a_shell_command_that_is_not_permitted_is_a_refusal(weft: Any) -> None:
    write_user_command("go", "!`touch ran`")
    config = Path.home() / "config" / "opencode" / "opencode.json"
    config.write_text('{"permission": {"bash": "deny"}}')
    code, _, err = weft("run", "-m", "scripted/demo", "--command", "go")
    assert (code, "forbids" in err, Path("ran").exists()) == (3, True, False)


def test_the_output_of_a_shell_command_is_bounded(weft: Any) -> None:
    write_user_command("long", "!`seq 100000`")
    weft("run", "-m", "scripted/demo", "--command", "long")
    (words,) = prompts(weft)
    assert len(words) < 60_000
    assert "truncated..." in words
