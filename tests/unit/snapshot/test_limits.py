"""The configurable limits of snapshots."""

import pytest

from weft.errors import InvalidInputError
from weft.snapshot.contract import SnapshotLimits
from weft.snapshot.location import to_limits


def test_missing_limits_have_defaults() -> None:
    assert to_limits(None) == to_limits({}) == SnapshotLimits()
    assert to_limits({"maxBytes": 5, "waitSeconds": 1}) == SnapshotLimits(max_bytes=5, wait_seconds=1)


@pytest.mark.parametrize("given", [{"maxBytes": "much"}, {"maxByte": 5}, [], {"maxFileBytes": -1}])
def test_invalid_limits_are_refused_by_name(given: object) -> None:
    with pytest.raises(InvalidInputError, match=r"experimental\.weft\.snapshots"):
        to_limits(given)
