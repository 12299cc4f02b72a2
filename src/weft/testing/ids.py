"""Ids that come out the same every time."""

from collections.abc import Callable
from random import Random

from weft.model.ids import Mint


def seeded_mint(now: Callable[[], int], seed: int = 1) -> Mint:
    return Mint(now, Random(seed).randbytes)
