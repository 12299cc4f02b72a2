"""Redo: a note of what a batch is about to rename, so that whoever comes after a crash can finish it.

All that a batch writes is first written aside. Then the note, then the renames, then the note goes. A note that is
not whole was never acted on. A note that is whole can be carried out any number of times with the same end.
"""

import os
import zlib
from typing import Literal

import msgspec

from weft.errors import DocumentError
from weft.host.files import Disk, read_file
from weft.model.wire import decode, encode
from weft.store.documents import LIMIT


class Step(msgspec.Struct, frozen=True, array_like=True):
    """A rename: `in`to place of what was written aside, `out` of the way of what is to go, or to where it is to `stay`."""

    way: Literal["in", "out", "stay"]
    source: str
    target: str


class Note(msgspec.Struct, frozen=True):
    """The steps of one batch (paths below the root), and the locks that must be held to take them."""

    locks: tuple[str, ...]
    steps: tuple[Step, ...]


class Pointer(msgspec.Struct, frozen=True):
    """A batch that needs this lock too has its note under another."""

    see: str


def to_bytes(note: Note | Pointer) -> bytes:
    raw = encode(note)
    return b"%08x " % zlib.crc32(raw) + raw


def find_note(path: str) -> Note | Pointer | None:
    """The note, if there is one and it is whole."""
    try:
        raw, _ = read_file(path, limit=LIMIT)
    except FileNotFoundError:
        return None
    check, _, body = raw.partition(b" ")
    if check != b"%08x" % zlib.crc32(body):
        return None
    try:
        return decode(body, Pointer) if body.startswith(b'{"see"') else decode(body, Note)
    except DocumentError:
        return None


def take(step: Step, disk: Disk, root: str) -> list[str]:
    """Take a step, if it has not been taken. Gives back the directories that had to be made."""
    source, target = f"{root}/{step.source}", f"{root}/{step.target}"
    taken = step.way != "in" and os.path.lexists(target)
    return disk.move(source, target) if not taken and os.path.lexists(source) else []
