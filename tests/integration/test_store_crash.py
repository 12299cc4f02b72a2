"""Stores when their writers are killed, and with many concurrent writers. WEFT_SOAK_KILLS says how many are killed."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from given.postgres import make_url
from given.store_stress import batch
from weft.host.now import now
from weft.maintenance.verify import verify_store
from weft.model.ids import SessionID
from weft.store.maintenance import open_maintenance
from weft.store.url import open_store

SCRIPT = Path(__file__).parents[1] / "given" / "store_stress.py"
SEED = 20_260_814
KILLS = int(os.environ.get("WEFT_SOAK_KILLS", "60"))
WRITERS, TIMES = 6, 15
PROCESSES, COMMITS = 16, 100


def run_stress(*given: object) -> Any:
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, given)],
        capture_output=True,
        text=True,
        timeout=200 + 4 * KILLS,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return json.loads(ended.stdout)


@pytest.fixture(
    params=["file:{0}/storage", "sqlite:{0}/sessions.db", "postgres"], ids=["file", "sqlite", "postgres"]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return make_url() if request.param == "postgres" else request.param.format(tmp_path)


@pytest.mark.timeout(240 + 4 * KILLS)
def test_after_every_kill_each_batch_is_complete_or_absent_and_none_acknowledged_is_lost(
    url: str, tmp_path: Path
) -> None:
    found = run_stress("kill", url, tmp_path, SEED, KILLS)
    assert found.get("kills") == KILLS, found
    assert found["before"] + found["after"] == KILLS
    # The chains are those of a store whose writers were not killed. Some batches contain parts of no message, which verify misses.
    unharmed = (
        make_url() if url.startswith("postgres") else url.replace(str(tmp_path), f"{tmp_path}/unharmed")
    )
    asyncio.run(write_batches(unharmed, found["batches"]))
    assert judge(url) == judge(unharmed)


async def write_batches(url: str, count: int) -> None:
    async with open_store(url) as store:
        for number in range(count):
            await store.apply(*batch(SEED, number))


def judge(url: str) -> dict[SessionID, tuple[int, list[tuple[str, str]]]]:
    """Return the length of each chain, and what verify finds."""
    proofs = verify_store(open_maintenance(url), now=now()).proofs
    return {
        proof.session: (proof.entries, [(finding.kind, finding.where) for finding in proof.findings])
        for proof in proofs
    }


def test_concurrent_writers_lose_nothing_and_readers_never_see_half_a_batch(url: str, tmp_path: Path) -> None:
    found = run_stress("beside", url, tmp_path, WRITERS, TIMES)
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


def test_sixteen_processes_create_a_database_and_commit_a_hundred_times_each_without_an_error(
    tmp_path: Path,
) -> None:
    found = run_stress("storm", f"sqlite:{tmp_path}/sessions.db", PROCESSES, COMMITS)
    sys.stdout.write(f"the longest wait: {found.pop('longest'):.3f} s of {found.pop('seconds'):.1f} s\n")
    assert found == {"errors": [], "messages": PROCESSES * COMMITS}
