"""Convert a model's arguments to the input of a tool."""

from typing import Any

import pytest

from weft.errors import ToolError
from weft.tool.contract import to_input
from weft.tool.inputs import EditInput, ReadInput
from weft.tool.registry import EDIT, READ


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"filePath": "a", "offset": 3}, ReadInput(file_path="a", offset=3)),
        ({"filePath": "a", "offset": "3", "limit": "20"}, ReadInput(file_path="a", offset=3, limit=20)),
        ({"filePath": "12", "offset": "3"}, ReadInput(file_path="12", offset=3)),
    ],
)
def test_a_quoted_number_is_accepted_where_a_number_is_expected(
    given: dict[str, Any], meant: ReadInput
) -> None:
    assert to_input(READ, given) == meant


def test_a_quoted_boolean_is_accepted_and_text_stays_text() -> None:
    given = {"filePath": "a", "oldString": "null", "newString": "1", "replaceAll": "true"}
    assert to_input(EDIT, given) == EditInput(
        file_path="a", old_string="null", new_string="1", replace_all=True
    )


@pytest.mark.parametrize("offset", ["three", "-1", "1.5", None, [1]])
def test_an_invalid_offset_is_refused_by_name(offset: object) -> None:
    with pytest.raises(ToolError, match=r"invalid arguments: Expected `int`.* at `\$\.offset`"):
        to_input(READ, {"filePath": "a", "offset": offset})
