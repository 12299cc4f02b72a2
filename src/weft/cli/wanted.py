"""A value instead of words: the schema that `weft run --json-schema` names, and the value that came of it."""

import os
from typing import Any

from msgspec import UNSET

from weft.errors import DocumentError, InvalidInputError
from weft.model.message import AssistantMessage, JsonFormat, MessageWithParts
from weft.model.wire import parse

FLAG = "--json-schema"


def read_format(given: str | None) -> JsonFormat | None:
    """What was named: a schema as it stands, or a file that holds one."""
    if given is None:
        return None
    schema = parse_schema(given.encode() if given.lstrip().startswith("{") else _read(given))
    if not isinstance(schema, dict):
        raise InvalidInputError(FLAG, "a JSON schema is an object")
    return JsonFormat(schema=schema)


def parse_schema(raw: bytes) -> Any:
    try:
        return parse(raw, where=FLAG)
    except DocumentError as error:
        raise InvalidInputError(FLAG, error.reason) from error


def _read(path: str) -> bytes:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidInputError(
            FLAG, f"cannot read {path!r}: {error.strerror}", hint="name a file, or write the schema itself"
        ) from error


def value_of(answer: MessageWithParts) -> Any:
    """The value an answer gives; `UNSET` if it gives none."""
    return answer.info.structured if isinstance(answer.info, AssistantMessage) else UNSET
