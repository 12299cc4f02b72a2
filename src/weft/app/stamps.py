"""Stamps: what tells one state of a session document from another."""

import os

from weft.host.files import Stamp, is_settled, stamp_of
from weft.index.put import UNSURE
from weft.store.layout import SUFFIX


def stamps_in(directory: str) -> dict[str, Stamp]:
    """The stamp of every document in a directory, by name."""
    found: dict[str, Stamp] = {}
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return found
    try:
        for name in os.listdir(fd):
            if name.endswith(SUFFIX) and name[0] != ".":
                try:
                    at = os.stat(name, dir_fd=fd)
                except OSError:
                    continue  # gone meanwhile
                found[name[: -len(SUFFIX)]] = (at.st_mtime_ns, at.st_size, at.st_ino)
    finally:
        os.close(fd)
    return found


def sure_stamp(path: str) -> Stamp:
    """The stamp of a file, or one that matches none if the file may still change without showing it."""
    try:
        found = os.stat(path)
    except OSError:
        return UNSURE
    return stamp_of(found) if is_settled(found) else UNSURE
