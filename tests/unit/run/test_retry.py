"""Trying again, and giving up."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import FaultKind, ProviderError
from weft.run.retry import ATTEMPTS, IN_COMPANY, OURS, PATIENCE_MS, Again, decide_retry, is_for_another


def fault(*, wait_ms: int | None = None, retryable: bool = True) -> ProviderError:
    error = ProviderError("overloaded", retryable=retryable)
    error.wait_ms = wait_ms
    return error


def test_the_wait_doubles_up_to_half_a_minute() -> None:
    waits = [decide_retry(fault(), attempt=n, waited_ms=0, chance=0) for n in range(1, 7)]

    assert waits == [*(Again(wait_ms=ms) for ms in (2000, 4000, 8000, 16000, 30000)), None]


def test_what_the_provider_asks_for_is_waited_but_never_no_time_at_all() -> None:
    for asked, waited in ((1500, 1500), (30_000, 30_000), (700_000, 700_000), (0, 250), (-5000, 250)):
        assert decide_retry(fault(wait_ms=asked), attempt=1, waited_ms=0, chance=0.5) == Again(wait_ms=waited)


def test_an_hour_that_the_provider_asks_for_is_waited_if_the_deadline_allows() -> None:
    hour = 3_600_000

    def decided(left_ms: int | None) -> Again | None:
        return decide_retry(fault(wait_ms=hour), attempt=1, waited_ms=0, chance=0, left_ms=left_ms)

    assert decided(None) == Again(wait_ms=hour)
    assert decided(hour + 1) == Again(wait_ms=hour)
    assert decided(hour) is None


def test_b12_a_wait_of_our_own_choice_ends_with_patience_and_with_the_deadline() -> None:
    assert decide_retry(fault(), attempt=1, waited_ms=PATIENCE_MS, chance=0) is None
    assert decide_retry(fault(), attempt=1, waited_ms=0, chance=0, left_ms=1000) is None


def test_a_fault_that_will_not_pass_is_not_tried_again() -> None:
    assert decide_retry(fault(retryable=False), attempt=1, waited_ms=0, chance=0) is None


def test_with_another_model_at_hand_a_hiccup_is_sat_out_and_a_limit_is_not() -> None:
    def decided(attempt: int, waited_ms: int = 0, wait_ms: int | None = None) -> Again | None:
        return decide_retry(
            fault(wait_ms=wait_ms), attempt=attempt, waited_ms=waited_ms, chance=0, patience=IN_COMPANY
        )

    assert [decided(n) for n in (1, 2, 3)] == [Again(wait_ms=2000), Again(wait_ms=4000), None]
    assert decided(1, wait_ms=60_000) is None
    assert decided(1, wait_ms=15_000) == Again(wait_ms=15_000)


def test_who_waits_alike_does_not_come_back_alike() -> None:
    waits = {decide_retry(fault(), attempt=1, waited_ms=0, chance=n / 100) for n in range(100)}

    assert len(waits) == 100
    assert all(again is not None and 2000 <= again.wait_ms <= 2400 for again in waits)


@pytest.mark.parametrize("kind", get_args(FaultKind))
def test_another_model_is_asked_unless_it_would_fail_for_the_same_reason(kind: FaultKind) -> None:
    error = fault(retryable=False)
    error.kind = kind

    assert is_for_another(error) == (kind not in OURS and kind != "unknown")


def test_of_faults_of_no_known_kind_only_what_was_thought_to_pass_is_for_another_model() -> None:
    assert is_for_another(fault(retryable=True))
    assert not is_for_another(fault(retryable=False))


@given(st.lists(st.tuples(st.none() | st.integers(-(10**9), 10**9), st.floats(0, 1)), max_size=50))
def test_however_a_provider_fails_it_ends_within_its_attempts_and_its_patience(
    faults: list[tuple[int | None, float]],
) -> None:
    waited = tries = 0
    for wait_ms, chance in faults:
        again = decide_retry(fault(wait_ms=wait_ms), attempt=tries + 1, waited_ms=waited, chance=chance)
        if again is None:
            break
        assert again.wait_ms >= 250
        waited, tries = waited + (again.wait_ms if wait_ms is None else 0), tries + 1

    assert tries <= ATTEMPTS
    assert waited <= PATIENCE_MS
