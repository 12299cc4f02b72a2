"""What an MCP server answered, as results of tools, parts of prompts and templates of commands (pure)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from weft.errors import McpError
from weft.tool.contract import Attachment, ToolResult
from weft.tool.mcp.entry import legible
from weft.tool.truncate import MAX_BYTES

MOST_FILES: Final = 20
FILES_BYTES: Final = 20 << 20
PROMPT_CHARS: Final = 200_000
SHORT: Final = 200
_MIME: Final = re.compile(r"[a-z0-9][a-z0-9.+_-]{0,60}/[a-z0-9][a-z0-9.+_-]{0,90}")


def to_result(answer: Mapping[str, Any]) -> ToolResult:
    """What came of a call: texts joined by blank lines, pictures and other files beside them.

    Raises `McpError` with the server's words where it says that it failed. OpenCode shows those as a success.
    """
    texts: list[str] = []
    files: list[Attachment] = []
    left_out = 0
    for item in _items(answer.get("content")):
        text, file = _taken(item)
        if text:
            texts.append(text)
        if file is not None and len(files) < MOST_FILES and _size(files) + len(file.url) <= FILES_BYTES:
            files.append(file)
        elif file is not None:
            left_out += 1
    if not texts and not files and answer.get("structuredContent") is not None:
        texts.append(msgspec.json.encode(answer["structuredContent"]).decode())
    if left_out:
        texts.append(f"[{left_out} more files left out: there are too many, or they are too large]")
    output = "\n\n".join(texts)
    if answer.get("isError"):
        raise McpError(_short(output) or "The tool failed, and did not say why.")
    meta = answer.get("_meta")
    return ToolResult(
        title="",
        output=output,
        metadata=dict(meta) if isinstance(meta, dict) and "truncated" not in meta else {},
        attachments=tuple(files),
    )


def _items(content: Any) -> Iterator[dict[str, Any]]:
    for item in content if isinstance(content, list) else ():
        if isinstance(item, dict):
            yield item


def _size(files: list[Attachment]) -> int:
    return sum(len(file.url) for file in files)


def _taken(item: dict[str, Any]) -> tuple[str, Attachment | None]:
    match item:
        case {"type": "text", "text": str(text)}:
            return text, None
        case {"type": "image" | "audio", "data": str(data), "mimeType": str(mime)}:
            return "", Attachment(mime=_mime(mime), url=_data_url(mime, data))
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text, None
        case {"type": "resource", "resource": {"blob": str(data), **more}}:
            mime, uri = str(more.get("mimeType") or ""), str(more.get("uri") or "")
            return "", Attachment(
                mime=_mime(mime), url=_data_url(mime, data), filename=legible(uri, SHORT) or None
            )
        case {"type": "resource_link", "uri": str(uri), **more}:
            return f"[resource {legible(str(more.get('name') or ''), SHORT)}: {legible(uri, SHORT)}]", None
        case _:
            kind = legible(str(item.get("type")), SHORT)
            return f"[left out: content of a kind that is not known here ({kind})]", None


def _short(text: str) -> str:
    """What of a failure is shown: it goes to the model whole, so it has to have an end."""
    return text if len(text) <= MAX_BYTES else f"{text[:MAX_BYTES]}…"


def _mime(mime: str) -> str:
    head = mime.partition(";")[0].strip().lower()
    return head if _MIME.fullmatch(head) else "application/octet-stream"


def _data_url(mime: str, data: str) -> str:
    return f"data:{_mime(mime)};base64,{''.join(data.split())}"


# --- prompts ---


def to_words(answer: Mapping[str, Any]) -> str:
    """The words of a rendered prompt, whoever it says they are by."""
    messages = answer.get("messages")
    said = [
        _words(message.get("content"))
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, dict)
    ]
    return "\n".join(text for text in said if text)[:PROMPT_CHARS]


def _words(content: Any) -> str:
    match content:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case _:
            return ""


# --- resources ---


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a resource: words, or a file."""

    text: str = ""
    file: Attachment | None = None


def to_pieces(answer: Mapping[str, Any]) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    for item in _items(answer.get("contents")):
        match item:
            case {"text": str(text)}:
                pieces.append(Piece(text=text))
            case {"blob": str(data), **more} if len(data) <= FILES_BYTES:
                mime = str(more.get("mimeType") or "")
                pieces.append(Piece(file=Attachment(mime=_mime(mime), url=_data_url(mime, data))))
            case {"blob": str()}:
                pieces.append(Piece(text="[left out: a file that is too large]"))
            case _:
                pass
    return tuple(pieces)
