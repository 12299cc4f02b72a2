"""Which faults to try again after, when, and when to give up (pure)."""

from msgspec import Struct

from weft.errors import ProviderError

FIRST_MS = 2_000
LONGEST_MS = 30_000
SHORTEST_MS = 250
ATTEMPTS = 5
# All waiting of one answer together. OpenCode 1.1.34 tries for ever, and waits as long as a header says.
PATIENCE_MS = 15 * 60_000


class Again(Struct, frozen=True, kw_only=True):
    """Try once more, after so long."""

    wait_ms: int


def decide_retry(error: ProviderError, *, attempt: int, waited_ms: int, chance: float) -> Again | None:
    """Whether to try again after the `attempt`-th try failed. `chance` (0 to 1) spreads those who wait alike."""
    if not error.retryable or attempt > ATTEMPTS:
        return None
    wait = wait_after(attempt, chance) if error.wait_ms is None else max(error.wait_ms, SHORTEST_MS)
    return Again(wait_ms=wait) if waited_ms + wait <= PATIENCE_MS else None


def wait_after(attempt: int, chance: float) -> int:
    """Doubling up to a limit, and up to a fifth longer by chance: many that fail at once must not return at once."""
    wait = min(FIRST_MS << (attempt - 1), LONGEST_MS)
    return wait + int(wait * 0.2 * chance)
