"""A recorded run that is replayed elsewhere: by the command, and by a user's own test."""

import os
import re
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


def test_a_recorded_run_is_the_same_in_another_directory(tmp_path: Path) -> None:
    here, there = repository(tmp_path / "here"), repository(tmp_path / "there/deeper")
    tape = str(tmp_path / "tape.jsonl")
    recorded = weft(here, "-m", "scripted/demo", "--record", tape, "let it greet a name")
    played = weft(there, "--replay", tape, "let it greet a name")

    assert (recorded.returncode, played.returncode) == (0, 0), played.stderr
    assert (played.stdout, played.stderr) == (recorded.stdout, recorded.stderr)
    assert (there / "greet.py").read_text() == (here / "greet.py").read_text() != GREET


def test_another_prompt_fails_and_shows_where_it_differs(tmp_path: Path) -> None:
    here, tape = repository(tmp_path / "here"), str(tmp_path / "tape.jsonl")
    weft(here, "-m", "scripted/demo", "--record", tape, "let it greet a name")
    missed = weft(here, "--replay", tape, "let it greet two")

    assert missed.returncode == 1
    assert 'recorded "let it greet a name", asked "let it greet two"' in missed.stderr
    assert weft(here, "--replay", tape, "--record", tape, "hi").returncode == 2
    assert "is not empty" in weft(here, "--record", tape, "hi").stderr


TEST = """
import asyncio
import weft
from weft.testing.replay import weft_tape

def test_it_works(weft_tape, tmp_path):
    async def go():
        async with weft.open(str(tmp_path), store="memory:", tape=weft_tape) as api:
            session = await api.create_session(weft.SessionInput(title="Mine"))
            await api.prompt(session.id, weft.prompt("go"))

    asyncio.run(go())
"""


def test_the_fixture_records_when_told_and_plays_ever_after(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TEST)
    (tmp_path / "home").mkdir()
    (tmp_path / "home/opencode.json").write_text('{"model": "scripted/demo"}')

    # Nothing of how these tests here are run, and none of their plugins.
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    alone["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

    def pytest_in(**env: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
        ran = subprocess.run(
            command, cwd=tmp_path, env={**alone, **env}, capture_output=True, text=True, check=False
        )
        return ran.stdout

    assert "cannot read" in pytest_in()
    config = str(tmp_path / "home/opencode.json")
    assert "1 passed" in pytest_in(WEFT_RECORD="1", OPENCODE_CONFIG=config)
    (tape,) = (tmp_path / "tapes").iterdir()
    assert tape.name == "test_mine.test_it_works.jsonl"
    assert "1 passed" in pytest_in()
    changed = TEST.replace('"go"', '"stay"')
    (tmp_path / "test_mine.py").write_text(changed)
    assert 'recorded "go", asked "stay"' in pytest_in()
    (tmp_path / "test_mine.py").write_text(TEST)
    tape.write_text(tape.read_text() + tape.read_text().splitlines()[0] + "\n")
    assert re.search("1 recorded exchanges? of .* not requested", pytest_in())
