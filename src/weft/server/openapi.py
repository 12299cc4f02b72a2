"""Build the OpenAPI document from the routes and their types."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from weft.model.ids import PREFIXES
from weft.model.wire import EXTRA
from weft.server.route import HttpOperation

# The schema names that clients generate code from, for classes that have another name here.
PUBLISHED_NAMES = {
    "AgentInfo": "Agent",
    "DirectoryEntry": "Entry",
    "HealthInfo": "Health",
    "LocatedData": "Located",
    "LoginInstructions": "Authorization",
    "LoginMethodInfo": "Way",
    "ModelApiInfo": "Api",
    "RequestOptions": "Request",
    "SessionInfo": "Session",
    "SessionUpdateInput": "Change",
    "TuiRequest": "Asked",
}
SCHEMA_REF = "#/components/schemas/"
PATH_PARAMETER = re.compile(r"\{(\w+)\}")
ID_KINDS = {
    "sessionID": "session",
    "messageID": "message",
    "partID": "part",
    "permissionID": "permission",
    "ptyID": "pty",
    "grantID": "grant",
}
# Several kinds of requests are called `requestID`: the part of the path before it says which kind it is.
REQUEST_KINDS = {"permission": "permission", "question": "question", "client-tool": "tool"}
ERROR_SCHEMA = {
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
ERROR_RESPONSE = {
    "description": "The error",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}},
}


def to_document(routes: Iterable[HttpOperation], *, version: str) -> dict[str, Any]:
    """Return the OpenAPI document of the routes."""
    all_routes = tuple(routes)
    types = [type_ for route in all_routes for type_ in (route.returns, route.takes) if type_ is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=SCHEMA_REF + "{name}")
    schema = iter(schemas)
    paths: dict[str, Any] = {}
    for route in all_routes:
        returned = next(schema) if route.returns is not None else None
        takes = next(schema) if route.takes is not None else None
        paths.setdefault(route.path, {})[route.method.lower()] = _to_operation(route, returned, takes)
    return {
        "openapi": "3.1.0",
        "info": {"title": "weft", "version": version, "description": "Sessions of coding agents over HTTP"},
        "security": [{"password": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"password": {"type": "http", "scheme": "basic"}},
            "schemas": {
                _to_published_name(name): _to_component(schema) for name, schema in components.items()
            }
            | {"Refusal": ERROR_SCHEMA},
        },
    }


def _to_published_name(name: str) -> str:
    """Return the published name of a schema. The name of a generic class contains the names of its arguments."""
    return re.sub(r"[A-Za-z]+", lambda word: PUBLISHED_NAMES.get(word[0], word[0]), name)


def _to_component(schema: dict[str, Any]) -> Any:
    component = to_wire_schema(schema)
    return (
        component | {"title": _to_published_name(component["title"])} if "title" in component else component
    )


def _to_operation(route: HttpOperation, returned: Any, takes: Any) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _to_path_schema(name, route.path)}
        for name in PATH_PARAMETER.findall(route.path)
    ]
    response: dict[str, Any] = {"description": route.about}
    if returned is not None:
        response["content"] = {route.media: {"schema": to_wire_schema(returned)}}
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        "tags": [route.name.partition(".")[0]],
        "parameters": [*parameters, *_to_parameters(route.query)],
        "responses": {
            "200" if returned is not None else "204": response,
            "4XX": ERROR_RESPONSE,
            "5XX": ERROR_RESPONSE,
        },
    }
    if takes is not None:
        operation["requestBody"] = {
            "required": not route.optional,
            "content": {"application/json": {"schema": to_wire_schema(takes)}},
        }
    return operation


def _to_path_schema(name: str, path: str) -> dict[str, Any]:
    """Return the schema of a path parameter."""
    if name == "requestID":
        kind = REQUEST_KINDS[path.partition("/{requestID}")[0].rpartition("/")[2]]
    elif name in ID_KINDS:
        kind = ID_KINDS[name]
    else:
        return {"type": "string", "minLength": 1}
    return {"type": "string", "pattern": f"^{PREFIXES[kind]}_[0-9A-Za-z]{{20,40}}$"}


def _to_parameters(kind: type[Struct]) -> list[dict[str, Any]]:
    directory = {"name": "directory", "in": "query", "required": False, "schema": {"type": "string"}}
    schema = msgspec.json.schema(kind, ref_template="#/{name}")
    schema = schema["$defs"][kind.__name__] if "$defs" in schema else schema
    fields, required = schema.get("properties", {}), schema.get("required", ())
    declared = [
        {"name": name, "in": "query", "required": name in required, "schema": _drop_null(schema)}
        for name, schema in fields.items()
        if name != "directory"
    ]
    return [directory, *declared]


def _drop_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null from a schema: a query parameter is present or absent, never null."""
    schemas = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas} if schemas else schema


def to_wire_schema(schema: Any) -> Any:
    """Return a schema as it is on the wire.

    The field in which we keep unknown fields is not part of it, objects may have more fields than we know, and
    decimals are numbers.
    """
    if isinstance(schema, list):
        return [to_wire_schema(each) for each in schema]
    if isinstance(schema, str) and schema.startswith(SCHEMA_REF):
        return _to_published_name(schema)
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "decimal":
        return {**{name: each for name, each in schema.items() if name != "format"}, "type": "number"}
    result = {
        name: to_wire_schema(each)
        for name, each in schema.items()
        if name != "additionalProperties" or each is not False
    }
    if isinstance(result.get("properties"), dict):
        result["properties"].pop(EXTRA, None)
    return result
