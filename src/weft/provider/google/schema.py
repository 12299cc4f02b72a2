"""The JSON schema of a tool's input, in the part of OpenAPI that Gemini reads (pure)."""

from collections.abc import Mapping
from typing import Any, Final

Json = dict[str, Any]

DEEPEST: Final = 12
FREE: Final = {"type": "object"}
# Taken over as they are. What is not here makes Gemini refuse the whole request.
PLAIN: Final = (
    "title",
    "description",
    "nullable",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "pattern",
)
# Each bound with the one beyond which it begins, which Gemini has no word for, and the step from there for whole numbers.
BOUNDS: Final = (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1))
FORMATS: Final = {
    "string": ("enum", "date-time"),
    "integer": ("int32", "int64"),
    "number": ("float", "double"),
}
NUMBERS: Final = ("integer", "number")


def to_parameters(schema: Mapping[str, Any]) -> Json | None:
    """The schema of a tool's input; None for a tool that takes nothing, as Gemini wants it said."""
    made = to_schema(schema)
    return made if made.get("properties") else None


def to_schema(schema: object, defs: Mapping[str, Any] | None = None, depth: int = 0) -> Json:
    """Types and bounds that Gemini knows are kept, references are written out, everything else is left away."""
    if not isinstance(schema, Mapping) or depth > DEEPEST:
        return dict(FREE)
    defs = _definitions(schema) or defs or {}
    schema = _flat(schema, defs)
    several = _alternatives(schema)
    if several is not None:
        return _any_of(schema, several, defs, depth)
    type = _type(schema)
    made: Json = {"type": type}
    made |= {name: schema[name] for name in PLAIN if _fits(schema.get(name))}
    if schema.get("format") in FORMATS.get(type, ()):
        made["format"] = schema["format"]
    if "null" in _types(schema):
        made["nullable"] = True
    made |= _enum(schema)
    if made["type"] in NUMBERS:
        made |= _bounds(schema)
    if made["type"] == "object":
        made |= _object(schema, defs, depth)
    if made["type"] == "array":
        # OpenCode puts an empty schema here, which Gemini refuses in a nested list: it wants a type.
        items = schema.get("items")
        made["items"] = to_schema(items, defs, depth + 1) if items else {"type": "string"}
    return made


def _definitions(schema: Mapping[str, Any]) -> Json:
    return {
        f"#/{place}/{name}": each
        for place in ("$defs", "definitions")
        if isinstance(schema.get(place), Mapping)
        for name, each in schema[place].items()
    }


def _flat(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Json:
    """The schema with what it refers to, and all of `allOf`, in its own words."""
    flat: Json = {}
    seen: set[str] = set()
    waiting: list[Any] = [schema]
    while waiting:
        each = waiting.pop(0)
        if not isinstance(each, Mapping):
            continue
        for name, value in each.items():
            if name == "properties" and isinstance(value, Mapping):
                flat[name] = {**value, **flat.get(name, {})}
            elif name == "required" and isinstance(value, list):
                flat[name] = [*flat.get(name, []), *value]
            else:
                flat.setdefault(name, value)
        reference = each.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            waiting.append(defs.get(reference))
        waiting.extend(each["allOf"] if isinstance(each.get("allOf"), list) else ())
    return flat


def _alternatives(schema: Json) -> list[Json] | None:
    """The schemas of which one is to hold, when there are several."""
    for name in ("anyOf", "oneOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return [dict(each) for each in schema[name] if isinstance(each, Mapping)]
    types = [type for type in _types(schema) if type != "null"]
    if len(types) > 1:
        rest = {name: value for name, value in schema.items() if name not in {"type", "description"}}
        nullable = [{"type": "null"}] if "null" in _types(schema) else []
        return [*({**rest, "type": type} for type in types), *nullable]
    return None


def _any_of(schema: Json, several: list[Json], defs: Mapping[str, Any], depth: int) -> Json:
    # Beside `anyOf` Gemini takes nothing else: what is said of all is said of each.
    real = [each for each in several if each.get("type") != "null"]
    said = {"description": schema["description"]} if _fits(schema.get("description")) else {}
    rest = {name: value for name, value in schema.items() if name not in {"anyOf", "oneOf", "$ref", "allOf"}}
    if len(real) <= 1:
        only = to_schema({**rest, **(real[0] if real else {}), **said}, defs, depth + 1)
    else:
        made = [to_schema({**said, **each}, defs, depth + 1) for each in real]
        only = {"anyOf": made}
    if len(real) != len(several):
        for each in only.get("anyOf", [only]):
            each["nullable"] = True
    return only


def _types(schema: Mapping[str, Any]) -> list[str]:
    type = schema.get("type")
    if isinstance(type, list):
        return [each for each in type if isinstance(each, str)]
    return [type] if isinstance(type, str) else []


def _type(schema: Json) -> str:
    for type in _types(schema):
        if type in {"string", "number", "integer", "boolean", "array", "object"}:
            return type
    if "properties" in schema:
        return "object"
    if "items" in schema:
        return "array"
    return "string"


def _bounds(schema: Json) -> Json:
    made: Json = {}
    for name, beyond, step in BOUNDS:
        if _is_number(schema.get(name)):
            made[name] = schema[name]
        elif _is_number(edge := schema.get(beyond)):
            made[name] = edge + step if isinstance(edge, int) and _type(schema) == "integer" else edge
    return made


def _enum(schema: Json) -> Json:
    """Gemini knows words to choose from only: numbers become strings, and so does their type (as in OpenCode)."""
    values = schema["enum"] if isinstance(schema.get("enum"), list) else []
    if "const" in schema:
        values = [schema["const"]]
    words = [_word(value) for value in values if value is not None and not isinstance(value, (dict, list))]
    words = list(dict.fromkeys(word for word in words if word))
    if not words:
        return {}
    return {"type": "string", "enum": words} | ({"nullable": True} if None in values else {})


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _object(schema: Json, defs: Mapping[str, Any], depth: int) -> Json:
    given = schema.get("properties")
    properties = {
        name: to_schema(each, defs, depth + 1)
        for name, each in (given.items() if isinstance(given, Mapping) else ())
    }
    if not properties:
        return {}
    wanted = schema["required"] if isinstance(schema.get("required"), list) else []
    required = list(dict.fromkeys(name for name in wanted if isinstance(name, str) and name in properties))
    return {"properties": properties} | ({"required": required} if required else {})


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _fits(value: object) -> bool:
    """What may be copied: a word, a number, a yes or no."""
    return isinstance(value, (str, int, float)) and value != ""
