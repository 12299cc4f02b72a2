"""`weft agent`: list, show and create."""

import json
import subprocess
from pathlib import Path

import pytest

from weft.cli.main import run_command
from weft.config.front_matter import Markdown


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    top = tmp_path / "repository"
    (top / "deep").mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=top, check=True)
    monkeypatch.chdir(top / "deep")
    return top


def weft(*arguments: str) -> int:
    return run_command(["agent", *arguments])


def list_agents(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert weft("list", "--format", "json", *arguments) == 0
    return [agent["name"] for agent in json.loads(capsys.readouterr().out)]


def test_built_in_agents_come_first_and_hidden_ones_are_listed_on_request(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "opencode.json").write_text('{"agent": {"aide": {"description": "Helps."}}}')

    assert list_agents(capsys) == ["build", "plan", "general", "explore", "aide"]
    assert list_agents(capsys, "--all") == [
        "build",
        "plan",
        "general",
        "explore",
        "compaction",
        "title",
        "summary",
        "aide",
    ]


def test_the_table_has_descriptions_and_verbose_adds_permissions(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "opencode.json").write_text(
        '{"agent": {"aide": {"description": "Helps.", "permission": {"bash": "deny"}}}}'
    )
    weft("list")
    assert capsys.readouterr().out.splitlines()[-1].split() == ["aide", "all", "you", "Helps."]

    weft("list", "--verbose")
    shown = capsys.readouterr().out
    assert "aide (all)" in shown
    assert "  deny  bash *" in shown


def test_an_agent_is_shown_completely_and_an_unknown_one_is_an_error(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "opencode.json").write_text(
        '{"agent": {"aide": {"prompt": "You help.", "model": "p/m", "steps": 3, "mode": "subagent"}}}'
    )
    assert weft("show", "aide") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.startswith(("mode", "model", "steps", "prompt"))] == [
        ["mode", "subagent"],
        ["model", "p/m"],
        ["steps", "3"],
        ["prompt", "its", "own,", "below"],
    ]
    assert lines[-1] == "You help."

    assert weft("show", "aid") == 2
    assert "did you mean aide?" in capsys.readouterr().err


def test_a_created_agent_has_the_requested_properties(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    description = 'Use when: asked to "review"\nor to look'
    code = weft(
        *("create", "--name", "reviewer", "--description", description, "--mode", "subagent"),
        *("--tools", "read,grep,edit", "--model", "p/m", "--prompt", "You review."),
    )
    path = Path(capsys.readouterr().out.strip())
    assert (code, path) == (0, repository / ".opencode" / "agent" / "reviewer.md")
    text = Markdown(str(path), path.read_text())
    off = ("bash", "list", "glob", "webfetch", "task", "todowrite", "todoread")
    assert text.front == {
        "description": description,
        "mode": "subagent",
        "model": "p/m",
        "tools": dict.fromkeys(off, False),
    }
    assert text.body == "You review."

    weft("show", "reviewer", "--format", "json")
    shown = json.loads(capsys.readouterr().out)
    assert (shown["prompt"], shown["mode"], shown["description"]) == ("You review.", "subagent", description)


def test_existing_files_are_not_overwritten(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weft("create", "--name", "aide", "--description", "First.")
    path = Path(capsys.readouterr().out.strip())

    assert weft("create", "--name", "aide", "--description", "Second.") == 2
    assert "is there already" in capsys.readouterr().err
    assert Markdown(str(path), path.read_text()).body == "First."


@pytest.mark.parametrize(
    "arguments",
    [
        ("--name", "build", "--description", "x"),
        ("--name", "../../x", "--description", "x"),
        ("--name", "x", "--description", " "),
        ("--name", "x", "--description", "x", "--tools", "read,fly"),
        ("--name", "x", "--description", "x", "--model", "m"),
    ],
)
def test_invalid_arguments_write_nothing(repository: Path, arguments: tuple[str, ...]) -> None:
    assert weft("create", *arguments) == 2
    assert not (repository / ".opencode").exists()


def test_an_agent_is_created_at_the_path_or_globally_without_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    weft("create", "--name", "a", "--description", "x", "--path", "here")
    weft("create", "--name", "b", "--description", "x")

    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / "here" / "agent" / "a.md"),
        str(tmp_path / "config" / "opencode" / "agent" / "b.md"),
    ]
