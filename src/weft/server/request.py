"""Read a request: bounded, decoded into the route's own types, and refused with the reason when it does not fit."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import Struct

from weft.errors import DocumentError, InvalidInputError
from weft.model.wire import decode
from weft.server.route import Route

MOST_BYTES: Final = 32 * 1024 * 1024
DEEPEST: Final = 64
MOST_QUERY: Final = 64
STRING: Final = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL
)  # by the run: by the byte it costs seconds
OPENING: Final = b"[{"
MISSING: Final = re.compile(r"Object missing required field `(\w+)`")
OTHERWISE: Final = re.compile(r"Expected (.+?)(?:, got `str`)? - at `\$\.(\w+)`")
NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))

Receive = Callable[[], Awaitable[Any]]


class TooLargeError(Exception):
    """A body of more bytes than we take."""


async def read_body(receive: Receive, headers: Mapping[str, str]) -> bytes:
    """The body whole. Raises `TooLargeError` as soon as that is known."""
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > MOST_BYTES:
        raise TooLargeError
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidInputError("body", "it broke off")
        piece: bytes = message.get("body", b"")
        size, more = size + len(piece), message.get("more_body", False)
        if size > MOST_BYTES:
            raise TooLargeError
        pieces.append(piece)
    return b"".join(pieces)


def to_value(route: Route, raw: bytes, content_type: str) -> Any:
    """The body as what the route takes. Raises `InvalidInputError` or `DocumentError`."""
    if route.takes is None:
        return None
    if not raw.strip():
        if route.optional:
            return None
        raise InvalidInputError("body", "it is missing")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise InvalidInputError("content-type", "a body is application/json")
    if is_deep(raw):
        raise DocumentError("body", f"nested more than {DEEPEST} deep")
    return decode(raw, route.takes, where="body")


def is_deep(raw: bytes) -> bool:
    """Whether brackets are nested beyond reason; those inside strings are not counted."""
    if raw.count(b"[") + raw.count(b"{") <= DEEPEST:
        return False  # a picture in a prompt: many megabytes, few brackets
    depth = 0
    for byte in STRING.sub(b"", raw).translate(None, NO_BRACKETS):
        depth += 1 if byte in OPENING else -1
        if depth > DEEPEST:
            return True
    return False


def to_query(kind: type[Struct], query_string: bytes) -> Struct:
    """The query as the route's own type. What a route does not know is passed over, as clients expect."""
    given = dict(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)[:MOST_QUERY])
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    asked = {name: value for name, value in given.items() if name in known}
    try:
        return msgspec.convert(asked, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _named(str(error)) from error


def _named(fault: str) -> InvalidInputError:
    """What is wrong with a query, by the name that stands in the address, where all that is said is words."""
    if missing := MISSING.fullmatch(fault):
        return InvalidInputError(missing[1], "it is missing")
    if other := OTHERWISE.fullmatch(fault):
        return InvalidInputError(other[2], f"it is expected to be {other[1].replace(' | null', '')}")
    return InvalidInputError("query", fault)


def directory_in(query_string: bytes, headers: Mapping[str, str]) -> str:
    """Return the directory that a request names, in its query or else in a header; "" if it names none.

    Clients encode it once or twice or not at all; decoding once more does no harm to any of them.
    """
    query = dict(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)[:MOST_QUERY])
    given = (
        query.get("directory")
        or query.get("location[directory]")
        or headers.get("x-opencode-directory")
        or ""
    )
    return unquote(given)
