"""Convert the content of an editor's prompt to the input of a run, and back to show a conversation (pure)."""

import base64
import mimetypes
import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

from acp.schema import (
    Annotations,
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
)

from weft.errors import InvalidInputError
from weft.model.input import FileInput, TextInput
from weft.model.part import FilePart

Block = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)
PromptContent = TextInput | FileInput
# How editors name lines of a file: `#L3`, `#L3-9`, `#L3:9`, `#3-9`.
LINE_RANGE: Final = re.compile(r"L?(\d+)(?:[-:]L?(\d+))?")
SLASH_COMMAND: Final = re.compile(r"/([^\s/]+)(?:\s+(.*))?", re.DOTALL)
MAX_PICTURE_LENGTH: Final = 4 << 20


def to_parts(blocks: Iterable[Block]) -> tuple[PromptContent, ...]:
    """Return the parts of a prompt. Raise `InvalidInputError` if weft cannot use a block."""
    return tuple(_to_part_or_refuse(number, block) for number, block in enumerate(blocks))


def find_command(parts: Sequence[PromptContent]) -> tuple[str, str] | None:
    """Return name and arguments of a slash command, None if the text of a prompt is not one."""
    text = "".join(part.text for part in parts if isinstance(part, TextInput) and not part.synthetic)
    match = SLASH_COMMAND.fullmatch(text.strip())
    return (match[1], (match[2] or "").strip()) if match else None


def _to_part_or_refuse(number: int, block: Block) -> PromptContent:
    try:
        return _to_part(number, block)
    except ValueError as error:
        raise InvalidInputError(f"prompt[{number}]", f"its uri is invalid: {error}") from error


def _to_part(number: int, block: Block) -> PromptContent:
    match block:
        case TextContentBlock(text=text):
            return _to_text(text, block.annotations)
        case ImageContentBlock(data=data, mime_type=mime, uri=uri):
            url = f"data:{mime};base64,{data}" if data else uri or ""
            return FileInput(mime=mime, filename=_find_name(uri), url=url)
        case ResourceContentBlock(name=name, uri=uri, mime_type=mime):
            return _to_link(name, uri, mime)
        case EmbeddedResourceContentBlock(resource=BlobResourceContents() as resource):
            mime = resource.mime_type or _guess_mime(resource.uri)
            return FileInput(
                mime=mime, filename=_find_name(resource.uri), url=f"data:{mime};base64,{resource.blob}"
            )
        case EmbeddedResourceContentBlock(resource=resource):
            data = base64.b64encode(resource.text.encode(errors="replace")).decode()
            name = _find_path(resource.uri) or resource.uri
            return FileInput(mime="text/plain", filename=name, url=f"data:text/plain;base64,{data}")
        case AudioContentBlock():
            raise InvalidInputError(f"prompt[{number}]", "weft does not accept audio")


def _to_text(text: str, annotations: Annotations | None) -> TextInput:
    """Return a text for the model only, for the person only, or for both, as OpenCode does."""
    audience = (annotations.audience if annotations else None) or []
    return TextInput(text=text, synthetic=audience == ["assistant"], ignored=audience == ["user"])


def _to_link(name: str, uri: str, mime: str | None) -> PromptContent:
    parts = urlsplit(uri)
    if parts.scheme != "file":
        # A resource that only the editor can open is named to the model; it is not fetched without asking.
        return TextInput(text=f"[{name}]({uri})")
    match = LINE_RANGE.fullmatch(parts.fragment)
    lines = f"?start={match[1]}&end={match[2] or match[1]}" if match else ""
    guess = mime or _guess_mime(parts.path)
    mime_type = guess if guess.startswith("image/") or guess == "application/pdf" else "text/plain"
    return FileInput(
        mime=mime_type, filename=_find_name(parts.path) or name, url=f"file://{parts.path}{lines}"
    )


def _find_path(uri: str | None) -> str | None:
    parts = urlsplit(uri or "")
    return unquote(parts.path) if parts.scheme in ("file", "") and parts.path else None


def _find_name(uri: str | None) -> str | None:
    path = _find_path(uri)
    return path.rstrip("/").rpartition("/")[2] or None if path else None


def _guess_mime(uri: str) -> str:
    return mimetypes.guess_type(urlsplit(uri).path)[0] or "application/octet-stream"


def to_file_block(part: FilePart) -> Block:
    """Return a file of a prompt, to show it again."""
    name = part.filename or "a file"
    if not part.url.startswith("data:"):
        return ResourceContentBlock(type="resource_link", name=name, uri=part.url, mime_type=part.mime)
    head, _, data = part.url.partition(",")
    if part.mime.startswith("image/") and head.endswith(";base64") and len(data) <= MAX_PICTURE_LENGTH:
        return ImageContentBlock(type="image", data=data, mime_type=part.mime)
    return to_text_block(f"[{name}]")


def to_text_block(text: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=text)
