"""What an editor sends as a prompt, as what a run takes; and back, where a conversation is shown again (pure)."""

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
Given = TextInput | FileInput
# How editors name lines of a file: `#L3`, `#L3-9`, `#L3:9`, `#3-9`.
LINES: Final = re.compile(r"L?(\d+)(?:[-:]L?(\d+))?")
COMMAND: Final = re.compile(r"/([^\s/]+)(?:\s+(.*))?", re.DOTALL)
LARGEST_PICTURE: Final = 4 << 20


def to_parts(blocks: Iterable[Block]) -> tuple[Given, ...]:
    return tuple(_to_part(number, block) for number, block in enumerate(blocks))


def find_command(parts: Sequence[Given]) -> tuple[str, str] | None:
    """The name and the arguments of a slash command, if the words of a prompt are one."""
    words = "".join(part.text for part in parts if isinstance(part, TextInput) and not part.synthetic)
    found = COMMAND.fullmatch(words.strip())
    return (found[1], (found[2] or "").strip()) if found else None


def _to_part(number: int, block: Block) -> Given:
    match block:
        case TextContentBlock(text=text):
            return _words(text, block.annotations)
        case ImageContentBlock(data=data, mime_type=mime, uri=uri):
            url = f"data:{mime};base64,{data}" if data else uri or ""
            return FileInput(mime=mime, filename=_name(uri), url=url)
        case ResourceContentBlock(name=name, uri=uri, mime_type=mime):
            return _linked(name, uri, mime)
        case EmbeddedResourceContentBlock(resource=BlobResourceContents() as held):
            mime = held.mime_type or _kind(held.uri)
            return FileInput(mime=mime, filename=_name(held.uri), url=f"data:{mime};base64,{held.blob}")
        case EmbeddedResourceContentBlock(resource=held):
            data = base64.b64encode(held.text.encode(errors="replace")).decode()
            name = _path(held.uri) or held.uri
            return FileInput(mime="text/plain", filename=name, url=f"data:text/plain;base64,{data}")
        case AudioContentBlock():
            raise InvalidInputError(f"prompt[{number}]", "weft does not listen to recordings")


def _words(text: str, annotations: Annotations | None) -> TextInput:
    """For the model's eyes only, for the person's only, or for both, as OpenCode reads it."""
    audience = (annotations.audience if annotations else None) or []
    return TextInput(text=text, synthetic=audience == ["assistant"], ignored=audience == ["user"])


def _linked(name: str, uri: str, mime: str | None) -> Given:
    parts = urlsplit(uri)
    if parts.scheme != "file":
        # What only the editor can open is named to the model, and not fetched behind the person's back.
        return TextInput(text=f"[{name}]({uri})")
    found = LINES.fullmatch(parts.fragment)
    lines = f"?start={found[1]}&end={found[2] or found[1]}" if found else ""
    kind = mime or _kind(parts.path)
    shown = kind if kind.startswith("image/") or kind == "application/pdf" else "text/plain"
    return FileInput(mime=shown, filename=_name(parts.path) or name, url=f"file://{parts.path}{lines}")


def _path(uri: str | None) -> str | None:
    parts = urlsplit(uri or "")
    return unquote(parts.path) if parts.scheme in ("file", "") and parts.path else None


def _name(uri: str | None) -> str | None:
    path = _path(uri)
    return path.rstrip("/").rpartition("/")[2] or None if path else None


def _kind(uri: str) -> str:
    return mimetypes.guess_type(urlsplit(uri).path)[0] or "application/octet-stream"


def from_file(part: FilePart) -> Block:
    """A file of a prompt, to be shown again."""
    name = part.filename or "a file"
    if not part.url.startswith("data:"):
        return ResourceContentBlock(type="resource_link", name=name, uri=part.url, mime_type=part.mime)
    head, _, data = part.url.partition(",")
    if part.mime.startswith("image/") and head.endswith(";base64") and len(data) <= LARGEST_PICTURE:
        return ImageContentBlock(type="image", data=data, mime_type=part.mime)
    return words(f"[{name}]")


def words(text: str) -> TextContentBlock:
    return TextContentBlock(type="text", text=text)
