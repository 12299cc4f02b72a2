"""Helpers that express the rules of an API: a condition on a body, and the message that it is refused with."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

Json = dict[str, Any]
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


class RefusedError(Exception):
    """The API would refuse the request with this message."""


def require(truth: object, sentence: str) -> None:
    if not truth:
        raise RefusedError(sentence)


def need_keys(value: Any, known: frozenset[str] | set[str], where: str) -> Json:
    """Require an object without unknown fields."""
    require(isinstance(value, dict), f"{where}: Input should be an object")
    for name in value:
        require(name in known, f"{where}.{name}: Extra inputs are not permitted")
    found: Json = value
    return found


def need_list(value: Any, where: str) -> list[Any]:
    require(isinstance(value, list) and value, f"{where}: at least one item is required")
    found: list[Any] = value
    return found


def need_text(value: Any, where: str) -> str:
    require(isinstance(value, str) and value.strip(), f"{where}: text must contain non-whitespace text")
    return str(value)


def need_base64(value: Any, where: str) -> None:
    require(isinstance(value, str) and value, f"{where}: data cannot be empty")
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise RefusedError(f"{where}: invalid base64 data") from None


def need_format(given: Json, where: str) -> None:
    """Require the schema of an object. A strict schema must require every field and allow no other."""
    schema = given.get("schema")
    require(
        isinstance(schema, dict) and schema.get("type") == "object",
        f"{where}: schema must be of type 'object'",
    )
    for node in _list_schemas(schema) if given.get("strict") else ():
        if node.get("type") == "object" or "properties" in node:
            whole = sorted(node.get("required", ())) == sorted(node.get("properties", {}))
            require(
                whole, f"{where}: 'required' is required to be an array including every key in properties"
            )
            require(
                node.get("additionalProperties") is False, f"{where}: 'additionalProperties' must be false"
            )


def _list_schemas(schema: Any) -> Iterable[Json]:
    """Yield the schema and all schemas inside it."""
    if isinstance(schema, list):
        for each in schema:
            yield from _list_schemas(each)
    elif isinstance(schema, dict):
        yield schema
        for name, each in schema.items():
            inner = each.values() if name in ("properties", "$defs", "definitions") else [each]
            for one in inner if isinstance(each, dict | list) else ():
                yield from _list_schemas(one)


def find_first_of_turn(messages: Sequence[Json], is_result: Callable[[Json], bool]) -> Json | None:
    """Return the answer that began the current turn of calls and results; None if the user speaks last."""

    def continues_turn(message: Json, enough: Callable[[Iterable[bool]], bool]) -> bool:
        blocks = message["content"] if isinstance(message["content"], list) else []
        return bool(blocks) and enough(is_result(block) for block in blocks if "cachePoint" not in block)

    if len(messages) < 2 or not continues_turn(messages[-1], any):
        return None
    first = len(messages) - 2
    while first > 1 and continues_turn(messages[first - 1], all):
        first -= 2
    return messages[first]
