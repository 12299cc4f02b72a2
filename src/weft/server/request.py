"""Read requests: bounded in size, decoded into the types of the route."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import Struct

from weft.errors import DocumentError, InvalidInputError
from weft.model.wire import decode
from weft.server.route import Route

MAX_BODY_BYTES: Final = 32 * 1024 * 1024
MAX_LENGTH_DIGITS: Final = 20
MAX_DEPTH: Final = 64
MAX_QUERY_FIELDS: Final = 64
# Possessive quantifiers: with backtracking a long string costs seconds. A string without an end reaches to the end of the
# text: otherwise the search would start again at each of its escaped quotes.
JSON_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
OPENING_BRACKETS: Final = b"[{"
MISSING_FIELD: Final = re.compile(r"Object missing required field `(\w+)`")
WRONG_TYPE: Final = re.compile(r"Expected (.+?)(?:, got `str`)? - at `\$\.(\w+)`")
NON_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))

Receive = Callable[[], Awaitable[Any]]


class BodyTooLargeError(Exception):
    """The body is larger than the server accepts."""


async def read_body(receive: Receive, headers: Mapping[str, str]) -> bytes:
    """Read the whole body. Raise `BodyTooLargeError` as soon as it is known to be too large."""
    length = headers.get("content-length", "")
    # Python refuses to read a number with thousands of digits.
    if length.isdecimal() and int(length[:MAX_LENGTH_DIGITS]) > MAX_BODY_BYTES:
        raise BodyTooLargeError
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidInputError("body", "the client disconnected before its end")
        piece: bytes = message.get("body", b"")
        size, more = size + len(piece), message.get("more_body", False)
        if size > MAX_BODY_BYTES:
            raise BodyTooLargeError
        pieces.append(piece)
    return b"".join(pieces)


def decode_body(route: Route, raw: bytes, content_type: str) -> Any:
    """Return the body as the type that the route takes. Raise `InvalidInputError` or `DocumentError` if it is not one."""
    if route.takes is None:
        return None
    if not raw.strip():
        if route.optional:
            return None
        raise InvalidInputError("body", "it is missing")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise InvalidInputError("content-type", "a body is application/json")
    if is_too_deep(raw):
        raise DocumentError("body", f"nested more than {MAX_DEPTH} deep")
    return decode(raw, route.takes, where="body")


def is_too_deep(raw: bytes) -> bool:
    """Return True if brackets outside of strings are nested too deeply."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False  # a prompt with a picture: many megabytes, few brackets
    depth = 0
    for byte in JSON_STRING.sub(b"", raw).translate(None, NON_BRACKETS):
        depth += 1 if byte in OPENING_BRACKETS else -1
        if depth > MAX_DEPTH:
            return True
    return False


def decode_query(kind: type[Struct], query_string: bytes) -> Struct:
    """Return the query as the type that the route declares. Unknown parameters are ignored, as clients expect."""
    parameters = dict(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)[:MAX_QUERY_FIELDS])
    values = {name: value for name, value in parameters.items() if name in kind.__struct_encode_fields__}
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _to_input_error(str(error)) from error


def _to_input_error(message: str) -> InvalidInputError:
    """Return the error for a query, named after the parameter that is wrong."""
    if missing := MISSING_FIELD.fullmatch(message):
        return InvalidInputError(missing[1], "it is missing")
    if wrong := WRONG_TYPE.fullmatch(message):
        return InvalidInputError(wrong[2], f"it must be {wrong[1].replace(' | null', '')}")
    return InvalidInputError("query", message)


def find_directory(query_string: bytes, headers: Mapping[str, str]) -> str:
    """Return the directory that a request names in its query or in a header, "" if it names none.

    Clients encode the value once, twice or not at all; decoding it once more is harmless.
    """
    query = dict(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)[:MAX_QUERY_FIELDS])
    directory = (
        query.get("directory")
        or query.get("location[directory]")
        or headers.get("x-opencode-directory")
        or ""
    )
    return unquote(directory)
