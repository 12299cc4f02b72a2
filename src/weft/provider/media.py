"""Files in a conversation: their type and size, which a model can be shown, and how they are made to fit."""

import base64
import binascii
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from io import BytesIO
from threading import Lock
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, unquote_to_bytes

from msgspec import Struct
from msgspec.structs import replace

from weft.model.catalog import Modalities, Model
from weft.provider.contract import (
    AssistantTurn,
    FileContent,
    ModelMessage,
    ResultContent,
    TextContent,
    ToolTurn,
    UserTurn,
)

PICTURES: Final = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
MOST_PADDING: Final = 2


class Data(Struct, frozen=True, kw_only=True):
    """What a data URL carries."""

    mime: str
    base64: str

    @property
    def url(self) -> str:
        return f"data:{self.mime};base64,{self.base64}"


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


def is_whole(body: str) -> bool:
    """Base64 and not nothing. Looking at the letters costs a tenth of decoding them."""
    letters = body.rstrip("=")
    if not letters or len(body) % 4 or len(body) - len(letters) > MOST_PADDING or not body.isascii():
        return False
    return not letters.encode().translate(None, ALPHABET)


def head_of(body: str, size: int) -> bytes:
    """The first bytes, or none if this is no base64."""
    try:
        return binascii.a2b_base64(body[: -(-size // 3) * 4])[:size]
    except (binascii.Error, ValueError):
        return b""


def _sniffed(body: str) -> str | None:
    head = head_of(body, 24)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head.startswith(b"%PDF"):
        return "application/pdf"
    return next((mime for magic, mime in PICTURES.items() if head.startswith(magic)), None)


Sides = tuple[int, int]

UNKNOWN: Final[Sides] = (0, 0)
# Enough for most; a JPEG may carry a thumbnail and a colour profile before it says how large it is.
HEAD: Final = 64 * 1024
# Marks of a JPEG's frame; those between them that are no frame; and those that stand alone, without a length.
FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
ALONE: Final = frozenset({0x01, *range(0xD0, 0xD9)})
SCAN: Final = 0xDA
FILLER: Final = 0xFF


def sides(picture: Data) -> Sides:
    """Width and height; (0, 0) where the bytes do not tell."""
    read = READERS.get(picture.mime)
    if read is None:
        return UNKNOWN
    try:
        found = read(head_of(picture.base64, HEAD))
        return found if found != UNKNOWN else read(head_of(picture.base64, len(picture.base64)))
    except IndexError:
        return UNKNOWN


def _png(head: bytes) -> Sides:
    return _big(head, 16, 4), _big(head, 20, 4)


def _gif(head: bytes) -> Sides:
    return _little(head, 6, 2), _little(head, 8, 2)


def _webp(head: bytes) -> Sides:
    match head[12:16]:
        case b"VP8 ":
            return _little(head, 26, 2) & 0x3FFF, _little(head, 28, 2) & 0x3FFF
        case b"VP8L":
            packed = _little(head, 21, 4)
            return (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return _little(head, 24, 3) + 1, _little(head, 27, 3) + 1
        case _:
            return UNKNOWN


def _jpeg(head: bytes) -> Sides:
    at = 2
    while at + 9 < len(head):
        mark = head[at + 1]
        if head[at] != FILLER or mark == SCAN:
            return UNKNOWN
        if mark in FRAMES:
            return _big(head, at + 7, 2), _big(head, at + 5, 2)
        if mark == FILLER:
            at += 1
        else:
            at += 2 if mark in ALONE else 2 + _big(head, at + 2, 2)
    return UNKNOWN


def _big(head: bytes, at: int, size: int) -> int:
    return int.from_bytes(head[at : at + size], "big")


def _little(head: bytes, at: int, size: int) -> int:
    return int.from_bytes(head[at : at + size], "little")


READERS: Final[dict[str, Callable[[bytes], Sides]]] = {
    "image/png": _png,
    "image/gif": _gif,
    "image/webp": _webp,
    "image/jpeg": _jpeg,
}


EXTRA: Final = "weft[images]"
# Above this a picture is not unpacked: a small file may hold a whole wall.
MOST_PIXELS: Final = 80_000_000
MOST_KEPT: Final = 64 * 1024 * 1024
QUALITIES: Final = (85, 70)
SMALLEST: Final = 64
ORIENTATION: Final = 0x0112


class Room(NamedTuple):
    """How large a picture may be: pixels on a side, and letters of its data URL."""

    pixels: int | None
    size: int


class _Memory:
    """What was made of what, by the digest of the whole; the oldest goes when it is too much. Requests are put together
    in threads, several at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: OrderedDict[tuple[bytes, Room], Data | None] = OrderedDict()
        self._lock = Lock()

    def find(self, key: tuple[bytes, Room]) -> tuple[Data | None] | None:
        with self._lock:
            return (self._made[key],) if key in self._made else None

    def keep(self, key: tuple[bytes, Room], made: Data | None) -> None:
        with self._lock:
            self._made[key] = made
            while sum(len(each.base64) for each in self._made.values() if each) > self._most:
                self._made.popitem(last=False)


# One for the process: nobody can tell it from making the picture anew, but by the time it takes.
_memory = _Memory(MOST_KEPT)


def can_shrink() -> bool:
    return _find_pillow() is not None


def shrink(picture: Data, room: Room) -> Data | None:
    """The picture, small enough; None if it cannot be made so: it is broken, or too large to unpack."""
    key = (hashlib.sha256(picture.base64.encode()).digest(), room)
    known = _memory.find(key)
    if known is not None:
        return known[0]
    width, height = sides(picture)
    if width * height > MOST_PIXELS or not can_shrink():
        return None
    made = _shrink_shrink(picture, room)
    _memory.keep(key, made)
    return made


def _find_pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError:
        return None


def _shrink_shrink(picture: Data, room: Room) -> Data | None:
    pillow = _find_pillow()
    try:
        with pillow.open(BytesIO(base64.b64decode(picture.base64))) as image:
            side = min(room.pixels or max(image.size), max(image.size))
            image.thumbnail((side, side))
            upright = _upright(image)
        drawn = picture.mime != "image/jpeg"
        for each in _shrink(upright):
            for made in _ways(each, drawn=drawn):
                if len(made.url) <= room.size:
                    return made
    # What Pillow raises on bytes that are not what they say.
    except (OSError, SyntaxError, ValueError, IndexError, KeyError, EOFError, pillow.DecompressionBombError):
        pass
    return None


def _upright(image: Any) -> Any:
    """As it is meant to be seen, in colours that both formats know."""
    turned = (
        import_module("PIL.ImageOps").exif_transpose(image) if image.getexif().get(ORIENTATION) else image
    )
    return turned.convert("RGBA" if turned.has_transparency_data else "RGB")


def _shrink(image: Any) -> Iterator[Any]:
    """As it is, then three quarters of it, and so on."""
    while True:
        yield image
        if max(image.size) <= SMALLEST:
            return
        image = image.resize((max(1, image.width * 3 // 4), max(1, image.height * 3 // 4)))


def _ways(image: Any, *, drawn: bool) -> Iterator[Data]:
    """What is drawn (a screenshot) first without loss, for its letters; then like a photograph."""
    if drawn:
        yield _encode(image, "image/png", format="PNG")
    flat = image
    if image.mode == "RGBA":
        flat = _find_pillow().new("RGB", image.size, "white")
        flat.paste(image, mask=image)
    for quality in QUALITIES:
        yield _encode(flat, "image/jpeg", format="JPEG", quality=quality)


def _encode(image: Any, mime: str, **how: Any) -> Data:
    held = BytesIO()
    image.save(held, **how)
    return Data(mime=mime, base64=base64.b64encode(held.getvalue()).decode())


MB: Final = 1024 * 1024


class MediaLimits(Struct, frozen=True, kw_only=True):
    """How much an API takes: bytes of one file and of all (as base64), how many, how many pixels on a side.

    With more than `many` pictures in a request each may have no more than `pixels_when_many`.
    """

    each: int = 20 * MB
    total: int = 28 * MB
    count: int = 100
    documents: int | None = None
    pixels: int | None = None
    many: int = 20
    pixels_when_many: int | None = None

    @property
    def room(self) -> Room:
        """What a picture is made to fit. It is the same however many there are: a picture that was sent stays as it was
        sent."""
        known = [pixels for pixels in (self.pixels, self.pixels_when_many) if pixels is not None]
        return Room(min(known, default=None), self.each)


def within(messages: Sequence[ModelMessage], limits: MediaLimits) -> list[ModelMessage]:
    """The newest files stay; what is too big, or too much with those after it, is replaced by its name and why."""
    files = [file for turn in messages for file in files_of(turn)]
    if not files:
        return list(messages)
    fitted = _fitted(files, limits)
    if all(new is old for new, old in zip(fitted, files, strict=True)):
        return list(messages)
    made = iter(fitted)
    return [_with(turn, made) for turn in messages]


def files_of(turn: ModelMessage) -> list[FileContent]:
    if isinstance(turn, UserTurn):
        return [item for item in turn.content if isinstance(item, FileContent)]
    if isinstance(turn, ToolTurn):
        return [file for result in turn.content for file in result.files]
    return []


def _fitted(files: Sequence[FileContent], limits: MediaLimits) -> list[FileContent | TextContent]:
    made = [_smaller(file, limits.room) for file in files]
    pixels = limits.pixels_when_many if len(files) > limits.many else limits.pixels
    fitted: list[FileContent | TextContent] = []
    count, total, documents = 0, 0, 0
    for file in reversed(made):
        size, is_document = len(file.url), modality(file.mime) == "pdf"
        why = _too_large(file, pixels, limits.each)
        full = count == limits.count or total + size > limits.total
        if not why and (full or (is_document and documents == limits.documents)):
            why = "with the files after it, it is more than the model takes"
        if why:
            fitted.append(TextContent(text=f"[{file.filename or file.mime} is not shown: {why}]"))
            continue
        count, total, documents = count + 1, total + size, documents + is_document
        fitted.append(file)
    return fitted[::-1]


def _smaller(file: FileContent, room: Room) -> FileContent:
    data = to_data(file.url) if modality(file.mime) == "image" or file.url.startswith("data:image/") else None
    if data is None or modality(data.mime) != "image":
        return file
    if len(file.url) <= room.size and (room.pixels is None or max(sides(data)) <= room.pixels):
        return file
    made = shrink(data, room)
    return file if made is None else replace(file, url=made.url, mime=made.mime)


def _too_large(file: FileContent, pixels: int | None, size: int) -> str:
    """Why a file cannot be shown by itself; empty if it can."""
    data = to_data(file.url) if pixels is not None else None
    width, height = sides(data) if data is not None else (0, 0)
    if pixels is not None and max(width, height) > pixels:
        return f"it has {width} × {height} pixels, the model takes {pixels} on a side{_way_out()}"
    if len(file.url) > size:
        is_picture = modality(file.mime) == "image"
        return f"it is larger than the model takes{_way_out() if is_picture else ''}"
    return ""


def _way_out() -> str:
    return "" if can_shrink() else f"; with {EXTRA} installed it would be made smaller"


# --- putting them back ---


def _with(turn: ModelMessage, made: Iterator[FileContent | TextContent]) -> ModelMessage:
    if isinstance(turn, UserTurn):
        content = tuple(next(made) if isinstance(item, FileContent) else item for item in turn.content)
        return UserTurn(content=content)
    if isinstance(turn, ToolTurn):
        return ToolTurn(
            content=tuple(with_files(result, [next(made) for _ in result.files]) for result in turn.content)
        )
    return turn


def with_files(result: ResultContent, files: Iterable[FileContent | TextContent]) -> ResultContent:
    """The result with these for its files; what became a word follows its text."""
    told = list(files)
    notes = [item.text for item in told if isinstance(item, TextContent)]
    output = "\n\n".join([result.output, *notes]) if notes else result.output
    return replace(result, output=output, files=tuple(item for item in told if isinstance(item, FileContent)))


EMPTY_IMAGE: Final = "ERROR: Image file is empty or corrupted. Please provide a valid image."
TEXTUAL: Final = ("text/", "application/json", "application/xml", "application/yaml", "application/toml")

Shows = Callable[[FileContent], bool]


def show_files(
    messages: Sequence[ModelMessage], model: Model, shows: Shows, limits: MediaLimits
) -> list[ModelMessage]:
    """The conversation with only what the model and its API (`shows`) can take."""
    if not has_files(messages):
        return list(messages)
    return within([_told_turn(turn, model, shows) for turn in messages], limits)


def has_files(messages: Iterable[ModelMessage]) -> bool:
    return any(files_of(turn) for turn in messages if not isinstance(turn, AssistantTurn))


def takes(model: Model, kind: str) -> bool:
    can: Modalities = model.capabilities.input
    return {"image": can.image, "audio": can.audio, "video": can.video, "pdf": can.pdf}[kind]


def _told_turn(turn: ModelMessage, model: Model, shows: Shows) -> ModelMessage:
    if isinstance(turn, UserTurn):
        if not any(isinstance(item, FileContent) for item in turn.content):
            return turn
        content = tuple(
            _told(item, model, shows) if isinstance(item, FileContent) else item for item in turn.content
        )
        return UserTurn(content=content)
    if isinstance(turn, ToolTurn) and any(result.files for result in turn.content):
        return ToolTurn(
            content=tuple(
                with_files(result, [_told(file, model, shows) for file in result.files])
                for result in turn.content
            )
        )
    return turn


def _told(file: FileContent, model: Model, shows: Shows) -> FileContent | TextContent:
    data = to_data(file.url)
    mime = data.mime if data is not None else file.mime
    kind, broken = modality(mime), data is not None and not is_whole(data.base64)
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
