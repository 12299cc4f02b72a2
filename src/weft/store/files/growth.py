"""Growth files: the text that a part gained since its document was written, appended piece by piece."""

import zlib
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import DocumentError
from weft.host.files import read_file
from weft.model.part import AnyPart, ReasoningPart, TextPart
from weft.model.wire import Wire, decode, encode
from weft.store.files.documents import LIMIT

FIELD = "text"


class GrowthPiece(Wire, frozen=True, kw_only=True):
    """At character `offset` the text continues with `delta`."""

    offset: int
    delta: str


class Growth(Struct, frozen=True):
    """The pieces in a growth file, and the byte offset of the next one."""

    pieces: tuple[GrowthPiece, ...]
    end: int


NO_GROWTH = Growth((), 0)


def document_digest(document: bytes) -> bytes:
    return b"%d %08x" % (len(document), zlib.crc32(document))


def can_grow(part: AnyPart) -> bool:
    return isinstance(part, TextPart | ReasoningPart)


def encode_pieces(pieces: Iterable[GrowthPiece]) -> bytes:
    return b"".join(encode(piece) + b"\n" for piece in pieces)


def encode_header(document: bytes) -> bytes:
    return document_digest(document) + b"\n"


def read_growth(path: str, document: bytes) -> Growth:
    """Return the growth of exactly this document; none if there is no file, or it belongs to another document."""
    try:
        raw, _ = read_file(path, limit=LIMIT)
    except OSError:
        return NO_GROWTH
    head, *lines = raw.split(b"\n")
    if not lines or head != document_digest(document):
        return NO_GROWTH
    pieces, end = [], len(head) + 1
    for line in lines[:-1]:  # the text after the last newline is empty or incomplete
        try:
            pieces.append(decode(line, GrowthPiece))
        except DocumentError:
            break
        end += len(line) + 1
    return Growth(tuple(pieces), end)


def find_growth_end(path: str, document: bytes) -> int:
    """Return the byte offset for the next piece, 0 if the file has to be started. Do not read the pieces before it."""
    try:
        with open(path, "rb") as file:
            head = encode_header(document)
            if file.read(len(head)) != head:
                return 0
            end = file.seek(0, 2)
            file.seek(end - 1)
            if file.read(1) == b"\n":
                return end
    except OSError:
        return 0
    return read_growth(path, document).end


def apply_growth(part: AnyPart, pieces: Iterable[GrowthPiece]) -> AnyPart:
    """Return the part with all pieces applied, like `model.transcript.grow_part` for each, but in linear time."""
    if not isinstance(part, TextPart | ReasoningPart):
        return part
    text, length = [part.text], len(part.text)
    for piece in pieces:
        if not 0 <= piece.offset <= length:
            continue
        if piece.offset < length:
            text = ["".join(text)]
            if text[0].startswith(piece.delta, piece.offset):
                continue  # this piece was applied before
            text, length = [text[0][: piece.offset]], piece.offset
        text.append(piece.delta)
        length += len(piece.delta)
    return replace(part, text="".join(text))
