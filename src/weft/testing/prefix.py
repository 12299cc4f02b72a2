"""Whether what is sent goes on from what was sent before, byte for byte: only then does a provider's cache hold."""

from typing import Final

from msgspec import Struct

# They move along with the conversation, and are no part of what is kept.
MARKS: Final = (b',"cache_control":{"type":"ephemeral"}', b',{"cachePoint":{"type":"default"}}')
END: Final = b"]}"
AROUND: Final = 40


class Bust(Struct, frozen=True):
    """The first byte at which a request is not what the one before it was, and what stood and stands there."""

    at: int
    was: str
    now: str

    def __str__(self) -> str:
        return f"byte {self.at}: …{self.was}… became …{self.now}…"


def find_bust(before: bytes, after: bytes) -> Bust | None:
    """Where a request stops going on from the one before it; None if it does to the end."""
    sent, grown = _bare(before), _bare(after)
    if grown.startswith(sent):
        return None
    at = next(
        (at for at, pair in enumerate(zip(sent, grown, strict=False)) if pair[0] != pair[1]), len(grown)
    )
    return Bust(at, _around(sent, at), _around(grown, at))


def _bare(body: bytes) -> bytes:
    """Without the marks, and without the end of the list that grows: it stands last in a body."""
    for mark in MARKS:
        body = body.replace(mark, b"")
    return body.removesuffix(END)


def _around(body: bytes, at: int) -> str:
    return body[max(0, at - AROUND) : at + AROUND].decode(errors="replace")
