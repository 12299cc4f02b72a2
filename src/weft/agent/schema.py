"""The type of an answer: its JSON schema for the model, and its value for the caller."""

import sys
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar, get_args, runtime_checkable

import msgspec
from msgspec import Struct

from weft.errors import InvalidInputError
from weft.run.json_schema import check_schema

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""A JSON value."""

T = TypeVar("T")

HINT = "use a dataclass, a TypedDict, a msgspec struct, a pydantic model, or a JSON schema as a dict"


@runtime_checkable
class PydanticModel(Protocol):
    """A pydantic model, known by its methods, so that pydantic is not imported."""

    def model_json_schema(self) -> dict[str, object]: ...

    def model_validate(self, value: object) -> object: ...


class AnswerType(Struct, frozen=True):
    """A requested type: the JSON schema that the model sees, and the function that makes the value from JSON."""

    schema: dict[str, object]
    convert: Callable[[object], object]


def to_answer_type(schema: object) -> AnswerType:
    """Return what is needed to request a value of a type. Raise `InvalidInputError` if JSON cannot express the type."""
    if isinstance(schema, Mapping):
        given = dict(schema)
        check_schema(given, where="schema")
        return AnswerType(given, lambda value: value)
    if isinstance(schema, type) and isinstance(schema, PydanticModel):
        return AnswerType(schema.model_json_schema(), schema.model_validate)
    if hasattr(schema, "__pydantic_validator__"):
        adapter = sys.modules["pydantic"].TypeAdapter(schema)  # a pydantic dataclass: pydantic is loaded
        return AnswerType(adapter.json_schema(), adapter.validate_python)
    if not isinstance(schema, type) and not get_args(schema):
        raise InvalidInputError("schema", f"{schema!r} is not a type", hint=HINT)
    try:
        (root,), components = msgspec.json.schema_components((schema,), ref_template="#/$defs/{name}")
    except (TypeError, ValueError) as error:
        reason = str(error).rpartition("\n")[2]  # msgspec explains first what it can express
        raise InvalidInputError("schema", f"JSON cannot express it: {reason}", hint=HINT) from error
    return AnswerType(
        _inline_root(root, components), lambda value: msgspec.convert(value, type=schema, strict=False)
    )


def _inline_root(root: dict[str, object], components: dict[str, object]) -> dict[str, object]:
    """Return the schema with its top written out: some APIs refuse a bare reference there."""
    reference = root.get("$ref")
    if not isinstance(reference, str):
        return {**root, "$defs": components} if components else root
    top = components[reference.rpartition("/")[2]]
    assert isinstance(top, dict), "a component is an object"
    rest = {name: each for name, each in components.items() if each is not top}
    if f'"{reference}"' in msgspec.json.encode(components).decode():  # a type that contains itself
        rest = components
    return {**top, "$defs": rest} if rest else top
