"""How a model is asked for a value: by a tool whose arguments are that value (pure).

All APIs have tools; not all have a format for answers, and none of those goes together with other tools everywhere. So
the model works as ever, and hands the value over by a call, which it must make in the end.
"""

from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from weft.model.message import JsonFormat
from weft.provider.contract import ModelRequest, ToolSpec
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


def retries(format: JsonFormat) -> int:
    return RETRIES if format.retry_count is None else format.retry_count


def offering(request: ModelRequest, format: JsonFormat) -> ModelRequest:
    """The request with the tool to hand the value over, which the model has to call in the end."""
    spec = ToolSpec(name=NAME, about=ABOUT, schema=to_arguments(format.schema))
    return replace(
        request,
        system=(*request.system, written("structured")),
        tools=(*request.tools, spec),
        tool_choice="required",
    )


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
