"""Chaos tests: whatever a model and its API do, every run ends, nothing stays open, the next request is valid, and sums add up.

Time is simulated, and the same seed gives the same run. The failures are in `given/chaos.py`, the invariants in
`given/chaos_world.py`.
"""

import asyncio
import os

import pytest

from given.chaos import BEHAVIOURS
from given.chaos_world import RequestCheckers, World
from given.provider_wires import WIRES, RequestChecker, capture_request
from given.simulated_time import simulate
from weft.testing.fake_model_api import ReceivedRequest

# A thousand turns; a soak takes as many seeds as it is given (`WEFT_SOAK_SEEDS=1000`).
SEEDS = int(os.environ.get("WEFT_SOAK_SEEDS", "10"))
TURNS = 100


async def capture_requests() -> dict[str, ReceivedRequest]:
    return {name: await capture_request(wire) for name, wire in WIRES.items()}


@pytest.fixture(scope="module")
def captured_requests() -> dict[str, ReceivedRequest]:
    return asyncio.run(capture_requests())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_run_ends_with_a_valid_history_whatever_the_model_does(
    seed: int, captured_requests: dict[str, ReceivedRequest]
) -> None:
    readers = RequestCheckers(
        {name: RequestChecker(wire, wire.dialect(), captured_requests[name]) for name, wire in WIRES.items()}
    )
    world = World(seed, readers)
    simulate(world.run(TURNS))
    assert world.wrong == []
    assert readers.refused == []
    # Without any failures the test would prove nothing.
    assert world.turns >= TURNS
    assert len(world.chaos.behaviours) > len(BEHAVIOURS) / 2
