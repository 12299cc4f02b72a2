"""A document may contain any number as a time. It is shown as the nearest date there is, and hides no other."""

import pytest

from weft.acp.updates import to_iso
from weft.cli.output import format_time
from weft.host.now import day_of
from weft.transfer.atif import format_iso

NOW = 1_790_000_000_000


@pytest.mark.parametrize(
    ("time", "year"),
    [(2**70, "9999"), (10**18, "9999"), (NOW, "2026"), (-1, "1970"), (-(2**70), "1970")],
)
def test_any_number_is_shown_as_a_date(monkeypatch: pytest.MonkeyPatch, time: int, year: str) -> None:
    monkeypatch.setenv("TZ", "UTC")
    assert format_time(time, now=0).partition("· ")[2].startswith(year) or year == "1970"
    assert day_of(time).startswith(year)
    assert (to_iso(time)[:4], format_iso(time)[:4]) == (year, year)
