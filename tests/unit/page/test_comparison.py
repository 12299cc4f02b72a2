"""How the comparison of sessions shows its figures."""

import pytest

from weft.page.comparison import format_seconds


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (0, "0.0s"),
        (1_234, "1.2s"),
        (59_940, "59.9s"),
        (59_960, "1m00s"),
        (60_000, "1m00s"),
        (125_000, "2m05s"),
    ],
)
def test_a_duration_has_a_tenth_of_a_second_only_below_a_minute(ms: int, shown: str) -> None:
    assert format_seconds(ms) == shown
