"""Files in a conversation: what a data URL holds, and which of them a model can be shown (pure)."""

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from msgspec import Struct
from msgspec.structs import replace

from weft.model.catalog import Modalities, Model
from weft.provider.contract import FileContent, ModelMessage, ResultContent, TextContent, ToolTurn, UserTurn

EMPTY_IMAGE: Final = "ERROR: Image file is empty or corrupted. Please provide a valid image."
PICTURES: Final = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
TEXTUAL: Final = ("text/", "application/json", "application/xml", "application/yaml", "application/toml")
MB: Final = 1024 * 1024
ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
MOST_PADDING: Final = 2


class MediaLimits(Struct, frozen=True, kw_only=True):
    """How much an API takes: bytes of one file and of all (as base64), how many, how many pixels on a side.

    With more than `many` pictures in a request each may have no more than `pixels_when_many`.
    """

    each: int = 20 * MB
    total: int = 28 * MB
    count: int = 100
    pixels: int | None = None
    many: int = 20
    pixels_when_many: int | None = None


class Data(Struct, frozen=True, kw_only=True):
    """What a data URL carries."""

    mime: str
    base64: str


def to_data(url: str) -> Data | None:
    """None when it is no data URL. The type is what the bytes say where we know them: APIs refuse a wrong one."""
    if not url.startswith("data:") or "," not in url:
        return None
    head, _, body = url[5:].partition(",")
    mime, *marks = head.split(";")
    if "base64" not in marks:
        body = base64.b64encode(unquote_to_bytes(body)).decode()
    elif "%" in body:
        body = unquote(body)
    body = "".join(body.split()) if any(mark in body for mark in " \r\n\t") else body
    return Data(mime=_sniffed(body) or mime or "text/plain", base64=body)


def modality(mime: str) -> str | None:
    """`image`, `audio`, `video` or `pdf`; None for what is none of these."""
    if mime == "application/pdf":
        return "pdf"
    kind = mime.partition("/")[0]
    return kind if kind in {"image", "audio", "video"} else None


def takes(model: Model, kind: str) -> bool:
    can: Modalities = model.capabilities.input
    return {"image": can.image, "audio": can.audio, "video": can.video, "pdf": can.pdf}[kind]


Shows = Callable[[FileContent], bool]


def show_files(
    messages: Sequence[ModelMessage], model: Model, shows: Shows, limits: MediaLimits
) -> list[ModelMessage]:
    """What the model or its API (`shows`) cannot take is replaced by a text that says so (spec 9.5.1)."""
    told = [_told_turn(turn, model, shows) for turn in messages]
    return _within(told, limits)


def _told_turn(turn: ModelMessage, model: Model, shows: Shows) -> ModelMessage:
    if isinstance(turn, UserTurn):
        if not any(isinstance(item, FileContent) for item in turn.content):
            return turn
        content = tuple(
            _told(item, model, shows) if isinstance(item, FileContent) else item for item in turn.content
        )
        return UserTurn(content=content)
    if isinstance(turn, ToolTurn) and any(result.files for result in turn.content):
        return ToolTurn(content=tuple(_told_result(result, model, shows) for result in turn.content))
    return turn


def _told_result(result: ResultContent, model: Model, shows: Shows) -> ResultContent:
    told = [_told(file, model, shows) for file in result.files]
    files = tuple(item for item in told if isinstance(item, FileContent))
    notes = [item.text for item in told if isinstance(item, TextContent)]
    return replace(
        result, output="\n\n".join([result.output, *notes]) if notes else result.output, files=files
    )


