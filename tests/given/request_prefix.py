"""Check that a request begins with the bytes of the one before it, as a provider's cache requires."""

from typing import Final

from msgspec import Struct

# Cache marks move along with the conversation and are not part of the cached text.
MARKS: Final = (b',"cache_control":{"type":"ephemeral"}', b',{"cachePoint":{"type":"default"}}')
END: Final = b"]}"
AROUND: Final = 40


class PrefixChange(Struct, frozen=True):
    """The first byte at which a request differs from the one before it, with the text around it."""

    at: int
    was: str
    now: str

    def __str__(self) -> str:
        return f"byte {self.at}: …{self.was}… became …{self.now}…"


def find_prefix_change(before: bytes, after: bytes) -> PrefixChange | None:
    """Return where a request stops continuing the one before it, or None."""
    sent, grown = _strip_cache_marks(before), _strip_cache_marks(after)
    if grown.startswith(sent):
        return None
    at = next(
        (at for at, pair in enumerate(zip(sent, grown, strict=False)) if pair[0] != pair[1]), len(grown)
    )
    return PrefixChange(at, _excerpt(sent, at), _excerpt(grown, at))


def _strip_cache_marks(body: bytes) -> bytes:
    """Return the body without cache marks and without the end of the growing list, which comes last."""
    for mark in MARKS:
        body = body.replace(mark, b"")
    return body.removesuffix(END)


def _excerpt(body: bytes, at: int) -> str:
    return body[max(0, at - AROUND) : at + AROUND].decode(errors="replace")
