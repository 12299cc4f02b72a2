"""Run the whole engine in a simulation, world by world: kills, power failures, a disk that fails; and see whether its promises hold.

    python tools/simulate.py [--seeds 10000] [--first 0] [--jobs 2]
    python tools/simulate.py --seed 4711
    python tools/simulate.py --bugs [--seeds 300] [--name "..."]

`--seed` runs one world again, and shows all that happened in it. `--bugs` plants the mistakes of `tests/mutations/engine.toml`, one at a
time, and says which seed finds each. Exits with 1 if a promise is broken, or if a planted mistake is not found.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from given.planted_bugs import find_bug, list_planted
from given.simulated_world import World

CHUNK = 50
SHOWN_LINES = 60


def run_chunk(first: int, last: int) -> list[tuple[int, str]]:
    """Return the seeds whose world breaks a promise, each with what happened last."""
    found = []
    for seed in range(first, last):
        world = World(seed)
        if world.run():
            found.append((seed, world.describe(SHOWN_LINES)))
    return found


def run_seeds(first: int, count: int, jobs: int) -> int:
    last, began, bad = first + count, time.monotonic(), 0
    starts = range(first, last, CHUNK)
    with ProcessPoolExecutor(jobs) as pool:
        chunks = pool.map(run_chunk, starts, (min(start + CHUNK, last) for start in starts))
        for number, found in enumerate(chunks, 1):
            for _, told in found:
                sys.stdout.write(f"{told}\n\n")
            bad += len(found)
            if number % 20 == 0 or found:
                sys.stdout.write(f"{min(number * CHUNK, count)} seeds, {bad} of them wrong\n")
                sys.stdout.flush()
    seconds = time.monotonic() - began
    sys.stdout.write(f"{count} seeds, {bad} of them wrong, {count / seconds * 60:.0f} a minute\n")
    return 1 if bad else 0


def run_one(seed: int) -> int:
    world = World(seed)
    wrong = world.run()
    sys.stdout.write(f"{world.describe(len(world.records.log))}\n")
    return 1 if wrong else 0


def run_bugs(most: int, name: str, jobs: int) -> int:
    names = [bug.name for bug in list_planted() if name in bug.name]
    with ProcessPoolExecutor(jobs) as pool:
        unfound = list(_tell_found(zip(names, pool.map(partial(find_bug, most=most), names), strict=True)))
    sys.stdout.write(f"{len(names) - len(unfound)} of {len(names)} are found\n")
    return 1 if unfound else 0


def _tell_found(found: Iterator[tuple[str, tuple[int, str] | None]]) -> Iterator[str]:
    """Write a line for each planted mistake, and yield those that no seed finds."""
    for name, by in found:
        said = "is not found" if by is None else f"seed {by[0]}: {by[1].partition(chr(10))[0][:90]}"
        sys.stdout.write(f"{name:58} {said}\n")
        sys.stdout.flush()
        if by is None:
            yield name


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=300, help="how many worlds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run only this one, and show it")
    parser.add_argument("--bugs", action="store_true", help="plant mistakes")
    parser.add_argument("--name", default="", help="only mistakes whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if given.seed is not None:
        return run_one(given.seed)
    if given.bugs:
        return run_bugs(given.seeds, given.name, given.jobs)
    return run_seeds(given.first, given.seeds, given.jobs)


if __name__ == "__main__":
    sys.exit(main())
