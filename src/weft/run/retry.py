"""Decide what to try next when a model did not answer: wait, shrink the request, ask another model, or give up (pure)."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from weft.errors import FaultKind, ProviderError
from weft.model.part import ModelRef

INITIAL_BACKOFF_MS = 2_000
MAX_BACKOFF_MS = 30_000
MIN_WAIT_MS = 250
# OpenCode 1.1.34 retries without end.
MAX_RETRIES = 5
MAX_RETRIES_WITH_FALLBACK = 2
MAX_JITTER = 0.2

# Faults after which no other model is asked. A bad request is our own mistake, an overflow needs compaction, and a
# refusal by one maker's content filter must not be bypassed with another maker's model.
NO_FALLBACK_KINDS: frozenset[FaultKind] = frozenset({"bad-request", "overflow", "content-filter"})


class EmptySummaryError(ProviderError):
    """The model answered a request for a summary without any text."""

    def __init__(self) -> None:
        super().__init__("the summary is empty", retryable=True)


class RetryLimits(Struct, frozen=True, kw_only=True):
    """How often to retry one request, and how long to wait.

    `max_provider_wait_ms` is the longest wait that a provider may ask for: if it asks for more, the request is not sent again. None means
    that only a deadline limits the wait.
    """

    retries: int = MAX_RETRIES
    max_provider_wait_ms: int | None = None


WITHOUT_FALLBACK = RetryLimits()
# When another model can answer, wait out a short disturbance, but not a rate limit or an outage.
WITH_FALLBACK = RetryLimits(retries=MAX_RETRIES_WITH_FALLBACK, max_provider_wait_ms=20_000)

# How the request of an attempt differs from the request before it: it is the first to a model, it is the same one again, it
# is smaller, it is built anew without the content that the API refused, or it is for the next piece of a summary.
Change = Literal["model", "same", "smaller", "excluded", "piece"]


class Attempt(Struct, frozen=True, kw_only=True):
    """One request to make: to this model, after this wait."""

    model: ModelRef
    change: Change
    wait_ms: int = 0


class TriedAttempt(Struct, frozen=True, kw_only=True):
    """An attempt and its result. `error` is None if the model answered.

    `has_more` says that the answer was one piece of a summary, and not the last. `can_shrink` says that a smaller request
    can be made, `can_exclude` that the request can do without the content that the API refused. `left_ms` is the time to the
    deadline, and `jitter` (0 to 1, random) spreads the waits of many clients that fail at the same moment.
    """

    attempt: Attempt
    error: ProviderError | None = None
    has_more: bool = False
    can_shrink: bool = False
    can_exclude: bool = False
    left_ms: int | None = None
    jitter: float = 0.0


def next_attempt(chain: Sequence[ModelRef], tried: Sequence[TriedAttempt]) -> Attempt | None:
    """Choose the next attempt, from the models of the chain and all attempts so far.

    Return None if nothing is left to do: the last attempt either completed the answer, or failed for good.
    """
    if not tried:
        return Attempt(model=chain[0], change="model")
    last = tried[-1]
    model, error = last.attempt.model, last.error
    if error is None:
        return Attempt(model=model, change="piece") if last.has_more else None
    rest = chain[chain.index(model) + 1 :]
    wait_ms = _find_next_wait(tried, WITH_FALLBACK if rest else WITHOUT_FALLBACK)
    if wait_ms is not None:
        return Attempt(model=model, change="same", wait_ms=wait_ms)
    if error.kind == "overflow" and last.can_shrink:
        return Attempt(model=model, change="smaller")
    if last.can_exclude:
        return Attempt(model=model, change="excluded")
    if rest and is_worth_fallback(error):
        return Attempt(model=rest[0], change="model")
    return None


def _find_next_wait(tried: Sequence[TriedAttempt], limits: RetryLimits) -> int | None:
    """Return how long to wait before the last request is sent again, or None if it should not be."""
    first = max(index for index, each in enumerate(tried) if each.attempt.change != "same")
    sent, last = tried[first:], tried[-1]
    # An empty summary is retried only once.
    if last.error is None or (isinstance(last.error, EmptySummaryError) and len(sent) > 1):
        return None
    return find_retry_wait(
        last.error,
        attempt=len(sent),
        jitter=last.jitter,
        limits=limits,
        left_ms=last.left_ms,
    )


def find_retry_wait(
    error: ProviderError,
    *,
    attempt: int,
    jitter: float,
    limits: RetryLimits = WITHOUT_FALLBACK,
    left_ms: int | None = None,
) -> int | None:
    """Return how many milliseconds to wait before a retry, or None if there should be none.

    `attempt` counts how often this request was sent so far, and `left_ms` is the time to the deadline. A wait that would
    outlast the deadline is pointless and gives None.
    """
    if not error.retryable or attempt > limits.retries:
        return None
    if error.wait_ms is None:
        wait = compute_backoff(attempt, jitter)
    else:
        wait = max(error.wait_ms, MIN_WAIT_MS)
        if limits.max_provider_wait_ms is not None and wait > limits.max_provider_wait_ms:
            return None
    return wait if left_ms is None or wait < left_ms else None


def is_worth_fallback(error: ProviderError) -> bool:
    """Return True if another model may answer although this one failed for good.

    A fault of unknown kind counts only if it was retryable: otherwise the mistake may well be in our request.
    """
    return error.retryable if error.kind == "unknown" else error.kind not in NO_FALLBACK_KINDS


def compute_backoff(attempt: int, jitter: float) -> int:
    """Return the wait in milliseconds after this attempt: doubled each time up to a limit, plus the jitter."""
    wait = min(INITIAL_BACKOFF_MS << (attempt - 1), MAX_BACKOFF_MS)
    return wait + int(wait * MAX_JITTER * jitter)
