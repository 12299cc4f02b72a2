"""A run that the command records, and replays elsewhere."""

import subprocess
import sys
from pathlib import Path

WEFT = str(Path(sys.executable).with_name("weft"))
GREET = 'def main():\n    print("Hello, world!")\n\n\nif __name__ == "__main__":\n    main()\n'


def weft(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [WEFT, "run", *arguments],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def repository(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "greet.py").write_text(GREET)
    subprocess.run(["git", "init", "-q"], cwd=path, check=True)
    return path


def test_a_recorded_run_replays_in_another_directory(tmp_path: Path) -> None:
    here, there = repository(tmp_path / "here"), repository(tmp_path / "there/deeper")
    tape = str(tmp_path / "tape.jsonl")
    recorded = weft(here, "-m", "scripted/demo", "--record", tape, "let it greet a name")
    played = weft(there, "--replay", tape, "let it greet a name")

    assert (recorded.returncode, played.returncode) == (0, 0), played.stderr
    assert (played.stdout, played.stderr) == (recorded.stdout, recorded.stderr)
    assert (there / "greet.py").read_text() == (here / "greet.py").read_text() != GREET


def test_another_prompt_fails_and_shows_the_difference(tmp_path: Path) -> None:
    here, tape = repository(tmp_path / "here"), str(tmp_path / "tape.jsonl")
    weft(here, "-m", "scripted/demo", "--record", tape, "let it greet a name")
    missed = weft(here, "--replay", tape, "let it greet two")

    assert missed.returncode == 1
    assert 'recorded "let it greet a name", asked "let it greet two"' in missed.stderr
    assert weft(here, "--replay", tape, "--record", tape, "hi").returncode == 2
    assert "is not empty" in weft(here, "--record", tape, "hi").stderr
