"""The file store when its writers are killed, and with many concurrent writers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[1] / "given" / "store_stress.py"
KILLS = 60
WRITERS, TIMES = 6, 15


def run_stress(*given: object) -> Any:
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, given)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


def test_after_every_kill_each_batch_is_whole_or_not_there_and_none_acknowledged_is_lost(
    tmp_path: Path,
) -> None:
    found = run_stress("kill", tmp_path / "storage", 20_260_814, KILLS)
    assert found.get("kills") == KILLS, found
    assert found["before"] + found["after"] == KILLS


def test_writers_side_by_side_lose_nothing_and_readers_never_see_half_a_batch(tmp_path: Path) -> None:
    found = run_stress("beside", tmp_path / "storage", WRITERS, TIMES)
    unharmed = {"halves": 0, "fewer": 0, "read_something": True}
    assert found == {
        "wrote": [TIMES] * WRITERS,
        "read": [unharmed, unharmed],
        "found": {
            "shared": [WRITERS * TIMES, WRITERS * TIMES],
            "own": [[TIMES, TIMES]] * WRITERS,
            "counts": [TIMES - 1] * WRITERS,
            "damage": [],
        },
    }
