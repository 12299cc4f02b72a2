"""Forking and removing long sessions: no message is lost, and a kill in between leaves nothing half done."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from given.engine import open_engine
from given.session_stress import CHILD, SOURCE, create_sessions
from weft.host.clock import SystemClock
from weft.store.url import open_store

TESTS = Path(__file__).parents[1]
LONG = 1000
KILLS = 40


def count(root: Path) -> Counter[str]:
    """Return the number of documents of each kind."""
    shelves = ("session", "message", "part", "todo", "session_diff")
    return Counter(shelf for shelf in shelves for path in (root / shelf).rglob("*.json") if path.is_file())


async def test_a_session_of_a_thousand_messages_is_forked_removed_and_restored_completely(
    tmp_path: Path,
) -> None:
    root = tmp_path / "storage"
    async with open_store(f"file:{root}") as store, open_engine(store=store, clock=SystemClock()) as engine:
        await create_sessions(store, LONG)
        whole = {"session": 2, "message": LONG + 1, "part": LONG + 1}
        assert count(root) == whole

        fork = await engine.api.fork_session(SOURCE)
        assert count(root) == {"session": 3, "message": 2 * LONG + 1, "part": 2 * LONG + 1}
        words = [
            [getattr(part, "text", "") for each in await engine.api.list_messages(id) for part in each.parts]
            for id in (SOURCE, fork.id)
        ]
        assert words[0] == words[1] == [f"word {number}" for number in range(LONG)]

        assert {each.id for each in await engine.api.remove_session(SOURCE)} == {SOURCE, CHILD}
        assert count(root) == {"session": 1, "message": LONG, "part": LONG}
        await engine.api.remove_session(fork.id, trash=False)
        assert count(root) == {}

        await engine.api.restore_session(SOURCE)
        assert count(root) == whole
        assert await store.damage() == []


def test_a_kill_at_any_moment_leaves_no_partial_fork_and_no_partial_removal(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "given.session_stress", str(tmp_path / "storage"), "60", str(KILLS), "400"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(ended.stdout)
    assert found.get("kills") == KILLS, found
