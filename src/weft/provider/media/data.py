"""What a data URL holds, and what kind of file it is by its bytes (pure)."""

import base64
import binascii
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from msgspec import Struct

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
