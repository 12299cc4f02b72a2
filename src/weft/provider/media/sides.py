"""How wide and how high a picture is, by its first bytes (pure)."""

from collections.abc import Callable
from typing import Final

from weft.provider.media.data import Data, head_of

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
