"""Default titles, and the order of sessions in lists."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.model.ids import SessionID
from weft.model.session import SessionInfo, SessionTime, is_default_title, make_default_title, newest_sort_key

NEW_YEAR_2026 = 1767225600000


def test_the_default_title_contains_the_creation_time() -> None:
    assert make_default_title(NEW_YEAR_2026 + 7) == "New session - 2026-01-01T00:00:00.007Z"
    assert make_default_title(NEW_YEAR_2026, child=True) == "Child session - 2026-01-01T00:00:00.000Z"


@given(st.integers(0, 4_102_444_800_000), st.booleans())
def test_a_default_title_is_recognised_with_millisecond_precision(now: int, child: bool) -> None:
    title = make_default_title(now, child=child)
    assert is_default_title(title)
    when = datetime.fromisoformat(title.partition(" - ")[2])
    assert (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) == now


@pytest.mark.parametrize(
    "title",
    [
        "",
        "New session",
        "New session - yesterday",
        "New session - 2026-01-01T00:00:00Z",
        "New session - 2026-01-01T00:00:00.000Z (fork #1)",
        "new session - 2026-01-01T00:00:00.000Z",
        "Old session - 2026-01-01T00:00:00.000Z",
        "New session - 2026-01-01T00:00:00.000Z\n",
        "New session - ٢٠٢٦-01-01T00:00:00.000Z",
    ],
)
def test_a_chosen_title_is_not_a_default_title(title: str) -> None:
    assert not is_default_title(title)


def session(id: str, created: int) -> SessionInfo:
    return SessionInfo(id=SessionID(id), time=SessionTime(created=created, updated=0))


def test_sessions_are_sorted_by_time_and_never_by_id() -> None:
    before_the_wrap = session("ses_000000000ffeAAAAAAAAAAAAAA", 1786706395135)
    after_the_wrap = session("ses_fffffffffffeAAAAAAAAAAAAAA", 1786706395136)
    oldest = session("ses_417d96fffffeAAAAAAAAAAAAAA", 1)
    listed = sorted([before_the_wrap, oldest, after_the_wrap], key=newest_sort_key)
    assert listed == [after_the_wrap, before_the_wrap, oldest]
