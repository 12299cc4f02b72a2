"""`weft completion` and `weft help`."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from given.http_server import make_project, serve_project
from weft.cli.completion import MAX_NAMES, find_completions
from weft.cli.main import run_command
from weft.local.open import OpenOptions, open_directory
from weft.model.input import SessionInput
from weft.model.session import SessionInfo


def complete(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert run_command(["completion", "words", "--", *words]) == 0
    return [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["sto"], ["storage"]),
        (["session", "sh"], ["show"]),
        (["--v"], ["--version"]),
        (["session", "--h"], ["--help"]),
        (["auth", "ls", "--format", ""], ["table", "json"]),
        (["run", "--max"], ["--max-cost", "--max-tokens", "--max-steps", "--max-seconds"]),
        (["run", "--agent", "b"], ["build"]),
        (["run", "--agent=b"], ["--agent=build"]),
        (["run", "--agent=plan", "--agent", "b"], ["build"]),
        (["agent", "show", "pl"], ["plan"]),
        (["session", "list", "--format", ""], ["table", "json"]),
        (["session", "list", "--format=j"], ["--format=json"]),
        (["session", "list", ""], []),
        (["session", "show", "last", ""], []),
        (["session", "fork", "--at", ""], []),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["help", "exit"], ["exit-codes"]),
        (["help", "sess"], ["session", "sessions"]),
        (["help", "session", "sh"], ["show"]),
        (["help", "run", ""], []),
        (["nonsense", "x"], []),
        (["run", "words of a prompt", ""], []),
    ],
)
def test_the_words_that_may_follow_are_offered(
    words: list[str],
    names: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert complete(capsys, *words) == names


def test_what_follows_two_dashes_is_no_option() -> None:
    assert find_completions(["run", "--"], "--max") == []


def test_models_that_have_a_key_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert complete(capsys, "run", "-m", "anthropic/") == []
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    offered = complete(capsys, "run", "-m", "anthropic/")
    assert offered
    assert all(name.startswith("anthropic/") for name in offered)


def configure_models(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    models = {name: {"name": f"The {name}"} for name in names}
    options = {"baseURL": "http://127.0.0.1:9/v1", "apiKey": "sk-x"}
    mill = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}
    monkeypatch.setenv(
        "OPENCODE_CONFIG_CONTENT", json.dumps({"enabled_providers": ["mill"], "provider": {"mill": mill}})
    )


async def make_session(directory: Path, title: str = "Weave") -> SessionInfo:
    async with open_directory(OpenOptions(directory=str(directory))) as api:
        return await api.create_session(SessionInput(title=title))


@pytest.mark.parametrize(
    "command", ["session show", "compare", "replay", "export", "undo", "run -s", "storage verify"]
)
async def test_sessions_are_offered_by_their_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    session = await make_session(tmp_path)
    assert complete(capsys, *command.split(), "") == ["last", session.id]


async def test_the_sessions_of_the_directory_that_was_typed_are_offered_the_last_used_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    older, newer = await make_session(elsewhere), await make_session(elsewhere)
    assert complete(capsys, "session", "show", "--dir", str(elsewhere), "ses") == [newer.id, older.id]


async def test_of_many_sessions_the_newest_are_offered_and_an_old_one_by_the_start_of_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_directory(OpenOptions(directory=str(tmp_path))) as api:
        sessions = [await api.create_session(SessionInput()) for _ in range(MAX_NAMES + 1)]
        child = await api.create_session(SessionInput(parent_id=sessions[0].id))
    newest_first = [each.id for each in reversed(sessions)]
    assert complete(capsys, "session", "show", "") == ["last", *newest_first[:MAX_NAMES]]
    assert complete(capsys, "session", "show", sessions[0].id[:-1]) == [sessions[0].id]
    assert complete(capsys, "session", "show", child.id[:-1]) == [child.id]


async def test_restoring_offers_what_is_in_the_trash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    kept, removed = await make_session(tmp_path), await make_session(tmp_path)
    await asyncio.to_thread(run_command, ["session", "rm", removed.id, "--yes"])
    capsys.readouterr()
    assert complete(capsys, "session", "restore", "ses") == [removed.id]
    assert complete(capsys, "session", "show", "ses") == [kept.id]


async def test_a_description_is_one_line_without_escape_sequences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    session = await make_session(tmp_path, "Weave:\na \x1b[31mred\tcloth")
    assert run_command(["completion", "words", "--", "session", "show", "ses"]) == 0
    assert capsys.readouterr().out == f"{session.id}\tWeave: a \\x1b[31mred cloth\n"


def test_a_server_is_asked_for_its_sessions_and_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(make_project(tmp_path / "here"))
    with serve_project(tmp_path / "there") as server:
        session = server.post("/session", {"title": "Far away"})
        assert complete(capsys, "attach", server.url, "-s", "") == ["last", session["id"]]
        assert complete(capsys, "run", "--attach", server.url, "-s", "ses") == [session["id"]]
        assert complete(capsys, "attach", server.url, "--agent", "pl") == ["plan"]
    assert complete(capsys, "attach", server.url, "-s", "") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_script_for_each_shell_calls_weft_back(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", shell]) == 0
    assert "weft completion words -- " in capsys.readouterr().out


BREAKS = " \t\n\"'><=;|&(:"  # those of bash, unless they were changed


@pytest.mark.parametrize(
    ("line", "breaks", "replies"),
    [
        ("weft sto", BREAKS, ["storage"]),
        ("weft run -m mill/lo", BREAKS, ["mill/loom:8b", "mill/lo\\ o\\'m"]),
        ("weft run -m mill/loom:", BREAKS, ["8b"]),
        ("weft run -m mill/loom:", " \t\n", ["mill/loom:8b"]),
        ("weft run -m mill/loom\\:", BREAKS, ["mill/loom:8b"]),
        ("weft run --model=mill/loom", BREAKS, ["mill/loom:8b"]),
        ('weft run -m "mill/loom:', BREAKS, ["mill/loom:8b"]),
        ('weft run -m "mill/lo o', BREAKS, ["mill/lo o'm"]),
        ("weft run -m 'mill/lo o", BREAKS, ["mill/lo o'\\''m"]),
        ("weft run -m mill/lo\\ ", BREAKS, ["mill/lo\\ o\\'m"]),
        ("weft run \"it's\" 'a \"b' -m mill/loo", BREAKS, ["mill/loom:8b"]),
        ('weft run "mill/loo', BREAKS, []),
        ("weft", BREAKS, []),
    ],
)
def test_bash_gets_what_replaces_the_end_of_its_line(
    line: str,
    breaks: str,
    replies: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    configure_models(monkeypatch, "loom:8b", "lo o'm")
    assert run_command(["completion", "bash-line", "--", line, breaks]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(replies)


def test_bash_accepts_its_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    (tmp_path / "weft").write_text('#!/bin/sh\nprintf "%s\\n" "$4"\nprintf "a * b\\n"\n')
    (tmp_path / "weft").chmod(0o755)
    test = f'{script}\nCOMP_LINE="weft sx"; COMP_POINT=6; _weft; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", test],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["weft s", "a * b"]


def test_help_explains_commands_and_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["help", "keys"]) == 0
    assert "Ctrl-D leaves" in capsys.readouterr().out
    assert run_command(["help", "session", "list"]) == 0
    assert "usage: weft session list" in capsys.readouterr().out
    assert run_command(["help"]) == 0
    assert "usage: weft" in capsys.readouterr().out
    assert run_command(["help", "nonsense"]) == 2
    assert "there is no command or topic 'nonsense'" in capsys.readouterr().err
