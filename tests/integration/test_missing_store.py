"""A command that only reads says so if there is no store at the path that was named."""

import os
from pathlib import Path

import pytest

from given.postgres import make_url
from weft.cli.main import run_command
from weft.store.url import store_exists

COMMANDS = [
    "session list",
    "session show last",
    "session tree",
    "session search words",
    "session trash",
    "stats",
    "export ses_1",
    "permission list",
    "permission grants",
    "permission log",
    "storage du",
    "storage verify",
    "storage gc --dry-run",
    "storage prune --older-than 1d --dry-run",
    "project list",
    "project merge a b",
    "session adopt --all",
    "cluster status",
    "cluster drain node",
    "share list",
    "unshare ses_1",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistyped_path_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert run_command([*command.split(), "--store", f"{tmp_path}/histroy"]) == 2
    assert f"there is no store at {tmp_path}/histroy" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", [*COMMANDS, "storage gc", "storage prune --older-than 1d --yes"])
def test_a_mistyped_schema_is_an_error_and_is_not_created(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    url = make_url()
    assert run_command([*command.split(), "--store", url]) == 1
    reported = capsys.readouterr().err
    assert "there is no store at postgres://" in reported
    assert "weft storage init creates it" in reported
    assert not store_exists(url)


def test_a_mistyped_path_in_the_environment_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEFT_STORE", f"{tmp_path}/histroy")
    assert run_command(["session", "list"]) == 2
    assert "there is no store at" in capsys.readouterr().err


def test_the_default_store_is_empty_until_something_is_stored(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["session", "list"]) == 0
    assert capsys.readouterr().out == ""


def test_a_kind_of_store_without_its_colon_is_recognised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["session", "list", "--store", "memory"]) == 2
    assert "did you mean memory: ?" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
