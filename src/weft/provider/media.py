"""Files in a conversation: detect their type and size, and adapt them to what a model and its API accept."""

import base64
import binascii
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from io import BytesIO
from threading import Lock
from typing import Any, Final
from urllib.parse import unquote, unquote_to_bytes

from msgspec import Struct
from msgspec.structs import replace

from weft.model.catalog import Modalities, Model
from weft.provider.contract import (
    MediaContent,
    ModelMessage,
    ResultContent,
    TextContent,
    ToolModelMessage,
    UserModelMessage,
)

MIME_BY_SIGNATURE: Final = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
BASE64_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
MAX_BASE64_PADDING: Final = 2


class DataUrl(Struct, frozen=True, kw_only=True):
    """The type and the content of a `data:` URL."""

    mime: str
    base64: str

    @property
    def url(self) -> str:
        return f"data:{self.mime};base64,{self.base64}"


def parse_data_url(url: str) -> DataUrl | None:
    """Parse a `data:` URL. Return None if it is not one.

    The type is detected from the content if we know the format: APIs refuse a wrong type.
    """
    if not url.startswith("data:") or "," not in url:
        return None
    header, _, body = url[5:].partition(",")
    mime, *attributes = header.split(";")
    if "base64" not in attributes:
        body = base64.b64encode(unquote_to_bytes(body.encode(errors="replace"))).decode()
    elif "%" in body:
        body = unquote(body)
    body = "".join(body.split()) if any(space in body for space in " \r\n\t") else body
    return DataUrl(mime=_sniff_mime(body) or mime or "text/plain", base64=body)


def find_modality(mime: str) -> str | None:
    """Return `image`, `audio`, `video` or `pdf`, or None for any other type."""
    if mime == "application/pdf":
        return "pdf"
    kind = mime.partition("/")[0]
    return kind if kind in {"image", "audio", "video"} else None


def is_base64(body: str) -> bool:
    """Return True for valid, non-empty base64. Checking the characters takes a tenth of the time of decoding them."""
    digits = body.rstrip("=")
    if not digits or len(body) % 4 or len(body) - len(digits) > MAX_BASE64_PADDING or not body.isascii():
        return False
    return not digits.encode().translate(None, BASE64_ALPHABET)


