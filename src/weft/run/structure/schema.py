"""Hold a value against a JSON schema, and a schema against itself. Nothing is ever fetched for it."""

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, Final

from weft.errors import InvalidInputError

MOST: Final = 8
LONGEST: Final = 300


def check_schema(schema: dict[str, Any], *, where: str) -> None:
    """Raises `InvalidInputError` if this is no schema, or one that refers to what is not in it."""
    # The library takes longer to load than all of weft, and few prompts want a value.
    jsonschema = import_module("jsonschema")
    try:
        type(_validator(schema)).check_schema(schema)
        lost = next((ref for ref in _references(schema) if not _is_found(schema, ref)), None)
    except jsonschema.SchemaError as error:
        raise InvalidInputError(where, f"no JSON schema: {_told(error)}") from error
    except RecursionError as error:
        raise InvalidInputError(where, "it is nested too deeply") from error
    if lost is not None:
        raise InvalidInputError(where, f"it refers to {lost!r}, which is not in it")


def list_faults(value: Any, schema: dict[str, Any]) -> list[str]:
    """What is wrong with a value, a line each and not too many; nothing if it keeps to the schema."""
    try:
        faults = sorted(_validator(schema).iter_errors(value), key=lambda error: list(map(str, error.path)))
    except RecursionError:
        return ["the value is nested too deeply"]
    told = [_told(fault) for fault in faults]
    more = [f"and {len(told) - MOST} more"] if len(told) > MOST else []
    return [*told[:MOST], *more]


def _validator(schema: dict[str, Any]) -> Any:
    validators, referencing = import_module("jsonschema.validators"), import_module("referencing")
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    # With a registry of our own nothing outside the schema is looked up: the library's own would ask the network.
    return kind(schema, registry=referencing.Registry())


def _is_found(schema: dict[str, Any], ref: str) -> bool:
    referencing, drafts = import_module("referencing"), import_module("referencing.jsonschema")
    whole = referencing.Resource.from_contents(schema, default_specification=drafts.DRAFT202012)
    try:
        referencing.Registry().with_resource("", whole).resolver().lookup(ref)
    except referencing.exceptions.Unresolvable:
        return False
    return ref.startswith("#")


def _told(error: Any) -> str:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.path)
    words = str(error.message)
    return f"${place}: {words if len(words) <= LONGEST else words[: LONGEST - 1] + '…'}"


def _references(node: Any) -> Iterator[str]:
    below: Iterable[Any] = ()
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        below = node.values()
    elif isinstance(node, list):
        below = node
    for each in below:
        yield from _references(each)
