"""`weft completion` and `weft help`."""

import subprocess
from pathlib import Path

import pytest

from weft.cli.main import run_command
from weft.local.open import OpenOptions, open_directory
from weft.model.input import SessionInput


def complete(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert run_command(["completion", "words", "--", *words]) == 0
    return [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["sto"], ["storage"]),
        (["session", "sh"], ["show"]),
        (["run", "--max"], ["--max-cost", "--max-tokens", "--max-steps", "--max-seconds"]),
        (["run", "--agent", "b"], ["build"]),
        (["completion", "z"], ["zsh"]),
        (["help", "exit"], ["exit-codes"]),
        (["nonsense", "x"], []),
        (["run", "words of a prompt", ""], []),
    ],
)
def test_what_can_follow_is_offered(
    words: list[str],
    names: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert complete(capsys, *words) == names


def test_models_that_have_a_key_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert complete(capsys, "run", "-m", "anthropic/") == []
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-x")
    offered = complete(capsys, "run", "-m", "anthropic/")
    assert offered
    assert all(name.startswith("anthropic/") for name in offered)


async def test_sessions_are_offered_by_their_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_directory(OpenOptions(directory=str(tmp_path))) as api:
        session = await api.create_session(SessionInput(title="Weave"))
    assert complete(capsys, "session", "show", "") == ["last", session.id]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell_calls_back(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", shell]) == 0
    assert "weft completion words -- " in capsys.readouterr().out


def test_bash_reads_its_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    (tmp_path / "weft").write_text('#!/bin/sh\nprintf "storage\\tabout\\nshare\\tabout\\n"\n')
    (tmp_path / "weft").chmod(0o755)
    test = f'{script}\nCOMP_WORDS=(weft s); COMP_CWORD=1; _weft; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "-c", test],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["storage", "share"]


def test_help_explains_commands_and_topics(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["help", "keys"]) == 0
    assert "Ctrl-D leaves" in capsys.readouterr().out
    assert run_command(["help", "session", "list"]) == 0
    assert "usage: weft session list" in capsys.readouterr().out
    assert run_command(["help"]) == 0
    assert "usage: weft" in capsys.readouterr().out
    assert run_command(["help", "nonsense"]) == 2
    assert "there is none named 'nonsense'" in capsys.readouterr().err
