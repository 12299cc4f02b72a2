"""Sessions that several processes append to, and processes that are killed while they append."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weft.agent.sessions import open_store
from weft.session.append import NewToolCall, assistant_message

STORM = Path(__file__).parents[1] / "given" / "append_storm.py"
WEFT = str(Path(sys.executable).with_name("weft"))
WRITERS, TIMES = 3, 12
KILLS = 25


def run_storm(directory: Path, *given: object) -> Any:
    ended = subprocess.run(
        [sys.executable, str(STORM), *map(str, given)],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


def to_appends(stored: list[list[Any]]) -> list[str]:
    """Return the word of each append, in order. Fail if one is not whole, or two are mixed."""
    words = []
    for (asked, parts), (said, more) in zip(stored[::2], stored[1::2], strict=True):
        word = asked.removesuffix(" asked")
        assert (asked, parts, said, more) == (f"{word} asked", 1, f"{word} said", 3)
        words.append(word)
    return words


def test_concurrent_appends_of_processes_are_complete_and_in_the_order_of_each_writer(tmp_path: Path) -> None:
    found = run_storm(tmp_path, "beside", tmp_path / "history", WRITERS, TIMES)
    assert found["ends"] == [0] * WRITERS
    assert found["told"] == [list(range(TIMES))] * WRITERS
    words = to_appends(found["stored"])
    assert len(words) == WRITERS * TIMES
    for writer in range(WRITERS):
        own = [word for word in words if word.startswith(f"{writer}.")]
        assert own == [f"{writer}.{number}" for number in range(TIMES)]


@pytest.mark.slow
def test_after_every_kill_each_append_is_complete_or_absent_and_none_acknowledged_is_lost(
    tmp_path: Path,
) -> None:
    found = run_storm(tmp_path, "kill", tmp_path / "history", 20_261_117, KILLS)
    words = to_appends(found["stored"])
    told = [f"{writer}.{number}" for writer, numbers in enumerate(found["told"]) for number in numbers]
    assert len(told) > KILLS  # every writer had appended before it was killed
    assert [word for word in words if word in told] == told
    # Each writer stored at most one append that it did not report.
    assert len(words) - len(told) <= KILLS


async def test_commands_show_a_session_of_the_store_like_any_other(tmp_path: Path) -> None:
    async with open_store(tmp_path / "history", directory=tmp_path) as store:
        session = await store.session("orders", title="Orders of May")
        await session.append("Where is my parcel?")
        await session.append(
            assistant_message(NewToolCall("track", {"number": "ZX81"}, output="Hamburg"), "It is in Hamburg.")
        )

    def weft(*arguments: str) -> str:
        done = subprocess.run(
            [WEFT, *arguments, "--store", "history"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert "Orders of May" in weft("session", "list")
    shown = weft("session", "show", session.id)
    for words in ("> Where is my parcel?", "| Track", "  Hamburg", "It is in Hamburg."):
        assert words in shown
    assert session.id in weft("session", "search", "parcel")
    exported = json.loads(weft("export", session.id))
    assert [len(message["parts"]) for message in exported["messages"]] == [1, 2]
    weft("storage", "verify")  # it would exit with an error