def _told(file: FileContent, model: Model, shows: Shows) -> FileContent | TextContent:
    data = to_data(file.url)
    mime = data.mime if data is not None else file.mime
    kind, broken = modality(mime), data is not None and not _is_whole(data.base64)
    if broken and "image" in {kind, modality(file.mime)}:
        return TextContent(text=EMPTY_IMAGE)
    if data is not None and mime.startswith(TEXTUAL):
        words = "" if broken else base64.b64decode(data.base64).decode(errors="replace")
        return TextContent(text=f"{file.filename or 'file'}:\n{words}")
    if kind is not None and not takes(model, kind):
        return TextContent(text=_cannot_read(file, kind))
    if broken or not shows(file):
        return TextContent(text=_cannot_read(file, kind or mime or "file"))
    return file


def _cannot_read(file: FileContent, kind: str) -> str:
    name = f'"{file.filename}"' if file.filename else kind
    return f"ERROR: Cannot read {name} (this model does not support {kind} input). Inform the user."


# --- how much ---


def _within(messages: Sequence[ModelMessage], limits: MediaLimits) -> list[ModelMessage]:
    """The newest files stay; what is too big, or too much with those after it, is replaced by its name."""
    files = [file for turn in messages for file in _files(turn)]
    dropped: set[int] = set()
    pixels = limits.pixels_when_many if len(files) > limits.many else limits.pixels
    count, total = 0, 0
    for number in range(len(files) - 1, -1, -1):
        size = len(files[number].url)
        too_wide = pixels is not None and max(_sides(files[number].url)) > pixels
        if size > limits.each or too_wide or count + 1 > limits.count or total + size > limits.total:
            dropped.add(number)
        else:
            count, total = count + 1, total + size
    if not dropped:
        return list(messages)
    numbers = iter(range(len(files)))
    return [_without(turn, [next(numbers) in dropped for _ in _files(turn)]) for turn in messages]


def _files(turn: ModelMessage) -> list[FileContent]:
    if isinstance(turn, UserTurn):
        return [item for item in turn.content if isinstance(item, FileContent)]
    if isinstance(turn, ToolTurn):
        return [file for result in turn.content for file in result.files]
    return []


def _without(turn: ModelMessage, drop: Iterable[bool]) -> ModelMessage:
    choices = iter(drop)
    if isinstance(turn, UserTurn):
        return UserTurn(
            content=tuple(
                TextContent(text=_left_out(item)) if isinstance(item, FileContent) and next(choices) else item
                for item in turn.content
            )
        )
    if isinstance(turn, ToolTurn):
        return ToolTurn(content=tuple(_result_without(result, choices) for result in turn.content))
    return turn


def _result_without(result: ResultContent, drop: Iterable[bool]) -> ResultContent:
    chosen = list(zip(result.files, drop, strict=False))
    notes = [_left_out(file) for file, out in chosen if out]
    files = tuple(file for file, out in chosen if not out)
    return replace(
        result, output="\n\n".join([result.output, *notes]) if notes else result.output, files=files
    )


def _left_out(file: FileContent) -> str:
    return f"[{file.filename or file.mime} is not shown: too large, or too much with the files after it]"


# --- what the bytes say ---


def _head(body: str, size: int = 32) -> bytes:
    try:
        return binascii.a2b_base64(body[: size - size % 4])
    except (binascii.Error, ValueError):
        return b""


def _sniffed(body: str) -> str | None:
    head = _head(body)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head.startswith(b"%PDF"):
        return "application/pdf"
    return next((mime for magic, mime in PICTURES.items() if head.startswith(magic)), None)


def _is_whole(body: str) -> bool:
    """Base64 and not nothing. Looking at the letters costs a tenth of decoding them."""
    letters = body.rstrip("=")
    if not letters or len(body) % 4 or len(body) - len(letters) > MOST_PADDING or not body.isascii():
        return False
    return not letters.encode().translate(None, ALPHABET)


def _sides(url: str) -> tuple[int, int]:
    """Width and height of a PNG or GIF, by its first bytes; of others 0: a JPEG would have to be read through."""
    head = _head(url.partition(",")[2]) if url.startswith("data:") else b""
    if head.startswith(b"\x89PNG"):
        return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    if head.startswith(b"GIF8"):
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    return 0, 0
