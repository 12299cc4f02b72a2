"""Records of other frameworks: how they are grouped, and what is read from them."""

import pytest

from weft.integrations.records import (
    Record,
    group_records,
    make_data_url,
    make_file,
    make_result,
    read_arguments,
    to_text,
)
from weft.session.append import NewFile, NewMessage, NewText, NewToolResult


def test_consecutive_records_of_a_role_form_one_message_unless_one_starts_a_new_one() -> None:
    records = [
        Record(raw={"n": 1}, role="user", content=(NewText("a"),)),
        Record(raw={"n": 2}, role="assistant", content=(NewText("b"),), model="p/m"),
        Record(raw={"n": 3}, role="assistant"),
        Record(raw={"n": 4}, role="assistant", content=(NewText("c"),), starts=True),
    ]
    assert group_records("f", records) == [
        NewMessage(role="user", content=(NewText("a"),), metadata={"f": [{"n": 1}]}),
        NewMessage(
            role="assistant", content=(NewText("b"),), model="p/m", metadata={"f": [{"n": 2}, {"n": 3}]}
        ),
        NewMessage(role="assistant", content=(NewText("c"),), metadata={"f": [{"n": 4}]}),
    ]
    assert group_records("f", []) == []


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ("[1]", {"input": [1]}),
        ("half {", {"input": "half {"}),
        ("lone \ud83d", {"input": "lone \ud83d"}),
    ],
)
def test_arguments_are_parsed_from_json_or_wrapped(given: object, read: object) -> None:
    assert read_arguments(given) == read


def test_results_files_and_texts_are_read() -> None:
    assert to_text("x") == "x"
    assert to_text({"a": [1, None]}) == '{"a":[1,null]}'
    assert make_result("c", ["x"], tool="f") == NewToolResult("c", '["x"]', tool="f")
    assert make_result("c", "no", failed=True) == NewToolResult("c", error="no")
    assert make_file(None) == []
    assert make_file("https://example.test/a.png") == [NewFile("https://example.test/a.png", "image/png")]
    assert make_file("data:text/csv;base64,YQ==") == [NewFile("data:text/csv;base64,YQ==", "text/csv")]
    assert make_file("x:y", filename="a.pdf") == [NewFile("x:y", "application/pdf", "a.pdf")]
    assert make_file("x:y") == [NewFile("x:y", "application/octet-stream")]
    assert make_data_url("__79", "image/png") == "data:image/png;base64,//79"
    assert make_data_url("//79", None) == "data:application/octet-stream;base64,//79"
    assert make_data_url("a", "image/png") == ""
    assert make_data_url(7, "image/png") == ""