def decode_head(body: str, size: int) -> bytes:
    """Return the first bytes of a base64 text, or b"" if it is not base64."""
    try:
        return binascii.a2b_base64(body[: -(-size // 3) * 4])[:size]
    except (binascii.Error, ValueError):
        return b""


def _sniff_mime(body: str) -> str | None:
    head = decode_head(body, 24)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head.startswith(b"%PDF"):
        return "application/pdf"
    return next((mime for signature, mime in MIME_BY_SIGNATURE.items() if head.startswith(signature)), None)


ImageSize = tuple[int, int]

UNKNOWN_SIZE: Final[ImageSize] = (0, 0)
# Enough to find the size of most images. A JPEG may have a thumbnail and a colour profile before it.
HEAD_BYTES: Final = 64 * 1024
# Markers that start a JPEG frame (others in that range mean something else), and markers without a length.
JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
JPEG_STANDALONE: Final = frozenset({0x01, *range(0xD0, 0xD9)})
JPEG_SCAN: Final = 0xDA
JPEG_FILLER: Final = 0xFF


def measure_image(image: DataUrl) -> ImageSize:
    """Return width and height, or (0, 0) if they cannot be read."""
    measure = MEASURE_BY_MIME.get(image.mime)
    if measure is None:
        return UNKNOWN_SIZE
    try:
        size = measure(decode_head(image.base64, HEAD_BYTES))
        return size if size != UNKNOWN_SIZE else measure(decode_head(image.base64, len(image.base64)))
    except IndexError:
        return UNKNOWN_SIZE


def _measure_png(head: bytes) -> ImageSize:
    return _read_big_endian(head, 16, 4), _read_big_endian(head, 20, 4)


def _measure_gif(head: bytes) -> ImageSize:
    return _read_little_endian(head, 6, 2), _read_little_endian(head, 8, 2)


def _measure_webp(head: bytes) -> ImageSize:
    match head[12:16]:
        case b"VP8 ":
            return _read_little_endian(head, 26, 2) & 0x3FFF, _read_little_endian(head, 28, 2) & 0x3FFF
        case b"VP8L":
            packed = _read_little_endian(head, 21, 4)
            return (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return _read_little_endian(head, 24, 3) + 1, _read_little_endian(head, 27, 3) + 1
        case _:
            return UNKNOWN_SIZE


def _measure_jpeg(head: bytes) -> ImageSize:
    offset = 2
    while offset + 9 < len(head):
        marker = head[offset + 1]
        if head[offset] != JPEG_FILLER or marker == JPEG_SCAN:
            return UNKNOWN_SIZE
        if marker in JPEG_FRAMES:
            return _read_big_endian(head, offset + 7, 2), _read_big_endian(head, offset + 5, 2)
        if marker == JPEG_FILLER:
            offset += 1
        else:
            offset += 2 if marker in JPEG_STANDALONE else 2 + _read_big_endian(head, offset + 2, 2)
    return UNKNOWN_SIZE


def _read_big_endian(head: bytes, offset: int, size: int) -> int:
    return int.from_bytes(head[offset : offset + size], "big")


def _read_little_endian(head: bytes, offset: int, size: int) -> int:
    return int.from_bytes(head[offset : offset + size], "little")


MEASURE_BY_MIME: Final[dict[str, Callable[[bytes], ImageSize]]] = {
    "image/png": _measure_png,
    "image/gif": _measure_gif,
    "image/webp": _measure_webp,
    "image/jpeg": _measure_jpeg,
}


IMAGES_EXTRA: Final = "weft's extra images"
# A larger image is not decoded: a small file may decompress to gigabytes.
MAX_PIXELS: Final = 80_000_000
MAX_CACHED_CHARS: Final = 64 * 1024 * 1024
JPEG_QUALITIES: Final = (85, 70)
MIN_SIDE: Final = 64
EXIF_ORIENTATION: Final = 0x0112


class ImageLimit(Struct, frozen=True):
    """The largest image that an API accepts: pixels per side, and characters of its data URL."""

    max_side: int | None
    max_chars: int


class _ShrinkCache:
    """A cache of shrunk images by the digest of the original, for several threads. The oldest are dropped first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._images: OrderedDict[tuple[bytes, ImageLimit], DataUrl | None] = OrderedDict()
        self._lock = Lock()

    def find(self, key: tuple[bytes, ImageLimit]) -> tuple[DataUrl | None] | None:
        """Return the cached result in a tuple, or None if there is none."""
        with self._lock:
            return (self._images[key],) if key in self._images else None

    def add(self, key: tuple[bytes, ImageLimit], shrunk: DataUrl | None) -> None:
        with self._lock:
            self._images[key] = shrunk
            while sum(len(image.base64) for image in self._images.values() if image) > self._limit:
                self._images.popitem(last=False)


# One cache for the process. It saves time and changes no result.
_shrink_cache = _ShrinkCache(MAX_CACHED_CHARS)


def can_shrink() -> bool:
    """Return True if Pillow is installed."""
    return _find_pillow() is not None


def shrink_image(image: DataUrl, limit: ImageLimit) -> DataUrl | None:
    """Return the image shrunk to the limit. Return None if it is broken, or too large to decode."""
    key = (hashlib.sha256(image.base64.encode()).digest(), limit)
    cached = _shrink_cache.find(key)
    if cached is not None:
        return cached[0]
    width, height = measure_image(image)
    if width * height > MAX_PIXELS or not can_shrink():
        return None
    shrunk = _shrink_with_pillow(image, limit)
    _shrink_cache.add(key, shrunk)
    return shrunk


def _find_pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError:
        return None


def _shrink_with_pillow(data: DataUrl, limit: ImageLimit) -> DataUrl | None:
    pillow = _find_pillow()
    try:
        with pillow.open(BytesIO(base64.b64decode(data.base64))) as image:
            side = min(limit.max_side or max(image.size), max(image.size))
            image.thumbnail((side, side))
            upright = _rotate_upright(image)
        try_png = data.mime != "image/jpeg"
        for candidate in _shrink_in_steps(upright):
            for shrunk in _encode_variants(candidate, try_png=try_png):
                if len(shrunk.url) <= limit.max_chars:
                    return shrunk
    # Pillow raises these for broken images.
    except (OSError, SyntaxError, ValueError, IndexError, KeyError, EOFError, pillow.DecompressionBombError):
        pass
    return None


def _rotate_upright(image: Any) -> Any:
    """Return the image rotated as its EXIF data says, in a colour mode that PNG and JPEG support."""
    rotated = (
        import_module("PIL.ImageOps").exif_transpose(image)
        if image.getexif().get(EXIF_ORIENTATION)
        else image
    )
    return rotated.convert("RGBA" if rotated.has_transparency_data else "RGB")


def _shrink_in_steps(image: Any) -> Iterator[Any]:
    """Yield the image, then smaller ones, each three quarters as wide and high as the one before."""
    while True:
        yield image
        if max(image.size) <= MIN_SIDE:
            return
        image = image.resize((max(1, image.width * 3 // 4), max(1, image.height * 3 // 4)))


def _encode_variants(image: Any, *, try_png: bool) -> Iterator[DataUrl]:
    """Yield encodings of the image: as PNG with `try_png`, because that keeps the text of a screenshot sharp, then as
    JPEG.
    """
    if try_png:
        yield _encode(image, "image/png", format="PNG")
    flat = image
    if image.mode == "RGBA":
        flat = _find_pillow().new("RGB", image.size, "white")
        flat.paste(image, mask=image)
    for quality in JPEG_QUALITIES:
        yield _encode(flat, "image/jpeg", format="JPEG", quality=quality)


def _encode(image: Any, mime: str, **options: Any) -> DataUrl:
    buffer = BytesIO()
    image.save(buffer, **options)
    return DataUrl(mime=mime, base64=base64.b64encode(buffer.getvalue()).decode())


MB: Final = 1024 * 1024


class MediaLimits(Struct, frozen=True, kw_only=True):
    """Limits of an API for the files in a request: characters of data URLs, numbers of files, and pixels per side.

    If a request has more than `many_files`, each image may have at most `max_side_when_many` pixels per side.
    """

    max_file_chars: int = 20 * MB
    max_total_chars: int = 28 * MB
    max_files: int = 100
    max_documents: int | None = None
    max_side: int | None = None
    many_files: int = 20
    max_side_when_many: int | None = None

    @property
    def image_limit(self) -> ImageLimit:
        """Return the limit to which images are shrunk. It does not depend on the number of files, so that an image is
        sent unchanged when more files follow.
        """
        sides = [side for side in (self.max_side, self.max_side_when_many) if side is not None]
        return ImageLimit(min(sides, default=None), self.max_file_chars)


def limit_files(messages: Sequence[ModelMessage], limits: MediaLimits) -> list[ModelMessage]:
    """Keep the newest files that fit the limits. Replace each other file by a text that says why it is missing."""
    files = [file for message in messages for file in list_files(message)]
    if not files:
        return list(messages)
    fitted = _fit_files(files, limits)
    if all(new is old for new, old in zip(fitted, files, strict=True)):
        return list(messages)
    replacements = iter(fitted)
    return [_replace_files(message, replacements) for message in messages]


def list_files(message: ModelMessage) -> list[MediaContent]:
    if isinstance(message, UserModelMessage):
        return [item for item in message.content if isinstance(item, MediaContent)]
    if isinstance(message, ToolModelMessage):
        return [file for result in message.content for file in result.files]
    return []


def _fit_files(files: Sequence[MediaContent], limits: MediaLimits) -> list[MediaContent | TextContent]:
    shrunk = [_shrink_file(file, limits.image_limit) for file in files]
    max_side = limits.max_side_when_many if len(files) > limits.many_files else limits.max_side
    fitted: list[MediaContent | TextContent] = []
    count, total, documents = 0, 0, 0
    for file in reversed(shrunk):
        size, is_document = len(file.url), find_modality(file.mime) == "pdf"
        reason = _explain_too_large(file, max_side, limits.max_file_chars)
        is_full = count == limits.max_files or total + size > limits.max_total_chars
        if not reason and (is_full or (is_document and documents == limits.max_documents)):
            reason = "with the files after it, it exceeds the model's limit"
        if reason:
            fitted.append(TextContent(text=f"[{file.filename or file.mime} is not shown: {reason}]"))
            continue
        count, total, documents = count + 1, total + size, documents + is_document
        fitted.append(file)
    return fitted[::-1]


def _shrink_file(file: MediaContent, limit: ImageLimit) -> MediaContent:
    data = (
        parse_data_url(file.url)
        if find_modality(file.mime) == "image" or file.url.startswith("data:image/")
        else None
    )
    if data is None or find_modality(data.mime) != "image":
        return file
    fits_side = limit.max_side is None or max(measure_image(data)) <= limit.max_side
    if len(file.url) <= limit.max_chars and fits_side:
        return file
    shrunk = shrink_image(data, limit)
    return file if shrunk is None else replace(file, url=shrunk.url, mime=shrunk.mime)


def _explain_too_large(file: MediaContent, max_side: int | None, max_chars: int) -> str:
    """Return why a file is too large by itself, or "" if it is not."""
    data = parse_data_url(file.url) if max_side is not None else None
    width, height = measure_image(data) if data is not None else (0, 0)
    if max_side is not None and max(width, height) > max_side:
        return (
            f"it has {width} × {height} pixels, the model accepts {max_side} per side{_format_install_hint()}"
        )
    if len(file.url) > max_chars:
        is_image = find_modality(file.mime) == "image"
        return f"it is larger than the model accepts{_format_install_hint() if is_image else ''}"
    return ""


def _format_install_hint() -> str:
    return "" if can_shrink() else f"; install {IMAGES_EXTRA} to shrink it automatically"


# --- replacing files ---


def _replace_files(message: ModelMessage, replacements: Iterator[MediaContent | TextContent]) -> ModelMessage:
    if isinstance(message, UserModelMessage):
        content = tuple(
            next(replacements) if isinstance(item, MediaContent) else item for item in message.content
        )
        return UserModelMessage(content=content)
    if isinstance(message, ToolModelMessage):
        return ToolModelMessage(
            content=tuple(
                replace_result_files(result, [next(replacements) for _ in result.files])
                for result in message.content
            )
        )
    return message


def replace_result_files(result: ResultContent, files: Iterable[MediaContent | TextContent]) -> ResultContent:
    """Return the result with these files. Texts among them are appended to its output."""
    items = list(files)
    notes = [item.text for item in items if isinstance(item, TextContent)]
    output = "\n\n".join([result.output, *notes]) if notes else result.output
    return replace(
        result, output=output, files=tuple(item for item in items if isinstance(item, MediaContent))
    )


EMPTY_IMAGE: Final = "ERROR: Image file is empty or corrupted. Please provide a valid image."
TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/yaml", "application/toml")

AcceptsFile = Callable[[MediaContent], bool]


def adapt_files(
    messages: Sequence[ModelMessage], model: Model, accepts: AcceptsFile, limits: MediaLimits
) -> list[ModelMessage]:
    """Keep the files that the model and its API (`accepts`) support and `limits` allow. Replace the others by texts."""
    if not has_files(messages):
        return list(messages)
    return limit_files([_adapt_message(message, model, accepts) for message in messages], limits)


def has_files(messages: Iterable[ModelMessage]) -> bool:
    for message in messages:
        if isinstance(message, UserModelMessage):
            for item in message.content:
                if isinstance(item, MediaContent):
                    return True
        elif isinstance(message, ToolModelMessage):
            for result in message.content:
                if result.files:
                    return True
    return False


def accepts_modality(model: Model, modality: str) -> bool:
    """Return True if the model accepts input of this modality."""
    accepted: Modalities = model.capabilities.input
    return {"image": accepted.image, "audio": accepted.audio, "video": accepted.video, "pdf": accepted.pdf}[
        modality
    ]


def _adapt_message(message: ModelMessage, model: Model, accepts: AcceptsFile) -> ModelMessage:
    if isinstance(message, UserModelMessage):
        if not any(isinstance(item, MediaContent) for item in message.content):
            return message
        content = tuple(
            _adapt_file(item, model, accepts) if isinstance(item, MediaContent) else item
            for item in message.content
        )
        return UserModelMessage(content=content)
    if isinstance(message, ToolModelMessage) and any(result.files for result in message.content):
        return ToolModelMessage(
            content=tuple(
                replace_result_files(result, [_adapt_file(file, model, accepts) for file in result.files])
                for result in message.content
            )
        )
    return message


def _adapt_file(file: MediaContent, model: Model, accepts: AcceptsFile) -> MediaContent | TextContent:
    data = parse_data_url(file.url)
    mime = data.mime if data is not None else file.mime
    modality, is_broken = find_modality(mime), data is not None and not is_base64(data.base64)
    if is_broken and "image" in {modality, find_modality(file.mime)}:
        return TextContent(text=EMPTY_IMAGE)
    if data is not None and mime.startswith(TEXT_TYPES):
        text = "" if is_broken else base64.b64decode(data.base64).decode(errors="replace")
        return TextContent(text=f"{file.filename or 'file'}:\n{text}")
    if modality is not None and not accepts_modality(model, modality):
        return TextContent(text=_format_unsupported(file, modality))
    if is_broken or not accepts(file):
        return TextContent(text=_format_unsupported(file, modality or mime or "file"))
    return file


def _format_unsupported(file: MediaContent, kind: str) -> str:
    name = f'"{file.filename}"' if file.filename else kind
    return f"ERROR: Cannot read {name} (this model does not support {kind} input). Inform the user."
