"""Which faults to try again after, when, when to give up, and when to ask another model instead (pure)."""

from msgspec import Struct

from weft.errors import FaultKind, ProviderError

FIRST_MS = 2_000
LONGEST_MS = 30_000
SHORTEST_MS = 250
ATTEMPTS = 5
# All waiting of one answer together, as far as its length is our choice. OpenCode 1.1.34 tries for ever.
PATIENCE_MS = 15 * 60_000


# Faults that stay the same whoever is asked. A request that is wrong is ours to mend; one that is too long is summed
# up; and what one model's makers refuse to answer is for the person to take elsewhere, not for us.
OURS: frozenset[FaultKind] = frozenset({"bad-request", "overflow", "content-filter"})


class Patience(Struct, frozen=True, kw_only=True):
    """How often to try again, how long to wait in all, and how long at most if a provider names the time.

    With `asked_ms` None such a wait takes as long as the deadline allows.
    """

    attempts: int = ATTEMPTS
    total_ms: int = PATIENCE_MS
    asked_ms: int | None = None


ALONE = Patience()
# With another model at hand: a hiccup is sat out, a limit or an outage is not.
IN_COMPANY = Patience(attempts=2, total_ms=20_000, asked_ms=20_000)


class Again(Struct, frozen=True, kw_only=True):
    """Try once more, after so long."""

    wait_ms: int


def decide_retry(
    error: ProviderError,
    *,
    attempt: int,
    waited_ms: int,
    chance: float,
    patience: Patience = ALONE,
    left_ms: int | None = None,
) -> Again | None:
    """Decide whether to try again after the `attempt`-th try failed. `chance` (0 to 1) spreads those who wait alike.

    `waited_ms` is how long was waited so far without the provider having named the time; `left_ms` is what the deadline
    leaves, None without one. A wait that would outlast the deadline is not begun: nobody would be there to try again.
    """
    if not error.retryable or attempt > patience.attempts:
        return None
    if error.wait_ms is None:
        wait = wait_after(attempt, chance)
        most = patience.total_ms - waited_ms
    else:
        wait = max(error.wait_ms, SHORTEST_MS)
        most = wait if patience.asked_ms is None else patience.asked_ms
    fits = wait <= most and (left_ms is None or wait < left_ms)
    return Again(wait_ms=wait) if fits else None


def is_for_another(error: ProviderError) -> bool:
    """Whether another model may answer where this one failed for good. Of a fault of no known kind only one that was
    thought to pass is: the rest may well be our own."""
    return error.retryable if error.kind == "unknown" else error.kind not in OURS


def wait_after(attempt: int, chance: float) -> int:
    """Doubling up to a limit, and up to a fifth longer by chance: many that fail at once must not return at once."""
    wait = min(FIRST_MS << (attempt - 1), LONGEST_MS)
    return wait + int(wait * 0.2 * chance)
