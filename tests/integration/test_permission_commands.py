"""`weft permission`, from the command line: requests, grants and the audit log."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from given.gate_harness import NOW, OTHER, SESSION, make_caller, make_gate_harness, run_alongside
from given.undo_harness import call_bash, open_undo_harness
from weft.cli.main import run_command
from weft.errors import CorrectedError, UnansweredError
from weft.host.paths import paths_from
from weft.local.permissions import permission_project, redact_text
from weft.local.reader import SessionReader
from weft.model.event import SessionCreated
from weft.model.ids import ProjectID, QuestionID, SessionID
from weft.model.permission import QuestionRequest
from weft.model.wire import to_plain
from weft.permission.audit import AuditChain, AuditEntry
from weft.permission.requests import OpenRequest
from weft.permission.storage import REQUESTS_KEY, log_key, read_items
from weft.store.files.layout import Layout
from weft.store.files.store import FileStore
from weft.testing.store_samples import session as make_session
from weft.tui.dialog import render_permission
from weft.tui.text import to_plain_text


def get_project() -> ProjectID:
    """Return the project id of this directory."""
    return permission_project(SessionReader(".", os.environ).place())


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USER", "ada")
    monkeypatch.setenv("LOGNAME", "ada")
    return paths_from(os.environ).storage


def log_path(root: str) -> Path:
    """Return the file of this project's audit log."""
    return Path(Layout(root).log(log_key(get_project())))


def make_refused_request(
    root: str, *patterns: str, session: SessionID = SESSION, project: ProjectID | None = None, why: str = ""
) -> str:
    """Return the id of a permission request that a run without a user could not get answered."""

    async def ask() -> str:
        harness = make_gate_harness(root, project=project or get_project(), can_ask=False, seed=str(patterns))
        request = harness.request(
            *patterns, session_id=session, always=("git *",), metadata={"why": [why]} if why else {}
        )
        with pytest.raises(UnansweredError) as error:
            await harness.gate.let_pass(request, make_caller(root=session))
        await harness.storage.audit.flush()
        return error.value.request

    return asyncio.run(ask())


def is_allowed(
    root: str, *patterns: str, session: SessionID = SESSION, project: ProjectID | None = None
) -> bool:
    async def ask() -> bool:
        harness = make_gate_harness(root, project=project or get_project(), can_ask=False)
        try:
            await harness.gate.let_pass(
                harness.request(*patterns, session_id=session), make_caller(root=session)
            )
        except UnansweredError:
            return False
        finally:
            await harness.storage.audit.flush()
        return True

    return asyncio.run(ask())


