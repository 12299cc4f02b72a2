"""Entries and states: files as git names them, and the trees that hold them. Nothing here reads or writes."""

import hashlib
import stat
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

FILE: Final = stat.S_IFREG
LINK: Final = stat.S_IFLNK
DIRECTORY: Final = stat.S_IFDIR
EXECUTABLE: Final = stat.S_IXUSR
ID_BYTES: Final = 20


class Entry(Struct, frozen=True, array_like=True):
    """What stands at a path: a file or a link, its permissions, and the name of its content.

    Git knows of permissions only whether a file may be executed. Trees that we write ourselves say all nine bits,
    which git reads over.
    """

    mode: int
    oid: str

    @property
    def is_link(self) -> bool:
        return stat.S_IFMT(self.mode) == LINK

    @property
    def permissions(self) -> int:
        return stat.S_IMODE(self.mode)


class State(Struct, frozen=True, kw_only=True):
    """Some files, and the directories known to be there, empty ones too. Paths are relative, of bytes."""

    files: Mapping[bytes, Entry]
    dirs: frozenset[bytes] = frozenset()


def is_same(one: Entry | None, other: Entry | None) -> bool:
    """Whether git would see no difference."""
    if one is None or other is None:
        return one is other
    if one.oid != other.oid or one.is_link != other.is_link:
        return False
    return one.is_link or one.mode & EXECUTABLE == other.mode & EXECUTABLE


def parents(path: bytes) -> Iterator[bytes]:
    """The directories a path lies in, outermost first."""
    at = path.find(b"/")
    while at != -1:
        yield path[:at]
        at = path.find(b"/", at + 1)


def frame(kind: bytes, content: bytes) -> bytes:
    """An object as it is named and stored."""
    return b"%s %d\0%s" % (kind, len(content), content)


def name_of(framed: bytes) -> str:
    return hashlib.sha1(framed, usedforsecurity=False).hexdigest()


def blob_name(content: bytes) -> str:
    return name_of(frame(b"blob", content))


def shown(path: bytes) -> str:
    """A path for people, and for JSON: what is no text is escaped."""
    return path.decode(errors="backslashreplace")


def to_trees(state: State) -> list[bytes]:
    """The contents of the trees that hold a state, each after those it names; the last one is the whole."""
    below: dict[bytes, list[tuple[bytes, bytes]]] = {b"": []}
    for directory in {*state.dirs, *(each for path in state.files for each in parents(path))}:
        for each in (*parents(directory), directory):
            below.setdefault(each, [])
    for path, entry in state.files.items():
        directory, _, name = path.rpartition(b"/")
        below[directory].append((name, _line(entry.mode, name, entry.oid)))
    written: list[bytes] = []
    for directory in sorted(below, key=lambda path: (-path.count(b"/") - bool(path), path)):
        content = b"".join(line for _, line in sorted(below[directory]))
        written.append(content)
        if directory:
            above, _, name = directory.rpartition(b"/")
            oid = name_of(frame(b"tree", content))
            below[above].append((name + b"/", _line(DIRECTORY, name, oid)))
    return written


def _line(mode: int, name: bytes, oid: str) -> bytes:
    return b"%o %s\0%s" % (mode, name, bytes.fromhex(oid))


def from_tree(content: bytes) -> Iterator[tuple[bytes, Entry]]:
    """The names and entries of one tree. ValueError if it is none."""
    at = 0
    while at < len(content):
        space, end = content.index(b" ", at), content.index(b"\0", at)
        oid = content[end + 1 : end + 1 + ID_BYTES]
        if len(oid) != ID_BYTES:
            raise ValueError("a tree that ends in the middle")
        yield content[space + 1 : end], Entry(int(content[at:space], 8), oid.hex())
        at = end + 1 + ID_BYTES
