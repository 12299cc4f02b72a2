"""The limits that a person may set."""

import pytest

from weft.errors import InvalidInputError
from weft.snapshot.contract import Limits
from weft.snapshot.place import to_limits


def test_limits_are_what_is_written_and_the_rest_is_usual() -> None:
    assert to_limits(None) == to_limits({}) == Limits()
    assert to_limits({"maxBytes": 5, "waitSeconds": 1}) == Limits(max_bytes=5, wait_seconds=1)


@pytest.mark.parametrize("given", [{"maxBytes": "much"}, {"maxByte": 5}, [], {"maxFileBytes": -1}])
def test_what_cannot_be_meant_is_named(given: object) -> None:
    with pytest.raises(InvalidInputError, match=r"experimental\.weft\.snapshots"):
        to_limits(given)
