"""Models that failed recently: in which order they are asked, and when they are asked again."""

from hypothesis import given
from hypothesis import strategies as st

from weft.errors import FaultKind, ProviderError
from weft.model.part import ModelRef
from weft.provider.health import (
    COOL_DOWN_MS,
    LONG_COOL_DOWN_MS,
    MAX_COOL_DOWN_MS,
    ModelHealth,
    compute_cool_down,
)

NOW = 1_790_000_000_000
A, B, C = (ModelRef(provider_id="mill", model_id=name) for name in "abc")


def fault(kind: FaultKind = "overload", *, wait_ms: int | None = None) -> ProviderError:
    error = ProviderError("no")
    error.kind, error.wait_ms = kind, wait_ms
    return error


def test_a_chain_keeps_its_order_while_all_models_are_healthy() -> None:
    assert ModelHealth().order((A, B, C), NOW) == (A, B, C)


def test_a_failed_model_is_asked_last_until_its_cooldown_ends() -> None:
    health = ModelHealth()
    health.fail(A, fault(), NOW)

    assert health.order((A, B, C), NOW + COOL_DOWN_MS - 1) == (B, C, A)
    assert health.order((A, B, C), NOW + COOL_DOWN_MS) == (A, B, C)


def test_if_all_models_cool_down_the_first_to_recover_is_asked_first() -> None:
    health = ModelHealth()
    health.fail(A, fault("auth"), NOW)
    health.fail(B, fault(), NOW)

    assert health.order((A, B), NOW) == (B, A)


def test_a_success_clears_earlier_failures() -> None:
    health = ModelHealth()
    health.fail(A, fault(), NOW)
    health.succeed(A)
    health.fail(A, fault(), NOW)

    assert health.order((A, B), NOW + COOL_DOWN_MS) == (A, B)


def test_each_further_failure_doubles_the_cooldown() -> None:
    assert [compute_cool_down(fault(), times) for times in (1, 2, 3)] == [
        COOL_DOWN_MS,
        2 * COOL_DOWN_MS,
        4 * COOL_DOWN_MS,
    ]


def test_a_failure_that_needs_a_person_has_a_longer_cooldown() -> None:
    assert compute_cool_down(fault("auth"), 1) == compute_cool_down(fault("quota"), 1) == LONG_COOL_DOWN_MS


def test_the_wait_that_a_provider_requests_is_respected_however_long() -> None:
    assert compute_cool_down(fault("rate-limit", wait_ms=5 * MAX_COOL_DOWN_MS), 1) == 5 * MAX_COOL_DOWN_MS
    assert compute_cool_down(fault("rate-limit", wait_ms=1), 1) == COOL_DOWN_MS


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.integers(0, 10**8)), max_size=40))
def test_an_order_contains_every_model_once_and_the_healthy_ones_first(
    outcomes: list[tuple[str, bool, int]],
) -> None:
    chain = [ModelRef(provider_id="mill", model_id=name) for name in "abcda"]
    health, now, until = ModelHealth(), NOW, dict.fromkeys("abcd", 0)
    for name, works, passed in outcomes:
        now += passed
        model = ModelRef(provider_id="mill", model_id=name)
        if works:
            health.succeed(model)
            until[name] = 0
        else:
            health.fail(model, fault(), now)
            until[name] = now + COOL_DOWN_MS

    order = [model.model_id for model in health.order(chain, now)]
    assert sorted(order) == ["a", "b", "c", "d"]
    well = [name for name in "abcd" if until[name] == 0]
    assert [name for name in order if name in well] == well
    assert order[: len(well)] == well or any(until[name] <= now for name in order[: len(well)])


@given(st.integers(1, 10_000), st.none() | st.integers(0, 10**10))
def test_a_cooldown_ends_and_never_becomes_shorter(failures: int, wait_ms: int | None) -> None:
    wait = compute_cool_down(fault(wait_ms=wait_ms), failures)

    assert COOL_DOWN_MS <= wait <= max(MAX_COOL_DOWN_MS, wait_ms or 0)
    assert compute_cool_down(fault(wait_ms=wait_ms), failures + 1) >= wait
