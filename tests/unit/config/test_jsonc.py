"""JSON with comments: values, positions of keys, and error messages."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.config.jsonc import ConfigFinding, JsoncDocument
from weft.config.substitution import make_resolver
from weft.errors import ConfigError


def resolve(kind: str, name: str) -> str:
    if kind == "file":
        raise LookupError("no such file")
    return {"QUOTE": 'say "hi"\n', "DOLLAR": "$& $1 $$", "PORT": "80"}.get(name, "")


@pytest.mark.parametrize("text", ["", "  \n", "// nothing\n", "/* nothing */", "\ufeff", "{}", "\ufeff{}"])
def test_an_empty_text_is_an_empty_document(text: str) -> None:
    assert JsoncDocument("f", text).value == {}


def test_comments_and_trailing_commas_are_allowed() -> None:
    text = """{
      // a line
      "a": [1, 2,], /* a
      block */ "b": {"c": "// not a comment /* nor this */",},
    }"""
    assert JsoncDocument("f", text).value == {"a": [1, 2], "b": {"c": "// not a comment /* nor this */"}}


def test_a_comma_inside_a_string_stays() -> None:
    assert JsoncDocument("f", '{"a": ",]", "b": ",}"}').value == {"a": ",]", "b": ",}"}


def test_every_key_has_its_position() -> None:
    document = JsoncDocument("f", '{\n  "a": 1,\n  "b": {"c": [{"d": 1}, 2],\n    "e": "x"}\n}')
    places = {
        path: document.locate(tuple(path.split("."))) for path in ("a", "b", "b.c", "b.c.0.d", "b.c.1", "b.e")
    }
    assert places == {
        "a": (2, 3),
        "b": (3, 3),
        "b.c": (3, 9),
        "b.c.0.d": (3, 16),
        "b.c.1": (3, 25),
        "b.e": (4, 5),
    }


def test_a_missing_key_has_the_position_of_its_parent() -> None:
    assert JsoncDocument("f", '{\n"a": {}}').locate(("a", "b", "c")) == (2, 1)


def test_a_duplicate_key_is_noted_and_the_later_one_wins() -> None:
    document = JsoncDocument("f", '{"a": {"x": 1},\n"a": {"x": 2}}')
    assert document.value == {"a": {"x": 2}}
    assert document.findings == [
        ConfigFinding(path=("a",), reason="occurs twice; the later one is used", is_warning=True)
    ]
    assert document.locate(("a",)) == (2, 1)


def test_environment_values_are_escaped_inside_quotes_and_inserted_verbatim_outside() -> None:
    text = '{"a": "x {env:QUOTE}y", "b": {env:PORT}, "c": "{env:NONE}", "d": "{env:DOLLAR}"}'
    assert JsoncDocument("f", text, resolve).value == {
        "a": 'x say "hi"\ny',
        "b": 80,
        "c": "",
        "d": "$& $1 $$",
    }


def test_placeholders_in_comments_are_ignored() -> None:
    text = '{ // {file:a}\n /* {file:b} */ "a": 1 }'
    document = JsoncDocument("f", text, resolve)
    assert (document.value, document.findings) == ({"a": 1}, [])


def test_an_address_in_a_string_is_not_a_comment() -> None:
    assert JsoncDocument("f", '{"a": "https://x/{env:PORT}"}', resolve).value == {"a": "https://x/80"}


def test_a_file_that_cannot_be_read_drops_its_key_alone() -> None:
    document = JsoncDocument("f", '{"a": 1,\n "b": {"c": "{file:x}", "d": ["{file:y}", 1], "e": 2}}', resolve)
    assert document.value == {"a": 1, "b": {"e": 2}}
    assert [(document.locate(each.path), each) for each in document.findings] == [
        ((2, 8), ConfigFinding(path=("b", "c"), reason="no such file")),
        ((2, 31), ConfigFinding(path=("b", "d", "0"), reason="no such file")),
    ]


def test_positions_are_those_of_the_text_before_substitution() -> None:
    document = JsoncDocument("f", '{"a": "{env:QUOTE}", "b": {env:PORT}, "c": 1,\n"d": 2}', resolve)
    assert (document.locate(("c",)), document.locate(("d",))) == ((1, 39), (2, 1))


def test_an_error_after_a_placeholder_has_its_position_in_the_file() -> None:
    with pytest.raises(ConfigError) as caught:
        JsoncDocument("f", '{"a": "{env:QUOTE}",\n "b": {env:QUOTE}, "c": x}', resolve)
    assert (caught.value.line, caught.value.column, caught.value.key) == (2, 7, "b")


def test_nothing_is_substituted_without_a_resolver() -> None:
    assert JsoncDocument("f", '{"a": "{env:HOME}"}').value == {"a": "{env:HOME}"}


def test_file_references_are_refused_without_a_directory() -> None:
    document = JsoncDocument(
        "f", '{"a": "{file:/etc/hostname}"}', make_resolver({}, directory=None, home="/h")
    )
    assert (document.value, [each.reason for each in document.findings]) == (
        {},
        ["a file cannot be referenced here"],
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"a": {"b": [1, {"c": "x" "y"}]}}',
            "f:1:27: a.b.1.c: a comma or a closing bracket is missing before this",
        ),
        ('{"a": 1', "f:1:8: a: a comma or a closing bracket is missing before this"),
        ('{"a": 1 "b": 2}', "f:1:9: a: a comma or a closing bracket is missing before this"),
        ("{a: 1}", "f:1:2: a key in double quotes is expected here"),
        ("{'a': 1}", "f:1:2: a key in double quotes is expected here"),
        ('{"a" 1}', "f:1:6: a colon is missing after the key"),
        ('{"a": }', "f:1:7: a: a value is expected here"),
        ('{"a": tru}', "f:1:7: a: a value is expected here"),
        ('{"a": "x}', "f:1:7: a: this string has no closing quote"),
        ('{"a": "x\n"}', "f:1:9: a: this string contains a line break or a control character"),
        (
            '{"a": "\\q"}',
            "f:1:8: a: this backslash escape is not valid in JSON (write \\\\ for one backslash)",
        ),
        ('{"a": "\\u12"}', "f:1:9: a: \\u needs four hexadecimal digits"),
        ('{"a": 1} x', "f:1:10: nothing may follow the closing bracket"),
        ('{"a": /* x', "f:1:7: a: this comment is not closed"),
        ('{"a": NaN}', "f:1:7: a: this is not a number in JSON"),
        ('{"a": ' + "1" * 5000 + "}", "f:1:7: a: this is not a number in JSON"),
        ("[1]", "f:1:1: expected an object"),
        ('"a"', "f:1:1: expected an object"),
    ],
)
def test_a_syntax_error_is_reported_with_line_column_and_key(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        JsoncDocument("f", text)
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    "text", ['{"a":' * 100_000, '{"a":' * 400 + "1" + "}" * 400, '{"a":' + "[" * 600 + "]" * 600 + "}"]
)
def test_a_deeply_nested_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        JsoncDocument("f", text)


def test_only_the_first_of_many_failed_placeholders_are_reported() -> None:
    document = JsoncDocument("f", '{"a": [' + ", ".join(['"{file:x}"'] * 20_000) + "]}", resolve)
    assert document.value == {}
    assert [finding.path for finding in document.findings] == [("a", str(index)) for index in range(100)]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=4), st.sampled_from([None, 2]))
def test_every_json_text_is_parsed_as_json(value: dict[str, object], indent: int | None) -> None:
    assert JsoncDocument("f", json.dumps(value, indent=indent)).value == value


@given(st.text(alphabet='{}[]:,"\\/*a1 \n-.e', max_size=40))
def test_every_text_is_an_object_or_raises_a_config_error(text: str) -> None:
    with suppress(ConfigError):
        assert isinstance(JsoncDocument("f", text, resolve).value, dict)
