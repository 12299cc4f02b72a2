"""The search for the first bad place: right for every history, and in a logarithmic number of runs."""

from hypothesis import given
from hypothesis import strategies as st

from weft.local.bisect import search_first_bad
from weft.model.session import CheckResult

PASSED, FAILED = (CheckResult(command="c", outcome=outcome) for outcome in ("passed", "failed"))


@given(st.data())
async def test_the_first_bad_place_is_found_with_few_runs(data: st.DataObject) -> None:
    count = data.draw(st.integers(min_value=1, max_value=300))
    first_bad = data.draw(st.integers(min_value=1, max_value=count))
    runs: list[int] = []

    async def check(place: int) -> CheckResult:
        runs.append(place)
        return PASSED if place < first_bad else FAILED

    found = await search_first_bad(list(range(count + 1)), check)
    assert (found.verdict, found.bad) == ("found", first_bad)
    assert len(runs) <= count.bit_length() + 4


@given(st.integers(min_value=1, max_value=50), st.sampled_from([PASSED, FAILED]))
async def test_a_check_with_a_constant_result_blames_no_call(count: int, always: CheckResult) -> None:
    async def check(_: int) -> CheckResult:
        return always

    found = await search_first_bad(list(range(count + 1)), check)
    assert found.verdict == ("good" if always is PASSED else "bad")


async def test_a_check_that_changes_its_result_is_flaky() -> None:
    results = iter([FAILED, PASSED, PASSED])

    async def check(_: int) -> CheckResult:
        return next(results)

    assert (await search_first_bad([0, 1], check)).verdict == "flaky"
