"""`weft config`: the effective configuration, its sources, and its problems."""

import json
from pathlib import Path

import pytest

from weft.cli.config import show_config


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / ".opencode" / "agent").mkdir(parents=True)
    (tmp_path / ".config" / "opencode").mkdir(parents=True)
    return project


def env(project: Path) -> dict[str, str]:
    return {"HOME": str(project.parent), "USER": "ada", "MY_SECRET": "hunter2-hunter2"}


def test_every_setting_is_shown_with_its_file_and_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = project.parent / ".config" / "opencode" / "opencode.jsonc"
    mine.write_text('{\n  // mine\n  "model": "p/m",\n  "instructions": ["a.md"]\n}')
    theirs = project / "opencode.json"
    theirs.write_text('{\n"agent": {"x.y": {"steps": 2}}, "instructions": ["b.md"]}')
    agent = project / ".opencode" / "agent" / "r.md"
    agent.write_text("---\ndescription: d\n---\nGo.")
    code = show_config(str(project), str(project), env(project), as_json=False)
    shown = capsys.readouterr()
    assert (code, shown.err) == (0, "")
    assert shown.out.splitlines() == [
        f'model = "p/m"  # {mine}:3',
        'username = "ada"  # default',
        f'agent."x.y".steps = 2  # {theirs}:2',
        f'agent.r.prompt = "Go."  # {agent}:2',
        f'agent.r.description = "d"  # {agent}:2',
        f'instructions.0 = "a.md"  # {mine}:4',
        f'instructions.1 = "b.md"  # {theirs}:2',
    ]


def test_secrets_are_redacted_and_problems_go_to_stderr(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / "opencode.json"
    path.write_text(
        '{"provider": {"p": {"options": {"apiKey": "{env:MY_SECRET}", "odd": "x {env:MY_SECRET}"}}},\n'
        ' "modle": "hunter2-hunter2",\n "snapshot": "hunter2-hunter2"}'
    )
    trusted = {**env(project), "WEFT_TRUST": "1"}
    code = show_config(str(project), str(project), trusted, as_json=False)
    shown = capsys.readouterr()
    assert code == 2
    assert "hunter2" not in shown.out + shown.err
    assert shown.err.splitlines() == [
        f"error: {path}:3:2: snapshot: expected true or false, found a string (correct it at this line and column; weft doctor checks it again)",
        f"warning: {path}:2:2: modle: unknown key, ignored (did you mean 'model'?)",
    ]
    assert f'provider.p.options.apiKey = "***"  # {path}:1' in shown.out
    assert f'provider.p.options.odd = "x ***"  # {path}:1' in shown.out


def test_json_output_can_be_parsed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = project / "opencode.json"
    path.write_text('{"model": "p/m",\n"shrae": "auto", "keybinds": {"leader": "ctrl+o"}}')
    code = show_config(str(project), str(project), env(project), as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert code == 0
    assert report["config"]["model"] == "p/m"
    assert report["origins"][0] == {
        "key": ["model"],
        "kind": "project",
        "path": str(path),
        "line": 1,
        "own": False,
    }
    assert report["problems"] == []
    assert report["warnings"] == [
        {
            "path": str(path),
            "line": 2,
            "column": 1,
            "key": "shrae",
            "reason": "unknown key, ignored",
            "near": "share",
        }
    ]
    assert report["trusted"] is False
    assert report["held"] == [
        {"kind": "setting", "name": "keybinds", "path": str(path), "does": "changes how weft works"}
    ]
    assert report["looser"] == []
    assert report["directories"] == [str(project.parent / ".config" / "opencode"), str(project / ".opencode")]


def test_held_back_settings_of_an_untrusted_project_are_named(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "opencode.json").write_text('{"share": "auto", "theme": "x", "username": "{env:MY_SECRET}"}')
    code = show_config(str(project), str(project), env(project), as_json=False)
    shown = capsys.readouterr()
    assert (code, "share" in shown.out, 'theme = "x"' in shown.out) == (0, False, True)
    assert shown.err == (
        f"warning: {project}: not trusted, so held back: setting share, substitution username; "
        "see: weft trust --show\n"
    )


def test_looser_settings_of_an_untrusted_project_are_named(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "opencode.json").write_text('{"permission": {"doom_loop": "allow"}}')
    assert show_config(str(project), str(project), env(project), as_json=False) == 0
    assert capsys.readouterr().err == (
        f"warning: {project}: not trusted, so without effect where they are looser than your settings: "
        "setting permission.doom_loop; see: weft trust --show\n"
    )
    show_config(str(project), str(project), env(project), as_json=True)
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["looser"]] == [
        "permission.doom_loop"
    ]
