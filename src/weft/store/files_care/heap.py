"""Heap: what a file or a directory comes to in bytes and age, and whether we understand all that is in it."""

import os
import stat
from contextlib import suppress

from msgspec import Struct

from weft.errors import InvalidIdError
from weft.model.ids import file_name
from weft.store.layout import SUFFIX


class Heap(Struct, frozen=True):
    """What a file or directory comes to: bytes, when anything in it last changed (ms), whether all of it is known."""

    bytes: int
    changed: int
    known: bool


def weigh(path: str, *, any_name: bool = False) -> Heap:
    """A file, or a directory with all that is in it. Known are documents, and directories of documents."""
    try:
        found = os.lstat(path)
    except OSError:
        return Heap(0, 0, known=False)
    # The time of change too, not only that of writing: what was moved here just now is as old inside as it was before.
    changed = int(max(found.st_mtime, found.st_ctime) * 1000)
    if stat.S_ISREG(found.st_mode):
        return Heap(found.st_size, changed, known=True)
    if not stat.S_ISDIR(found.st_mode):
        return Heap(0, changed, known=False)
    size, known = 0, True
    for name in list_names(path):
        inner = weigh(f"{path}/{name}", any_name=any_name)
        size, changed = size + inner.bytes, max(changed, inner.changed)
        known = known and inner.known and (any_name or _is_document(f"{path}/{name}"))
    return Heap(size, changed, known=known)


def _is_document(path: str) -> bool:
    name = os.path.basename(path)
    return os.path.isfile(path) and name.endswith(SUFFIX) and is_id(name.removesuffix(SUFFIX))


def is_id(name: str) -> bool:
    try:
        file_name("document", name)
    except InvalidIdError:
        return False
    return True


def list_names(directory: str) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(directory))
    return []
