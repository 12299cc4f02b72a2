"""A document may contain any number as a time. It is shown as the nearest date there is, and hides no other."""

import pytest

from weft.acp.updates import to_iso
from weft.cli.output import format_time
from weft.cli.run_screen import format_time_of_day
from weft.host.now import day_of
from weft.transfer.atif import format_iso

NOW = 1_790_000_000_000


@pytest.mark.parametrize(
    ("time", "year", "other_day"),
    [
        (2**70, "9999", NOW),
        (10**18, "9999", NOW),
        (NOW, "2026", 0),
        (-1, "1970", NOW),
        (-(2**70), "1970", NOW),
    ],
)
def test_any_number_is_shown_as_a_date(
    monkeypatch: pytest.MonkeyPatch, time: int, year: str, other_day: int
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    assert format_time(time, now=other_day).partition("· ")[2].startswith(year)
    assert day_of(time).startswith(year)
    assert len(format_time_of_day(time)) == len("12:00:00")
    assert (to_iso(time)[:4], format_iso(time)[:4]) == (year, year)
