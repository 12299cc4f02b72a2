"""A witness notes the death of a process, and nothing else."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weft.host.files import is_locked
from weft.host.witness import DeathWitness

# It says when its witness is there, and waits to be killed.
DOOMED = """
import os, time
from weft.host.witness import DeathWitness
here = os.getcwd()
witness = DeathWitness(f"{here}/witness", f"{here}/listed", ("ls", "here"), directory=here, environment=os.environ)
print("ready", flush=True)
time.sleep(600)
"""


def start_witness(where: Path) -> DeathWitness:
    return DeathWitness(
        str(where / "witness"),
        str(where / "listed"),
        ("ls", "here"),
        directory=str(where),
        environment=os.environ,
    )


def wait_for(witness: Path) -> None:
    while is_locked(str(witness)):
        os.sched_yield()


@pytest.fixture
def where(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a.txt").touch()
    return tmp_path


def test_a_witness_notes_when_a_process_is_killed_and_then_runs_its_command(where: Path) -> None:
    witness = where / "witness"
    with subprocess.Popen([sys.executable, "-c", DOOMED], cwd=where, stdout=subprocess.PIPE) as doomed:
        assert doomed.stdout is not None
        doomed.stdout.readline()
        assert is_locked(str(witness))
        before = witness.stat().st_ctime_ns
        doomed.send_signal(signal.SIGKILL)
    wait_for(witness)

    assert witness.stat().st_ctime_ns > before
    assert (where / "listed").read_text() == "a.txt\n"


def test_a_witness_that_is_dismissed_is_gone_and_notes_nothing(where: Path) -> None:
    witness = start_witness(where)
    before = (where / "witness").stat()
    witness.dismiss()
    assert not is_locked(str(where / "witness"))
    witness.close()

    assert (where / "witness").stat() == before
    assert not (where / "listed").exists()


def test_a_process_shows_that_it_lives(where: Path) -> None:
    witness = start_witness(where)
    os.utime(where / "witness", (0, 0))
    witness.show_life()
    assert (where / "witness").stat().st_mtime > 0
    witness.dismiss()
    witness.close()


def test_a_command_that_fails_leaves_no_output(where: Path) -> None:
    (where / "here" / "a.txt").unlink()
    (where / "here").rmdir()
    start_witness(where).close()
    wait_for(where / "witness")
    assert not (where / "listed").exists()
