"""What is tried next when a model did not answer."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import FaultKind, ProviderError
from weft.model.part import ModelRef
from weft.run.retry import (
    MAX_RETRIES,
    WITH_FALLBACK,
    Attempt,
    EmptySummaryError,
    TriedAttempt,
    find_retry_wait,
    is_worth_fallback,
    next_attempt,
)


def fault(*, wait_ms: int | None = None, retryable: bool = True) -> ProviderError:
    error = ProviderError("overloaded", retryable=retryable)
    error.wait_ms = wait_ms
    return error


def test_the_wait_doubles_up_to_thirty_seconds() -> None:
    waits = [find_retry_wait(fault(), attempt=n, jitter=0) for n in range(1, 7)]

    assert waits == [2000, 4000, 8000, 16000, 30000, None]


def test_the_wait_requested_by_the_provider_is_kept_but_never_zero() -> None:
    for asked, waited in ((1500, 1500), (30_000, 30_000), (700_000, 700_000), (0, 250), (-5000, 250)):
        assert find_retry_wait(fault(wait_ms=asked), attempt=1, jitter=0.5) == waited


def test_a_wait_of_an_hour_is_accepted_if_the_deadline_allows() -> None:
    hour = 3_600_000

    def find_wait(left_ms: int | None) -> int | None:
        return find_retry_wait(fault(wait_ms=hour), attempt=1, jitter=0, left_ms=left_ms)

    assert find_wait(None) == hour
    assert find_wait(hour + 1) == hour
    assert find_wait(hour) is None


def test_our_own_wait_does_not_exceed_the_deadline() -> None:
    assert find_retry_wait(fault(), attempt=1, jitter=0, left_ms=2001) == 2000
    assert find_retry_wait(fault(), attempt=1, jitter=0, left_ms=1000) is None


def test_a_permanent_fault_is_not_retried() -> None:
    assert find_retry_wait(fault(retryable=False), attempt=1, jitter=0) is None


def test_with_a_fallback_a_short_wait_is_retried_and_a_long_one_is_not() -> None:
    def find_wait(attempt: int, wait_ms: int | None = None) -> int | None:
        return find_retry_wait(fault(wait_ms=wait_ms), attempt=attempt, jitter=0, limits=WITH_FALLBACK)

    assert [find_wait(n) for n in (1, 2, 3)] == [2000, 4000, None]
    assert find_wait(1, wait_ms=60_000) is None
    assert find_wait(1, wait_ms=15_000) == 15_000


def test_equal_waits_get_different_jitter() -> None:
    waits = {find_retry_wait(fault(), attempt=1, jitter=n / 100) for n in range(100)}

    assert len(waits) == 100
    assert all(again is not None and 2000 <= again <= 2400 for again in waits)


@pytest.mark.parametrize("name", get_args(FaultKind))
def test_another_model_is_asked_unless_it_would_fail_for_the_same_reason(name: FaultKind) -> None:
    same_reason = {"bad-request", "overflow", "content-filter", "unknown"}
    assert is_worth_fallback(kind(name)) == (name not in same_reason)


def test_of_unknown_faults_only_retryable_ones_go_to_another_model() -> None:
    assert is_worth_fallback(fault(retryable=True))
    assert not is_worth_fallback(fault(retryable=False))


@given(st.lists(st.tuples(st.none() | st.integers(-(10**9), 10**9), st.floats(0, 1)), max_size=50))
def test_there_are_at_most_five_retries_and_72_seconds_of_our_own_waits(
    faults: list[tuple[int | None, float]],
) -> None:
    waited = tries = 0
    for wait_ms, jitter in faults:
        again = find_retry_wait(fault(wait_ms=wait_ms), attempt=tries + 1, jitter=jitter)
        if again is None:
            break
        assert again >= 250
        waited, tries = waited + (again if wait_ms is None else 0), tries + 1

    assert tries <= MAX_RETRIES
    assert waited <= 72_000


FIRST, SECOND = (ModelRef(provider_id="p", model_id=name) for name in ("first", "second"))
START = Attempt(model=FIRST, change="model")


def kind(name: FaultKind, *, retryable: bool = False) -> ProviderError:
    error = fault(retryable=retryable)
    error.kind = name
    return error


def tried_attempt(error: ProviderError | None, attempt: Attempt = START, **facts: bool) -> TriedAttempt:
    return TriedAttempt(attempt=attempt, error=error, **facts)


def test_the_first_model_of_the_chain_is_asked_first() -> None:
    assert next_attempt([FIRST, SECOND], []) == START


def test_a_complete_answer_needs_no_other_attempt() -> None:
    assert next_attempt([FIRST, SECOND], [tried_attempt(None)]) is None


def test_a_piece_of_a_summary_is_followed_by_the_next() -> None:
    assert next_attempt([FIRST], [tried_attempt(None, has_more=True)]) == Attempt(model=FIRST, change="piece")


def test_a_transient_fault_is_retried_with_the_same_request_and_longer_waits() -> None:
    first = tried_attempt(fault())
    again = next_attempt([FIRST], [first])
    assert again == Attempt(model=FIRST, change="same", wait_ms=2000)
    assert next_attempt([FIRST], [first, tried_attempt(fault(), again)]) == Attempt(
        model=FIRST, change="same", wait_ms=4000
    )


def test_retries_of_other_requests_do_not_count() -> None:
    first = tried_attempt(fault())
    retries = [
        tried_attempt(fault(), Attempt(model=FIRST, change="same", wait_ms=2000)) for _ in range(MAX_RETRIES)
    ]
    assert next_attempt([FIRST], [first, *retries]) is None
    smaller = tried_attempt(fault(), Attempt(model=FIRST, change="smaller"))
    assert next_attempt([FIRST], [first, *retries, smaller]) == Attempt(
        model=FIRST, change="same", wait_ms=2000
    )


def test_a_request_that_does_not_fit_is_made_smaller_as_long_as_possible() -> None:
    chain = [FIRST, SECOND]
    assert next_attempt(chain, [tried_attempt(kind("overflow"), can_shrink=True)]) == Attempt(
        model=FIRST, change="smaller"
    )
    assert next_attempt(chain, [tried_attempt(kind("overflow"))]) is None


def test_refused_content_is_excluded_before_another_model_is_asked() -> None:
    chain = [FIRST, SECOND]
    assert next_attempt(chain, [tried_attempt(kind("media"), can_exclude=True)]) == Attempt(
        model=FIRST, change="excluded"
    )
    assert next_attempt(chain, [tried_attempt(kind("media"))]) == Attempt(model=SECOND, change="model")


def test_the_last_model_of_the_chain_is_the_last_attempt() -> None:
    failed = [tried_attempt(kind("auth")), tried_attempt(kind("auth"), Attempt(model=SECOND, change="model"))]
    assert next_attempt([FIRST, SECOND], failed[:1]) == Attempt(model=SECOND, change="model")
    assert next_attempt([FIRST, SECOND], failed) is None


def test_an_empty_summary_is_requested_once_more() -> None:
    first = tried_attempt(EmptySummaryError())
    again = next_attempt([FIRST], [first])
    assert again is not None
    assert again.change == "same"
    assert next_attempt([FIRST], [first, tried_attempt(EmptySummaryError(), again)]) is None
