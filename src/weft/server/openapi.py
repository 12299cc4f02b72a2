"""The OpenAPI document, made from the routes and the values they speak of; never written by hand."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from weft.model.ids import PREFIXES
from weft.model.wire import EXTRA
from weft.server.route import Route

NAME = re.compile(r"\{(\w+)\}")
KINDS = {
    "sessionID": "session",
    "messageID": "message",
    "partID": "part",
    "permissionID": "permission",
    "ptyID": "pty",
    "grantID": "grant",
}
REFUSAL = {
    "type": "object",
    "required": ["name", "data"],
    "properties": {
        "name": {"type": "string"},
        "data": {
            "type": "object",
            "required": ["message"],
            "properties": {"message": {"type": "string"}, "ref": {"type": "string"}},
        },
    },
}
REFUSED = {
    "description": "Why not",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
}


def to_document(routes: Iterable[Route], *, version: str) -> dict[str, Any]:
    table = tuple(routes)
    spoken = [kind for route in table for kind in (route.gives, route.takes) if kind is not None]
    shapes, components = msgspec.json.schema_components(spoken, ref_template="#/components/schemas/{name}")
    shape = iter(shapes)
    paths: dict[str, Any] = {}
    for route in table:
        gives = next(shape) if route.gives is not None else None
        takes = next(shape) if route.takes is not None else None
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, gives, takes)
    return {
        "openapi": "3.1.0",
        "info": {"title": "weft", "version": version, "description": "Sessions of coding agents over HTTP"},
        "security": [{"password": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"password": {"type": "http", "scheme": "basic"}},
            "schemas": {name: as_sent(schema) for name, schema in components.items()} | {"Refusal": REFUSAL},
        },
    }


def _operation(route: Route, gives: Any, takes: Any) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _name_schema(name, route.path)}
        for name in NAME.findall(route.path)
    ]
    answer: dict[str, Any] = {"description": route.about}
    if gives is not None:
        answer["content"] = {route.media: {"schema": as_sent(gives)}}
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        "tags": [route.name.partition(".")[0]],
        "parameters": [*parameters, *_query(route.query)],
        "responses": {"200" if gives is not None else "204": answer, "4XX": REFUSED, "5XX": REFUSED},
    }
    if takes is not None:
        operation["requestBody"] = {
            "required": not route.optional,
            "content": {"application/json": {"schema": as_sent(takes)}},
        }
    return operation


def _name_schema(name: str, path: str) -> dict[str, Any]:
    """What a name in a path looks like. A request is a permission's or a question's, by the path."""
    kind = KINDS.get(name) or ("permission" if "/permission/" in path else "question")
    if name not in KINDS and name != "requestID":
        return {"type": "string", "minLength": 1}
    return {"type": "string", "pattern": f"^{PREFIXES[kind]}_[0-9A-Za-z]{{20,40}}$"}


def _query(kind: type[Struct]) -> list[dict[str, Any]]:
    directory = {"name": "directory", "in": "query", "required": False, "schema": {"type": "string"}}
    schema = msgspec.json.schema(kind, ref_template="#/{name}")
    schema = schema["$defs"][kind.__name__] if "$defs" in schema else schema
    fields, required = schema.get("properties", {}), schema.get("required", ())
    asked = [
        {"name": name, "in": "query", "required": name in required, "schema": _present(shape)}
        for name, shape in fields.items()
        if name != "directory"
    ]
    return [directory, *asked]


def _present(shape: dict[str, Any]) -> dict[str, Any]:
    """A thing in an address is there or not; it is never null."""
    kinds = [each for each in shape.get("anyOf", ()) if each != {"type": "null"}]
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else shape


def as_sent(schema: Any) -> Any:
    """A schema as the wire has it: the place where we keep unknown fields is no field, more may come than we know, and
    exact decimals are numbers."""
    if isinstance(schema, list):
        return [as_sent(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "decimal":
        return {**{name: each for name, each in schema.items() if name != "format"}, "type": "number"}
    sent = {
        name: as_sent(each)
        for name, each in schema.items()
        if name != "additionalProperties" or each is not False
    }
    if isinstance(sent.get("properties"), dict):
        sent["properties"].pop(EXTRA, None)
    return sent
