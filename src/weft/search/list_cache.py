"""A cache of a large project's session documents in one file, so that a list reads one file."""

import os
from collections.abc import Iterable
from contextlib import suppress
from zlib import adler32, crc32

import msgspec

from weft.host.files import read_file, write_atomic
from weft.model.ids import ProjectID
from weft.model.session import Session

VERSION = 1
LIMIT = 1 << 30
Stamp = tuple[int, int, int]
Standing = tuple[str, int, int, int, Session]


class Shelf(msgspec.Struct, frozen=True, array_like=True):
    """Sessions with their stamps, oldest first."""

    root: str
    project: str
    sessions: list[Standing]


def key_of(text: str) -> str:
    raw = os.fsencode(text)
    return f"{crc32(raw):08x}{adler32(raw):08x}"


def shelf_path(cache: str, root: str, project: ProjectID) -> str:
    name = f"sessions-{key_of(os.path.realpath(root))}.v{VERSION}.{key_of(project)}.list"
    return os.path.join(cache, "weft", name)


def find_shelf(cache: str, root: str, project: ProjectID) -> Shelf | None:
    """None if there is none, or none that can be read."""
    try:
        raw, _ = read_file(shelf_path(cache, root, project), limit=LIMIT)
        shelf = msgspec.json.decode(raw, type=Shelf)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return shelf if (shelf.root, shelf.project) == (os.path.realpath(root), project) else None


def write_shelf(cache: str, root: str, project: ProjectID, rows: Iterable[tuple[str, Stamp, bytes]]) -> None:
    """From ids, stamps and encoded documents. That it fails hurts nobody."""
    standing = b",".join(
        msgspec.json.encode((id, *stamp))[:-1] + b"," + document + b"]"
        for id, stamp, document in rows
        if _is_plain(document)
    )
    head = msgspec.json.encode((os.path.realpath(root), project))[:-1]
    path = shelf_path(cache, root, project)
    with suppress(OSError, UnicodeEncodeError):
        write_atomic(path, head + b",[" + standing + b"]]", temp=f"{path}.{os.getpid()}")


def _is_plain(document: bytes) -> bool:
    """Whether we know all that is in it. What we do not know is kept by slower ways: such a document is left out."""
    try:
        msgspec.json.decode(document, type=Session)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return b'"$extra"' not in document
