"""Keep what another framework wrote beside what weft shows of it, so that it is loaded as it was.

A message of weft holds one or more records: items or messages of the framework. Each record is stored as it is, in the metadata of the
message, and its text, reasoning, files and calls are stored as parts.
"""

import base64
import binascii
import mimetypes
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import DocumentError
from weft.model.message import MessageWithParts
from weft.model.part import Tokens
from weft.model.wire import encode, parse
from weft.session.append import NewContent, NewFile, NewMessage, NewToolResult, Role

ANY_MIME = "application/octet-stream"


class Record(Struct, frozen=True, kw_only=True):
    """One item or message of a framework, and what weft shows of it. If it `starts`, it is not added to the message before it."""

    raw: Mapping[str, object]
    role: Role
    content: tuple[NewContent, ...] = ()
    starts: bool = False
    model: str = ""
    tokens: Tokens | None = None


def group_records(framework: str, records: Iterable[Record]) -> list[NewMessage]:
    """Return the messages to append for records, in order."""
    groups: list[list[Record]] = []
    for record in records:
        if groups and not record.starts and groups[-1][0].role == record.role:
            groups[-1].append(record)
        else:
            groups.append([record])
    return [_to_message(framework, group) for group in groups]


def _to_message(framework: str, group: list[Record]) -> NewMessage:
    first = group[0]
    return NewMessage(
        role=first.role,
        content=tuple(content for record in group for content in record.content),
        model=first.model,
        tokens=first.tokens,
        metadata={framework: [record.raw for record in group]},
    )


def find_raw_records(framework: str, message: MessageWithParts) -> list[dict[str, Any]] | None:
    """Return the records of a message as the framework wrote them; None if it did not write the message."""
    found = (message.info.metadata or {}).get(framework)
    return found if isinstance(found, list) else None


def read_arguments(arguments: object) -> dict[str, Any]:
    """Return the arguments of a call, which many APIs write as JSON in a text. A value that is not an object is put into one."""
    value: Any = arguments
    if isinstance(arguments, str):
        try:
            value = parse(arguments.encode("utf-8", "surrogatepass")) if arguments.strip() else {}
        except DocumentError:
            value = arguments
    if value is None:
        return {}
    return dict(value) if isinstance(value, Mapping) else {"input": value}


def to_text(value: object) -> str:
    """Return text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else encode(value).decode()


def make_result(call_id: object, value: object, *, failed: bool = False, tool: object = "") -> NewToolResult:
    text = to_text(value)
    result = NewToolResult(str(call_id), error=text) if failed else NewToolResult(str(call_id), text)
    return replace(result, tool=tool) if isinstance(tool, str) and tool else result


def make_file(url: object, *, mime: object = None, filename: object = None) -> list[NewFile]:
    """Return the file at a URL; nothing if the framework names none."""
    if not isinstance(url, str) or not url:
        return []
    name = filename if isinstance(filename, str) else None
    return [NewFile(url, mime if isinstance(mime, str) and mime else _guess_mime(url, name), name)]


def make_data_url(data: object, mime: object) -> str:
    """Return base64 data as a URL; "" if it is not base64."""
    if not isinstance(data, str):
        return ""
    try:
        # pydantic writes base64 with the URL-safe alphabet; data URLs use the standard one.
        raw = base64.urlsafe_b64decode(data.replace("+", "-").replace("/", "_"))
    except (binascii.Error, ValueError):
        return ""
    return f"data:{mime if isinstance(mime, str) else ANY_MIME};base64,{base64.b64encode(raw).decode()}"


def _guess_mime(url: str, name: str | None) -> str:
    if url.startswith("data:"):
        return url[len("data:") :].partition(",")[0].partition(";")[0] or "text/plain"
    return mimetypes.guess_type(name or url)[0] or ANY_MIME
