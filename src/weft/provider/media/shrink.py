"""Pictures made smaller, so that a model's API takes them. It needs Pillow, the extra `weft[images]`.

The same picture gives the same bytes each time, or the provider's cache would be lost with every request. What was
made is kept for a while: a picture is in every request after the one it came with.
"""

import base64
import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from threading import Lock
from typing import Any, Final, NamedTuple

from weft.provider.media.data import Data
from weft.provider.media.sides import sides

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
    made = _shrink(picture, room)
    _memory.keep(key, made)
    return made


def _find_pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError:
        return None


def _shrink(picture: Data, room: Room) -> Data | None:
    pillow = _find_pillow()
    try:
        with pillow.open(BytesIO(base64.b64decode(picture.base64))) as image:
            side = min(room.pixels or max(image.size), max(image.size))
            image.thumbnail((side, side))
            upright = _upright(image)
        drawn = picture.mime != "image/jpeg"
        for each in _smaller(upright):
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


def _smaller(image: Any) -> Iterator[Any]:
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
