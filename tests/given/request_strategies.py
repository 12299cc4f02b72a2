"""Hypothesis strategies for HTTP requests, from an OpenAPI document: mostly valid, sometimes arbitrary."""

from typing import Any

from hypothesis import strategies as st
from msgspec import Struct

Schema = dict[str, Any]

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ODD_NAMES = st.text(min_size=1, max_size=30) | st.sampled_from(["..", "%2e%2e", "a/b", "\0", "x" * 300])
DEEPEST = 4


class GeneratedRequest(Struct, frozen=True, kw_only=True):
    """One request; `names` are the values of its path parameters."""

    method: str
    path: str
    names: dict[str, str]
    query: dict[str, Any]
    body: Any = None
    has_body: bool = False


def values(schema: Schema, components: dict[str, Schema], depth: int = 0) -> st.SearchStrategy[Any]:
    """Generate values of a schema."""
    if "$ref" in schema:
        return st.deferred(
            lambda: values(components[schema["$ref"].rpartition("/")[2]], components, depth + 1)
        )
    for way in ("anyOf", "oneOf"):
        if way in schema:
            return st.one_of([values(each, components, depth) for each in schema[way]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "string":
            return _texts(schema)
        case "integer":
            return st.integers(_find_bound(schema, "minimum", -5), _find_bound(schema, "maximum", 1 << 40))
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            items = values(schema.get("items") or {}, components, depth + 1)
            return st.lists(items, max_size=0 if depth > DEEPEST else 3)
        case "object":
            return _objects_of(schema, components, depth)
        case _:
            return ANYTHING


def _find_bound(schema: Schema, name: str, otherwise: int) -> int:
    exclusive = {"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}[name]
    if exclusive in schema:
        return int(schema[exclusive]) + (1 if name == "minimum" else -1)
    return int(schema.get(name, otherwise))


def _texts(schema: Schema) -> st.SearchStrategy[str]:
    if "pattern" in schema:
        return st.from_regex(schema["pattern"], fullmatch=True)
    return st.text(min_size=schema.get("minLength", 0), max_size=schema.get("maxLength", 40))


def _objects_of(
    schema: Schema, components: dict[str, Schema], depth: int
) -> st.SearchStrategy[dict[str, Any]]:
    known = {name: values(each, components, depth + 1) for name, each in schema.get("properties", {}).items()}
    required = {name: known[name] for name in schema.get("required", ())}
    optional = {} if depth > DEEPEST else {name: each for name, each in known.items() if name not in required}
    fixed = st.fixed_dictionaries(required, optional=optional)
    more = schema.get("additionalProperties")
    if not isinstance(more, dict) or depth > DEEPEST:
        return fixed
    others = st.dictionaries(st.text(max_size=8), values(more, components, depth + 1), max_size=2)
    return st.tuples(others, fixed).map(lambda pair: {**pair[0], **pair[1]})


def operations(document: Schema, leave_out: set[str]) -> list[tuple[str, str, Schema]]:
    return [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if operation["operationId"] not in leave_out
    ]


@st.composite
def requests(
    draw: st.DrawFn, document: Schema, leave_out: set[str], real: dict[str, list[str]]
) -> GeneratedRequest:
    """Generate a request to any operation. A path parameter is one of the `real` values, a valid one, or nonsense."""
    method, path, operation = draw(st.sampled_from(operations(document, leave_out)))
    components = document["components"]["schemas"]
    names: dict[str, str] = {}
    query: dict[str, Any] = {}
    for parameter in operation["parameters"]:
        name, schema = parameter["name"], parameter["schema"]
        if parameter["in"] == "path":
            there = st.sampled_from(real[name]) if name in real else st.nothing()
            names[name] = draw(there | there | values(schema, components) | ODD_NAMES)
        elif name != "directory" and (parameter["required"] or draw(st.booleans())):
            query[name] = draw(values(schema, components) | st.text(max_size=20))
    body, has_body = None, "requestBody" in operation and draw(st.integers(0, 9)) > 0
    if has_body:
        described = operation["requestBody"]["content"]["application/json"]["schema"]
        body = draw(values(described, components) | values(described, components) | ANYTHING)
    return GeneratedRequest(method=method, path=path, names=names, query=query, body=body, has_body=has_body)
