"""Append the text that a part gained since its document was written."""

import zlib
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from weft.errors import DocumentError
from weft.host.files import read_file
from weft.model.part import AnyPart, ReasoningPart, TextPart
from weft.model.wire import Wire, decode, encode
from weft.store.files.documents import LIMIT

FIELD = "text"


class Piece(Wire, frozen=True, kw_only=True):
    """From character `offset` on the text is `delta`."""

    offset: int
    delta: str


class Growth(NamedTuple):
    """What a growth file holds for a document: its pieces, and the byte where the next one goes."""

    pieces: tuple[Piece, ...]
    end: int


NOTHING = Growth((), 0)


def digest(document: bytes) -> bytes:
    return b"%d %08x" % (len(document), zlib.crc32(document))


def can_grow(part: AnyPart) -> bool:
    return isinstance(part, TextPart | ReasoningPart)


def to_lines(pieces: Iterable[Piece]) -> bytes:
    return b"".join(encode(piece) + b"\n" for piece in pieces)


def first_line(document: bytes) -> bytes:
    return digest(document) + b"\n"


def read_growth(path: str, document: bytes) -> Growth:
    """The growth of this very document; nothing if there is none, or it is another's."""
    try:
        raw, _ = read_file(path, limit=LIMIT)
    except OSError:
        return NOTHING
    head, *lines = raw.split(b"\n")
    if not lines or head != digest(document):
        return NOTHING
    pieces, end = [], len(head) + 1
    for line in lines[:-1]:  # after the last newline comes nothing, or what was cut off
        try:
            pieces.append(decode(line, Piece))
        except DocumentError:
            break
        end += len(line) + 1
    return Growth(tuple(pieces), end)


def end_of_growth(path: str, document: bytes) -> int:
    """The byte where the next piece goes: 0 if the file has to be begun. Does not read what is before it."""
    try:
        with open(path, "rb") as file:
            head = first_line(document)
            if file.read(len(head)) != head:
                return 0
            end = file.seek(0, 2)
            file.seek(end - 1)
            if file.read(1) == b"\n":
                return end
    except OSError:
        return 0
    return read_growth(path, document).end


def fold(part: AnyPart, pieces: Iterable[Piece]) -> AnyPart:
    """The part with its text grown: `model.transcript.grown` for many pieces at once, in linear time."""
    if not isinstance(part, TextPart | ReasoningPart):
        return part
    text, length = [part.text], len(part.text)
    for piece in pieces:
        if not 0 <= piece.offset <= length:
            continue
        if piece.offset < length:
            text = ["".join(text)]
            if text[0].startswith(piece.delta, piece.offset):
                continue  # it was said before
            text, length = [text[0][: piece.offset]], piece.offset
        text.append(piece.delta)
        length += len(piece.delta)
    return replace(part, text="".join(text))
