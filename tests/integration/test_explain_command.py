"""`weft permission explain` and `weft session jobs`, from the command line. Nothing is run."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from given.shell import ShellTree, make_shell_tree
from weft.cli.exit import ExitCode
from weft.cli.main import run_command
from weft.host.paths import paths_from
from weft.model.ids import ProjectID, SessionID
from weft.model.session import SessionInfo, SessionTime
from weft.model.wire import encode_pretty, to_plain
from weft.tool.contract import Job
from weft.tool.shell.jobs import remove_record, write_record


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShellTree:
    made = make_shell_tree(tmp_path / "tree")
    monkeypatch.chdir(made.project)
    return made


def explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    capsys.readouterr()
    code = run_command(["permission", "explain", *arguments, "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_each_part_of_a_command_is_shown_with_its_rule(
    tree: ShellTree, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(capsys, "cat .env > x") == (
        ExitCode.ASK,
        {
            "command": "cat .env > x",
            "agent": "build",
            "verdict": "ask",
            "parts": [
                {
                    "permission": "read",
                    "pattern": f"{tree.project}/.env",
                    "action": "ask",
                    "rule": "read *.env ask",
                    "source": "built in",
                    "always": f"{tree.project}/.env",
                    "why": "",
                    "mayWrite": False,
                },
                {
                    "permission": "edit",
                    "pattern": "x",
                    "action": "allow",
                    "rule": "* * allow",
                    "source": "built in",
                    "always": "x",
                    "why": "",
                    "mayWrite": False,
                },
                {
                    "permission": "bash",
                    "pattern": "cat .env",
                    "action": "allow",
                    "rule": "* * allow",
                    "source": "built in",
                    "always": "cat *",
                    "why": "",
                    "mayWrite": False,
                },
            ],
        },
    )


@pytest.mark.parametrize(
    ("agent", "command", "exit", "verdict"),
    [
        ("build", "ls", ExitCode.DONE, "allow"),
        ("build", "cat /etc/hosts", ExitCode.ASK, "ask"),
        ("plan", "touch x", ExitCode.REFUSED, "deny"),
        ("plan", "make", ExitCode.ASK, "ask"),
        ("explore", "git log", ExitCode.DONE, "allow"),
    ],
)
def test_the_exit_code_is_the_verdict(
    tree: ShellTree,
    capsys: pytest.CaptureFixture[str],
    agent: str,
    command: str,
    exit: ExitCode,
    verdict: str,
) -> None:
    code, printed = explain(capsys, command, "--agent", agent)
    assert (code, printed["verdict"]) == (exit, verdict)
    assert not (tree.project / "x").exists()


def test_a_person_gets_a_table_and_a_sentence(tree: ShellTree, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["permission", "explain", "make", "--agent", "plan"]) == ExitCode.ASK
    assert capsys.readouterr().out == (
        "verdict  permission  what  rule           source                  reason\n"
        "ask      bash        make  bash make ask  added for this command  it may change files, and edit is denied\n"
        "\n"
        "ask: a person decides before it runs (agent plan)\n"
    )


def test_a_rule_that_asks_needs_no_further_reason(
    tree: ShellTree, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_user_config('{\n"permission": {\n"bash": {"*": "ask"}}}')
    code, printed = explain(capsys, "make", "--agent", "plan")
    assert (code, printed["parts"]) == (
        ExitCode.ASK,
        [
            {
                "permission": "bash",
                "pattern": "make",
                "action": "ask",
                "rule": "bash * ask",
                "source": f"{config}:3",
                "always": "make *",
                "why": "",
                "mayWrite": True,
            }
        ],
    )


def test_the_rule_of_an_agent_has_the_source_of_the_agent(
    tree: ShellTree, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_user_config(
        '{"permission": {"bash": "allow"},\n"agent": {"build": {"permission":\n{"bash": {"ls *": "deny"}}}}}'
    )
    _, printed = explain(capsys, "ls")
    assert [(part["rule"], part["source"]) for part in printed["parts"]] == [
        ("bash ls * deny", f"{config}:3")
    ]


def test_a_rule_that_denies_what_a_command_may_turn_out_to_be_is_shown_as_it_is_written(
    tree: ShellTree, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_user_config('{"permission": {"bash": {"*": "allow",\n"echo secret*": "deny"}}}')
    _, printed = explain(capsys, "echo $X")
    assert [
        (part["action"], part["rule"], part["source"], part["why"])
        for part in printed["parts"]
        if part["permission"] == "bash"
    ] == [
        (
            "ask",
            "bash echo secret* deny",
            f"{config}:2",
            "it may turn out to be what the rule denies",
        )
    ]


def test_a_command_that_may_run_what_a_rule_denies_is_asked_about_by_a_rule_that_weft_adds(
    tree: ShellTree, capsys: pytest.CaptureFixture[str]
) -> None:
    write_user_config('{"permission": {"bash": {"*": "allow", "rm *": "deny"}}}')
    code, printed = explain(capsys, "wrapper rm x")
    assert code == ExitCode.ASK
    assert [(part["rule"], part["source"], part["why"]) for part in printed["parts"]] == [
        ("bash * ask", "added for this command", "it may run a command that a rule does not allow")
    ]


def write_user_config(text: str) -> Path:
    config = Path(paths_from(os.environ).config) / "opencode.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(text)
    return config


def test_an_unknown_agent_is_refused_and_a_similar_one_named(
    tree: ShellTree, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["permission", "explain", "ls", "--agent", "plam"]) == ExitCode.USAGE
    assert "plan" in capsys.readouterr().err


def test_rules_of_the_persons_own_configuration_apply(
    tree: ShellTree, capsys: pytest.CaptureFixture[str]
) -> None:
    write_user_config('{"permission": {"bash": {"git push *": "deny"}}}')
    code, printed = explain(capsys, "git -C src push")
    assert (code, [part["rule"] for part in printed["parts"] if part["action"] == "deny"]) == (
        ExitCode.REFUSED,
        ["bash git push * deny"],
    )


def test_background_jobs_of_a_session_are_listed(
    tree: ShellTree, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = SessionID("ses_00000000000000000000000001")
    at = SessionTime(created=1, updated=1)
    written = SessionInfo(
        id=session, project_id=ProjectID("global"), directory=str(tree.project), title="About it", time=at
    )
    file = Path(paths_from(os.environ).storage, "session", "global", f"{session}.json")
    file.parent.mkdir(parents=True)
    file.write_bytes(encode_pretty(written))
    job = Job(id="job_1", session_id=session, command="x", description="Serve", output="/x", started=1)
    entry = write_record(paths_from(os.environ).jobs, job)
    assert run_command(["session", "jobs", session, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [to_plain(job)]
    assert run_command(["session", "jobs", session]) == 0
    assert "job_1" in capsys.readouterr().out
    remove_record(entry)
    assert run_command(["session", "jobs", session]) == 0
    assert capsys.readouterr().err == "no jobs are running\n"
