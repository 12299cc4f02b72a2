"""The whole engine in a simulation: processes are killed, the power fails, the disk is full, fails, and tears what is written.

Time, disk and threads are simulated, everything else is real, and the same seed gives the same run. What must hold is in
`given/simulated_world.py` and `given/simulated_records.py`. `make simulate` takes as many seeds as it is given, and any of them again.
"""

import pytest

from given.planted_bugs import find_bug, list_planted
from given.simulated_world import World
from mutate import Mutation

SEEDS, CHUNK = 100, 25
# A planted mistake must be found by one of this many seeds.
PLANTED_SEEDS = 300

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_holds_in_simulated_worlds(first: int) -> None:
    for seed in range(first, first + CHUNK):
        world = World(seed)
        assert world.run() == [], world.describe()


def test_the_same_seed_gives_the_same_run() -> None:
    worlds = [World(11), World(11)]
    for world in worlds:
        world.run()
    first, second = (world.records.log for world in worlds)
    assert first == second
    assert len(first) > 20


@pytest.mark.parametrize("bug", list_planted(), ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Mutation) -> None:
    assert find_bug(bug.name, PLANTED_SEEDS) is not None, f"no seed below {PLANTED_SEEDS} finds it"
