"""Errors as the values a message keeps."""

from weft.errors import InvalidInputError
from weft.model.failure import unknown
from weft.run.failure import to_failure


def test_the_way_out_is_kept_with_the_failure() -> None:
    error = InvalidInputError("provider.x.npm", "pydantic-ai is not installed", hint="run: pip install it")
    assert to_failure(error) == unknown("provider.x.npm: pydantic-ai is not installed (run: pip install it)")


def test_what_says_nothing_is_named_by_its_kind() -> None:
    assert to_failure(KeyError()) == unknown("KeyError")
