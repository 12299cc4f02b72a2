"""Edit a configuration file key by key, without changing any other character."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.config.edit import amend_text, merge_change
from weft.config.jsonc import JsoncDocument
from weft.errors import ConfigError


def amend(text: str, change: dict[str, Any]) -> str:
    return amend_text("opencode.jsonc", text, change)


@pytest.mark.parametrize(
    ("text", "change", "after"),
    [
        ("", {"model": "a/b"}, '{\n  "model": "a/b"\n}\n'),
        ("{}", {"model": "a/b"}, '{\n  "model": "a/b"\n}'),
        ('{\n  "model": "a/b" // mine\n}\n', {"model": "c/d"}, '{\n  "model": "c/d" // mine\n}\n'),
        (
            '{\n  "model": "a/b" // mine\n}\n',
            {"theme": "x"},
            '{\n  "model": "a/b", // mine\n  "theme": "x"\n}\n',
        ),
        (
            '{\n  "model": "a/b", // mine\n}\n',
            {"theme": "x"},
            '{\n  "model": "a/b", // mine\n  "theme": "x"\n}\n',
        ),
        (
            '{\n  // who\n  "agent": {"a": {"model": "x/y"}},\n  "odd": [1, {"k": "}"}]\n}',
            {"agent": {"a": {"steps": 3}}},
            '{\n  // who\n  "agent": {"a": {"model": "x/y",\n      "steps": 3}},\n  "odd": [1, {"k": "}"}]\n}',
        ),
        ('{\n  "a": 1,\n  "b": 2\n}', {"a": None}, '{\n  "b": 2\n}'),
        ('{\n  "a": 1,\n  "b": 2\n}', {"b": None}, '{\n  "a": 1\n}'),
        ('{"a": {}}', {"a": {"b": {"c": 1}}}, None),
        ('{"a": 1}', {"a": {"b": 2}}, None),
        ('{"a": {"b": 1}}', {"a": {}}, '{"a": {"b": 1}}'),
        ('{"a": {"b": 1}}', {"a": 3}, '{"a": 3}'),
        ('{"a": 1}', {"b": None}, '{"a": 1}'),
    ],
)
def test_a_key_is_changed_in_place(text: str, change: dict[str, Any], after: str | None) -> None:
    found = amend(text, change)
    if after is not None:
        assert found == after
    assert JsoncDocument("f", found).value == merge_change(JsoncDocument("f", text).value, change)


@pytest.mark.parametrize("text", ["[]", '"x"', '{"a": }', '{"a" 1}', "{", '{"a": 1', "nonsense"])
def test_a_file_that_is_not_an_object_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        amend(text, {"a": 2})


Keys = st.text('abc"\\ /{}:,é', min_size=1, max_size=3)
Leaves = (
    st.integers(-5, 5)
    | st.text('ab"\\/{},:\n', max_size=4)
    | st.booleans()
    | st.lists(st.integers(), max_size=2)
)
Values = st.recursive(Leaves, lambda inner: st.dictionaries(Keys, inner, max_size=3), max_leaves=8)
Objects = st.dictionaries(Keys, Values, max_size=4)
Changes = st.dictionaries(
    Keys,
    st.recursive(Leaves | st.none(), lambda inner: st.dictionaries(Keys, inner, max_size=3), max_leaves=6),
    max_size=4,
)


def add_comments(value: Any, words: str) -> str:
    """Return the value as JSON with comments in every possible place."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    lines = [
        f"{line} // {words}" if not line.strip().startswith('"') or line.endswith(("{", "[")) else line
        for line in text.split("\n")
    ]
    return f"/* {words} */\n" + "\n".join(lines) + f"\n// {words}\n"


@given(Objects, Changes, st.booleans())
def test_an_edited_text_parses_to_the_merged_value(
    value: dict[str, Any], change: dict[str, Any], comments: bool
) -> None:
    text = add_comments(value, 'a "note" { , : }') if comments else json.dumps(value, ensure_ascii=False)
    found = amend(text, change)
    assert JsoncDocument("f", found).value == merge_change(value, change)
    if comments:
        note = '/* a "note" { , : } */'
        assert (found.startswith(note), found.endswith('// a "note" { , : }\n')) == (True, True)


@given(Objects, Changes)
def test_applying_a_change_twice_equals_applying_it_once(
    value: dict[str, Any], change: dict[str, Any]
) -> None:
    once = amend(json.dumps(value, indent=2), change)
    assert amend(once, change) == once


def test_comments_after_the_last_member_take_no_time_to_read() -> None:
    comments = "/* why */ " * 60
    assert amend('{"a": 1 ' + comments + "}", {"b": 2}) == '{"a": 1,\n  "b": 2 ' + comments + "}"
    assert amend('{"a": 1 ' + comments + ",}", {"b": 2}) == '{"a": 1 ' + comments + ',\n  "b": 2}'


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ('{"a": 1 /* one */, "b": 2}', '{ "b": 2}'),
        ('{\n  "a": 1 // one\n  , "b": 2\n}', '{ "b": 2\n}'),
        ('{"a": 1\n, "b": 2}', '{ "b": 2}'),
        ('{"b": 2, "a": 1 /* one */}', '{"b": 2 /* one */}'),
    ],
)
def test_a_removed_key_takes_its_comma_along(text: str, after: str) -> None:
    assert amend(text, {"a": None}) == after
