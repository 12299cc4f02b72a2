"""If a store cannot be created, the command says why in one sentence and exits at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WEFT = str(Path(sys.executable).with_name("weft"))
RUN = ("run", "--model", "scripted/demo", "hello")
COMMANDS = (RUN, ("session", "list"), ("session", "show", "last"), ("doctor",), ("storage", "du"))


def run_weft(tmp_path: Path, store: str, command: tuple[str, ...]) -> tuple[int, str]:
    done = subprocess.run(
        [WEFT, *command, "--store", store],
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_a_store_cannot_be_at_or_below_a_file(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "file"
    file.touch()
    hint = "\n       set --store to a directory that exists or can be created\n"

    assert run_weft(tmp_path, str(file), command) == (2, f"error: store: {file} is not a directory{hint}")
    assert run_weft(tmp_path, f"{file}/below", command) == (
        2,
        f"error: store: {file}/below cannot be used: Not a directory{hint}",
    )
    long = f"{tmp_path}/{'x' * 300}"
    assert run_weft(tmp_path, long, command) == (
        2,
        f"error: store: {long} cannot be used: File name too long{hint}",
    )
    assert run_weft(tmp_path, "file:", command) == (
        2,
        "error: store: 'file:' needs a path\n       use file:<path>\n",
    )
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("place", ["/proc/weft", "/proc/self/weft/below", "/dev/null/weft"])
def test_a_run_reports_at_once_that_its_store_cannot_be_created(tmp_path: Path, place: str) -> None:
    code, error = run_weft(tmp_path, place, RUN)
    assert code in (1, 2)
    assert error.startswith("error: ")
    assert "/".join(place.split("/")[:3]) in error


def test_a_server_does_not_start_if_its_store_cannot_be_created(tmp_path: Path) -> None:
    code, error = run_weft(tmp_path, "/proc/weft", ("serve", "--port", "0", "--auth", "none"))
    assert (code, error.startswith("error: the store cannot use /proc/weft")) == (1, True)


def test_a_password_that_cannot_be_stored_must_be_given_by_the_person(tmp_path: Path) -> None:
    done = subprocess.run(
        [WEFT, "serve", "--port", "0"],
        cwd=tmp_path, env={**os.environ, "XDG_STATE_HOME": "/proc/weft"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    sentence, hint, *rest = done.stderr.splitlines()
    assert (done.returncode, hint.strip(), rest) == (2, "set OPENCODE_SERVER_PASSWORD to one of your own", [])
    assert sentence.startswith("error: --auth: /proc/weft/opencode/weft/server-password: no password can be")
