"""Convert tool schemas to the subset of OpenAPI that Gemini reads."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fake.gemini_rules import check_request
from given.examples import examples
from weft.provider.gemini.request import to_parameters, to_schema
from weft.tool.contract import schema_of
from weft.tool.registry import TOOLS


def make_body(parameters: dict[str, Any] | None) -> dict[str, Any]:
    declared = {"name": "a", "description": ""} | ({"parameters": parameters} if parameters else {})
    said = [{"role": "user", "parts": [{"text": "hi"}]}]
    return {"contents": said, "tools": [{"functionDeclarations": [declared]}]}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"type": "string", "minLength": 1, "$comment": "x"}, {"type": "string", "minLength": 1}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "string", "enum": ["1", "2"]}),
        ({"enum": ["a", None, ""]}, {"type": "string", "enum": ["a"], "nullable": True}),
        ({"const": True}, {"type": "string", "enum": ["true"]}),
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        (
            {"type": "array", "items": {"type": "array", "items": {}}},
            {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
        ),
        (
            {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9},
            {"type": "integer", "minimum": 1, "maximum": 8},
        ),
        (
            {"type": "number", "exclusiveMinimum": 0, "maximum": 9},
            {"type": "number", "minimum": 0, "maximum": 9},
        ),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": True}, {"type": "integer", "minimum": 3}),
        ({"type": "string", "format": "uri"}, {"type": "string"}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        ({"type": "object", "additionalProperties": {"type": "string"}}, {"type": "object"}),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "description": "d"},
            {"type": "string", "description": "d", "nullable": True},
        ),
        (
            {"description": "d", "oneOf": [{"type": "string"}, {"type": "integer", "description": "n"}]},
            {"anyOf": [{"type": "string", "description": "d"}, {"type": "integer", "description": "n"}]},
        ),
        (
            {"type": ["string", "integer"], "description": "d"},
            {"anyOf": [{"type": "string", "description": "d"}, {"type": "integer", "description": "d"}]},
        ),
        (
            {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"required": ["a"]}]},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        ),
        (True, {"type": "object"}),
    ],
)
def test_a_schema_is_translated_to_the_dialect_of_gemini(given: Any, made: dict[str, Any]) -> None:
    assert to_schema(given) == made


def test_references_are_resolved() -> None:
    schema = {
        "type": "object",
        "properties": {"one": {"$ref": "#/$defs/Leaf", "description": "d"}},
        "$defs": {"Leaf": {"type": "object", "title": "Leaf", "properties": {"x": {"type": "number"}}}},
    }
    assert to_parameters(schema) == {
        "type": "object",
        "properties": {
            "one": {
                "type": "object",
                "title": "Leaf",
                "description": "d",
                "properties": {"x": {"type": "number"}},
            }
        },
    }


def test_a_recursive_schema_is_bounded() -> None:
    schema = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/Node"}},
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
    }
    check_request("gemini-3-pro", make_body(to_parameters(schema)))


def test_the_schemas_of_our_tools_are_accepted() -> None:
    for tool in TOOLS:
        check_request("gemini-3-pro", make_body(to_parameters(schema_of(tool))))


LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from(["", "string", "null", "object", "#/$defs/A", "uri"]),
)
KEYWORDS = st.sampled_from(
    [
        "type",
        "enum",
        "const",
        "items",
        "properties",
        "required",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "$defs",
        "format",
        "minimum",
        "description",
        "title",
        "nullable",
        "additionalProperties",
        "exclusiveMinimum",
        "pattern",
        "default",
    ]
)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=5),
    max_leaves=25,
)


@given(schema=st.dictionaries(KEYWORDS, ANYTHING, max_size=6))
@examples(200)
@example(
    schema={"properties": None, "required": None, "allOf": [{"properties": {"a": {}}, "required": ["a"]}]}
)
def test_any_schema_of_a_plugin_is_accepted(schema: dict[str, Any]) -> None:
    made = to_parameters({"type": "object", "properties": {"x": schema}, "$defs": {"A": schema}})
    check_request("gemini-3-pro", make_body(made))
