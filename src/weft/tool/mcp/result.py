"""Convert answers of MCP servers to tool results, prompt texts and attachments (pure)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from weft.errors import McpError
from weft.tool.contract import Attachment, ToolResult
from weft.tool.mcp.contract import ResourcePiece
from weft.tool.mcp.entry import to_single_line
from weft.tool.truncate import MAX_BYTES

MAX_FILES: Final = 20
MAX_TOTAL_FILE_BYTES: Final = 20 << 20
MAX_PROMPT_CHARACTERS: Final = 200_000
MAX_LABEL_LENGTH: Final = 200
_MIME: Final = re.compile(r"[a-z0-9][a-z0-9.+_-]{0,60}/[a-z0-9][a-z0-9.+_-]{0,90}")


def to_result(answer: Mapping[str, Any]) -> ToolResult:
    """Convert the answer to a call: join the texts by blank lines, and attach pictures and other files.

    Raise `McpError` with the server's text if it reports a failure. OpenCode shows failures as a success.
    """
    texts: list[str] = []
    files: list[Attachment] = []
    left_out = 0
    for item in _list_items(answer.get("content")):
        text, file = _convert_item(item)
        if text:
            texts.append(text)
        if (
            file is not None
            and len(files) < MAX_FILES
            and _measure_files(files) + len(file.url) <= MAX_TOTAL_FILE_BYTES
        ):
            files.append(file)
        elif file is not None:
            left_out += 1
    if not texts and not files and answer.get("structuredContent") is not None:
        texts.append(msgspec.json.encode(answer["structuredContent"]).decode())
    if left_out:
        texts.append(f"[{left_out} more files left out: there are too many, or they are too large]")
    output = "\n\n".join(texts)
    if answer.get("isError"):
        raise McpError(_truncate_error(output) or "The tool failed, and did not say why.")
    meta = answer.get("_meta")
    return ToolResult(
        title="",
        output=output,
        metadata=dict(meta) if isinstance(meta, dict) and "truncated" not in meta else {},
        attachments=tuple(files),
    )


def _list_items(content: Any) -> Iterator[dict[str, Any]]:
    for item in content if isinstance(content, list) else ():
        if isinstance(item, dict):
            yield item


def _measure_files(files: list[Attachment]) -> int:
    return sum(len(file.url) for file in files)


def _convert_item(item: dict[str, Any]) -> tuple[str, Attachment | None]:
    match item:
        case {"type": "text", "text": str(text)}:
            return text, None
        case {"type": "image" | "audio", "data": str(data), "mimeType": str(mime)}:
            return "", Attachment(mime=_clean_mime(mime), url=_make_data_url(mime, data))
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text, None
        case {"type": "resource", "resource": {"blob": str(data), **more}}:
            mime, uri = str(more.get("mimeType") or ""), str(more.get("uri") or "")
            return "", Attachment(
                mime=_clean_mime(mime),
                url=_make_data_url(mime, data),
                filename=to_single_line(uri, MAX_LABEL_LENGTH) or None,
            )
        case {"type": "resource_link", "uri": str(uri), **more}:
            return (
                f"[resource {to_single_line(str(more.get('name') or ''), MAX_LABEL_LENGTH)}: {to_single_line(uri, MAX_LABEL_LENGTH)}]",
                None,
            )
        case _:
            kind = to_single_line(str(item.get("type")), MAX_LABEL_LENGTH)
            return f"[left out: content of an unknown kind ({kind})]", None


def _truncate_error(text: str) -> str:
    """Limit the text of a failure, which is shown to the model as a whole."""
    return text if len(text) <= MAX_BYTES else f"{text[:MAX_BYTES]}…"


def _clean_mime(mime: str) -> str:
    media_type = mime.partition(";")[0].strip().lower()
    return media_type if _MIME.fullmatch(media_type) else "application/octet-stream"


def _make_data_url(mime: str, data: str) -> str:
    return f"data:{_clean_mime(mime)};base64,{''.join(data.split())}"


# --- prompts ---


def to_prompt_text(answer: Mapping[str, Any]) -> str:
    """Return the text of a rendered prompt, regardless of its roles."""
    messages = answer.get("messages")
    texts = [
        _read_text(message.get("content"))
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, dict)
    ]
    return "\n".join(text for text in texts if text)[:MAX_PROMPT_CHARACTERS]


def _read_text(content: Any) -> str:
    match content:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case _:
            return ""


# --- resources ---


def to_pieces(answer: Mapping[str, Any]) -> tuple[ResourcePiece, ...]:
    """Convert the content of a resource. A file that is too large is replaced by a note."""
    pieces: list[ResourcePiece] = []
    for item in _list_items(answer.get("contents")):
        match item:
            case {"text": str(text)}:
                pieces.append(ResourcePiece(text=text))
            case {"blob": str(data), **more} if len(data) <= MAX_TOTAL_FILE_BYTES:
                mime = str(more.get("mimeType") or "")
                pieces.append(
                    ResourcePiece(file=Attachment(mime=_clean_mime(mime), url=_make_data_url(mime, data)))
                )
            case {"blob": str()}:
                pieces.append(ResourcePiece(text="[left out: a file that is too large]"))
            case _:
                pass
    return tuple(pieces)