def print_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert run_command(["permission", *arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_open_requests_are_listed_with_their_patterns(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert print_json(capsys, "list") == []
    id = make_refused_request(root, "git push")
    [row] = print_json(capsys, "list")
    assert (row["id"], row["sessionID"], row["permission"], row["patterns"], row["state"]) == (
        id,
        SESSION,
        "bash",
        ["git push"],
        "over",
    )
    run_command(["permission", "list"])
    shown = capsys.readouterr().out
    assert "bash: git push" in shown
    assert "a rule asks for it" in shown


def test_open_requests_are_listed_with_their_reasons(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    make_refused_request(root, "rm x", why="it may change files, and edit is denied")
    run_command(["permission", "list"])
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["id", "run", "agent", "wants", "why", "asked"]
    assert "it may change files, and edit is denied" in row


@pytest.mark.parametrize(
    ("command", "rules", "reason"),
    [
        ("make", {"edit": "deny"}, "it may change files, and edit is denied"),
        (
            "wrapper rm x",
            {"bash": {"*": "allow", "rm *": "deny"}},
            "it may run a command that a rule does not allow",
        ),
    ],
)
def test_a_question_that_no_rule_asks_says_everywhere_what_explain_says(
    root: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    rules: dict[str, Any],
    reason: str,
) -> None:
    config: dict[str, Any] = {
        "permission": {"*": "allow", **rules},
        "experimental": {"weft": {"asking": {"unanswered": "skip"}}},
    }

    async def call() -> None:
        async with open_undo_harness(tmp_path, config=config) as harness:
            await harness.run_step(call_bash(command))

    asyncio.run(call())
    capsys.readouterr()
    assert run_command(["permission", "list"]) == 0
    [_, row] = capsys.readouterr().out.splitlines()
    assert f"  {reason}  " in row
    [asked] = read_items(SessionReader(".", os.environ).store.find_value(REQUESTS_KEY), OpenRequest)
    assert asked.permission is not None
    shown = to_plain_text(render_permission(asked.permission, 200, agent="build"))
    assert f"    asked because: {reason}\n" in shown
    assert "a rule asks for it" not in shown
    assert run_command(["permission", "log"]) == 0
    log = capsys.readouterr().out
    assert f"bash: {command}  added for this command: {reason}\n" in log
    assert "rule bash" not in log
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps(config))
    assert run_command(["permission", "explain", command]) == 7
    assert f"  added for this command  {reason}\n" in capsys.readouterr().out


def test_an_approval_is_used_for_the_next_equal_request(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    id = make_refused_request(root, "git push")
    assert run_command(["permission", "reply", id[:20], "once"]) == 0
    assert f"weft run -s {SESSION}" in capsys.readouterr().err
    assert print_json(capsys, "list") == []
    assert is_allowed(root, "git push")
    assert not is_allowed(root, "git push")


def test_a_rejection_can_have_a_message(root: str) -> None:
    make_refused_request(root, "git push")
    assert run_command(["permission", "reply", "last", "reject", "--message", "not on a Friday"]) == 0

    async def ask_again() -> None:
        harness = make_gate_harness(root, project=get_project(), can_ask=False)
        with pytest.raises(CorrectedError, match="not on a Friday"):
            await harness.gate.let_pass(harness.request("git push"), make_caller())

    asyncio.run(ask_again())


def test_an_always_answer_is_a_grant_that_is_listed_used_and_revoked(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    id = make_refused_request(root, "git push")
    assert run_command(["permission", "reply", id, "always", "--scope", "project", "--expires", "7d"]) == 0
    [grant] = print_json(capsys, "grants")
    assert (grant["scope"], grant["patterns"], grant["agent"], grant["by"]) == (
        "project",
        ["git *"],
        "build",
        "ada",
    )
    assert grant["expires"] - grant["created"] <= 7 * 86_400_000
    assert is_allowed(root, "git fetch", session=OTHER)
    run_command(["permission", "grants"])
    assert "bash: git *" in capsys.readouterr().out

    assert run_command(["permission", "revoke", grant["id"]]) == 0
    assert print_json(capsys, "grants") == []
    assert not is_allowed(root, "git fetch", session=OTHER)


def test_last_means_the_last_request_of_this_project(root: str) -> None:
    other = ProjectID("0123456789abcdef0123456789abcdef01234567")
    id = make_refused_request(root, "git push", project=other)
    assert run_command(["permission", "reply", "last", "always", "--scope", "project"]) == 2
    assert run_command(["permission", "reply", id, "always", "--scope", "project"]) == 0
    assert is_allowed(root, "git push", project=other)
    assert run_command(["permission", "revoke", "last"]) == 2
    assert is_allowed(root, "git push", project=other)


def test_a_grant_in_a_directory_without_a_repository_is_not_valid_in_another(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_refused_request(root, "git push")
    assert run_command(["permission", "reply", "last", "always", "--scope", "project"]) == 0
    assert is_allowed(root, "git push", session=OTHER)
    (tmp_path / "another").mkdir()
    monkeypatch.chdir(tmp_path / "another")
    assert print_json(capsys, "grants") == []
    assert not is_allowed(root, "git push", session=OTHER)


def test_invalid_arguments_are_refused(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["permission", "reply", "last", "once"]) == 2
    assert run_command(["permission", "revoke", "gra_x"]) == 2
    first, second = make_refused_request(root, "a"), make_refused_request(root, "b")
    assert run_command(["permission", "reply", "per_", "once"]) == 2
    assert "matches 2 of them" in capsys.readouterr().err
    assert run_command(["permission", "reply", first, "once", "--scope", "user"]) == 2
    assert run_command(["permission", "reply", second, "once", "--message", "x"]) == 2
    assert [row["id"] for row in print_json(capsys, "list")] == [first, second]


def test_every_decision_is_logged_and_the_log_can_be_verified(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    id = make_refused_request(root, "git push")
    run_command(["permission", "reply", id, "always"])
    is_allowed(root, "git push")
    capsys.readouterr()
    assert run_command(["permission", "log", "--format", "json"]) == 0
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [entry["what"] for entry in entries] == ["asked", "unanswered", "granted", "answered", "allowed"]
    assert [entry.get("by") for entry in entries] == [None, None, "ada", "ada", None]
    assert entries[-1]["grants"] == entries[2]["grants"]

    assert run_command(["permission", "log"]) == 0
    reasons = [
        line.partition("bash: git ")[2].split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[1:]
    ]
    assert reasons[:2] == [["push", "rule * * ask"], ["push", "nobody answered (asking.unanswered: deny)"]]

    assert run_command(["permission", "log", "-n", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2

    assert run_command(["permission", "log", "--verify"]) == 0
    assert "5 records, and the chain holds" in capsys.readouterr().out
    assert not list_permission_findings(capsys)
    path = log_path(root)
    path.write_bytes(path.read_bytes().replace(b"git push", b"git pull", 1))
    assert run_command(["permission", "log", "--verify"]) == 1
    assert "line 2: record 2 does not follow" in capsys.readouterr().err
    assert run_command(["permission", "log"]) == 0
    assert "line 2: record 2 does not follow" in capsys.readouterr().err
    assert [item["where"] for item in list_permission_findings(capsys)] == [f"{get_project()}:2"]


def test_the_log_takes_a_session_as_other_commands_do(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def store_sessions() -> None:
        for id, at in ((SESSION, NOW), (OTHER, NOW + 1)):
            made = make_session(id, project="global", created=at)
            await FileStore(root).apply(SessionCreated(info=replace(made, directory=os.getcwd())))

    def list_patterns(session: str) -> list[list[str]]:
        capsys.readouterr()
        assert run_command(["permission", "log", "--session", session, "--format", "json"]) == 0
        entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [entry["patterns"] for entry in entries if entry["what"] == "asked"]

    asyncio.run(store_sessions())
    make_refused_request(root, "git push", session=SESSION)
    make_refused_request(root, "git fetch", session=OTHER)
    assert list_patterns("last") == list_patterns(OTHER) == list_patterns(OTHER[4:]) == [["git fetch"]]
    assert list_patterns(SESSION) == [["git push"]]
    assert run_command(["permission", "log", "--session", SESSION[:-1]]) == 2
    assert "matches 2 of them" in capsys.readouterr().err
    assert run_command(["session", "rm", SESSION, "--yes"]) == 0
    assert list_patterns(SESSION) == list_patterns(SESSION[4:]) == [["git push"]]


def test_a_session_without_decisions_has_an_empty_log(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(FileStore(root).apply(SessionCreated(info=make_session(SESSION))))
    assert run_command(["permission", "log", "--session", SESSION]) == 0
    assert capsys.readouterr() == ("", f"no decision is recorded in the session {SESSION}\n")


@pytest.mark.parametrize(
    ("decider", "shown"),
    [
        ("bash git * allow", "rule bash git * allow"),
        ("answer to per_1", "by the answer to per_1"),
        ("a plugin's permission.ask", "by a plugin's permission.ask hook"),
        ("unanswered skip", "nobody answered (asking.unanswered: skip)"),
    ],
)
def test_the_log_names_a_rule_only_if_a_rule_decided(
    root: str, capsys: pytest.CaptureFixture[str], decider: str, shown: str
) -> None:
    entry = AuditEntry(
        time=1, what="allowed", agent="build", permission="bash", patterns=("ls",), rule=decider
    )
    asyncio.run(AuditChain(FileStore(root), get_project()).append([entry]))
    assert run_command(["permission", "log"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(f"bash: ls    {shown}")


def list_permission_findings(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    """Return what doctor reports about permissions."""
    run_command(["doctor", "--format", "json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    return [item for found in findings if found["area"] == "permissions" for item in found["items"]]


def test_the_log_contains_no_key(root: str) -> None:
    key = "sk-ant-" + "a1B2" * 12
    make_refused_request(root, f"curl -H 'x-api-key: {key}' https://api.example.test")
    raw = log_path(root).read_text()
    assert key not in raw
    assert "[redacted:" in raw
    assert redact_text("ls -la") == "ls -la"


def test_an_answer_reaches_a_run_that_waits_in_another_process(root: str) -> None:
    async def run() -> None:
        harness = make_gate_harness(root, project=get_project())
        request = harness.request("git push")
        async with run_alongside(harness.gate.let_pass(request, make_caller())) as [passing]:
            await harness.wait_for_requests()
            assert await asyncio.to_thread(run_command, ["permission", "reply", request.id, "once"]) == 0
            await harness.clock.somebody_sleeps(1)
            harness.clock.turn(1000)
            await passing

    asyncio.run(run())


def test_a_question_is_answered_in_its_session(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    question = QuestionRequest(id=QuestionID("que_1"), session_id=SESSION, questions=())
    asked = OpenRequest(question=question, project_id=get_project(), root_id=SESSION, time=1)
    asyncio.run(FileStore(root).put_value(REQUESTS_KEY, [to_plain(asked)]))
    assert [row["id"] for row in print_json(capsys, "list")] == ["que_1"]
    assert run_command(["permission", "reply", "que_1", "once"]) == 2
    assert f"weft run -s {SESSION}" in capsys.readouterr().err
