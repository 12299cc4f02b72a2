"""How a model is asked for a value: by a format for its answer, or by a tool whose arguments are the value (pure).

A format is the API's own way, but not every API has one, and not every one takes it beside tools. A tool works
everywhere: the model works as ever, and hands the value over by a call, which it must make in the end.
"""

from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from weft.errors import DocumentError
from weft.model.catalog import Model
from weft.model.message import JsonFormat
from weft.model.wire import parse
from weft.provider.contract import ModelRequest, OutputFormat, ToolSpec
from weft.window.valued import NAME
from weft.window.written import written

ABOUT: Final = (
    "Hand over the value that was asked for. Call it once, at the end: its arguments are the answer."
)
WRAPPER: Final = "value"
RETRIES: Final = 2
# What a tool's arguments cannot be, in one API or the other, at the top of their schema.
NOT_ON_TOP: Final = frozenset(
    {"$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "not", "if", "enum", "const"}
)
DEFINITIONS: Final = ("$defs", "definitions")
FIELDS: Final = ("properties", *DEFINITIONS)
# What OpenAI's APIs know in a schema that they are to enforce.
ENFORCED: Final = frozenset(
    {
        "type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "$ref",
        "title", "description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "multipleOf", "minItems", "maxItems", *DEFINITIONS,
    }
)  # fmt: skip
# OpenAI's and Anthropic's formats leave the model free to call tools first.
BESIDE_TOOLS: Final = frozenset({"@ai-sdk/openai", "@ai-sdk/azure", "@ai-sdk/anthropic"})
# What our adapters for these speak has none.
WITHOUT_FORMAT: Final = frozenset({"@ai-sdk/amazon-bedrock", "pydantic-ai", ""})


def retries(format: JsonFormat) -> int:
    return RETRIES if format.retry_count is None else format.retry_count


def takes_format(model: Model, *, tools: bool) -> bool:
    """Whether a model's API has a format for answers, also beside tools if there are any.

    The model's option `structuredOutputs` decides where it is set. Of APIs other than those in `BESIDE_TOOLS` some refuse a
    format beside tools, and some take it and then never call one.
    """
    npm, said = model.api.npm, model.options.get("structuredOutputs")
    if npm in WITHOUT_FORMAT:
        return False
    if isinstance(said, bool):
        return said
    beside = npm in BESIDE_TOOLS or model.provider_id in {"openai", "azure"}
    return model.capabilities.structured_output and (beside or not tools)


def with_format(request: ModelRequest, format: JsonFormat) -> ModelRequest:
    """The request for an answer whose text is the value."""
    schema = to_arguments(format.schema)
    return replace(request, format=OutputFormat(name=NAME, schema=schema, strict=is_strict(schema)))


def with_tool(request: ModelRequest, format: JsonFormat, *, forced: bool) -> ModelRequest:
    """The request with the tool to hand the value over, which the model has to call in the end; now, if `forced`."""
    spec = ToolSpec(name=NAME, about=ABOUT, schema=to_arguments(format.schema))
    return replace(
        request,
        system=(*request.system, written("structured")),
        tools=(*request.tools, spec),
        tool_choice="required",
        forced=NAME if forced else "",
    )


def is_strict(schema: Any) -> bool:
    """Whether OpenAI's APIs can enforce a schema: no field is optional, no other is allowed, and no word is unknown."""
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if not schema.keys() <= ENFORCED:
        return False
    fields = schema.get("properties", {})
    closed = schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(fields)
    if (schema.get("type") == "object" or fields) and not closed:
        return False
    below = [each for name in FIELDS if name in schema for each in schema[name].values()]
    return all(map(is_strict, [*below, schema.get("items"), schema.get("anyOf")]))


def to_arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as one of arguments. These are an object: what may be something else is put into one."""
    if _is_object(schema):
        return {key: item for key, item in schema.items() if key != "$schema"}
    hoisted = {key: schema[key] for key in DEFINITIONS if key in schema}
    inner = {key: item for key, item in schema.items() if key not in (*DEFINITIONS, "$schema", "$id")}
    return {
        "type": "object",
        "properties": {WRAPPER: _moved(inner)},
        "required": [WRAPPER],
        "additionalProperties": False,
        **{key: _moved(item) for key, item in hoisted.items()},
    }


def from_text(schema: dict[str, Any], text: str) -> Any:
    """The value in the text of an answer; `UNSET` if it is no JSON. What was put into an object for the format is taken
    out of it."""
    try:
        said = parse(text.strip().encode())
    except DocumentError:
        return UNSET
    wrapped = not _is_object(schema) and isinstance(said, dict) and said.keys() == {WRAPPER}
    return said[WRAPPER] if wrapped else said


def from_arguments(schema: dict[str, Any], arguments: dict[str, Any]) -> Any:
    """The value in the arguments of a call; `UNSET` if they hold none."""
    return arguments if _is_object(schema) else arguments.get(WRAPPER, UNSET)


def _is_object(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "object" and NOT_ON_TOP.isdisjoint(schema)


def _moved(node: Any) -> Any:
    """With what refers to the whole schema referring to where it stands now. Definitions stay at the top."""
    if isinstance(node, list):
        return [_moved(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {key: _moved_ref(item) if key == "$ref" else _moved(item) for key, item in node.items()}


def _moved_ref(ref: Any) -> Any:
    if not isinstance(ref, str):
        return _moved(ref)
    stays = ref.startswith(tuple(f"#/{name}/" for name in DEFINITIONS))
    return f"#/properties/{WRAPPER}{ref[1:]}" if ref == "#" or (ref.startswith("#/") and not stays) else ref
