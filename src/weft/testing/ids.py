"""Make the same ids in every run of a test."""

from collections.abc import Callable
from random import Random

from weft.model.ids import Mint


def seeded_mint(now: Callable[[], int], seed: int = 1) -> Mint:
    """Return a mint whose ids depend only on the clock and the seed."""
    return Mint(now, Random(seed).randbytes)
