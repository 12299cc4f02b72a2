"""File entries and trees in git's format (pure)."""

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


class FileEntry(Struct, frozen=True, array_like=True):
    """A file or link: its mode, and the name of its content.

    Git stores only the executable bit of permissions. Trees that we write contain all nine bits, which git ignores.
    """

    mode: int
    oid: str

    @property
    def is_link(self) -> bool:
        return stat.S_IFMT(self.mode) == LINK

    @property
    def permissions(self) -> int:
        return stat.S_IMODE(self.mode)


class TreeState(Struct, frozen=True, kw_only=True):
    """Some files, and the directories that are known to exist, even empty ones. Paths are relative bytes."""

    files: Mapping[bytes, FileEntry]
    dirs: frozenset[bytes] = frozenset()


def is_same(one: FileEntry | None, other: FileEntry | None) -> bool:
    """Return True if git would see no difference."""
    if one is None or other is None:
        return one is other
    if one.oid != other.oid or one.is_link != other.is_link:
        return False
    return one.is_link or one.mode & EXECUTABLE == other.mode & EXECUTABLE


def list_parents(path: bytes) -> Iterator[bytes]:
    """Yield the parent directories of a path, outermost first."""
    index = path.find(b"/")
    while index != -1:
        yield path[:index]
        index = path.find(b"/", index + 1)


def frame(kind: bytes, content: bytes) -> bytes:
    """Return an object with its header, as git names and stores it."""
    return b"%s %d\0%s" % (kind, len(content), content)


def object_name(framed: bytes) -> str:
    return hashlib.sha1(framed, usedforsecurity=False).hexdigest()


def blob_name(content: bytes) -> str:
    return object_name(frame(b"blob", content))


def format_path(path: bytes) -> str:
    """Format a path for users and JSON. Bytes that are not UTF-8 are escaped."""
    return path.decode(errors="backslashreplace")


def to_trees(state: TreeState) -> list[bytes]:
    """Return the contents of all trees of a state, each after those it refers to. The last one is the root."""
    lines: dict[bytes, list[tuple[bytes, bytes]]] = {b"": []}
    for directory in {*state.dirs, *(each for path in state.files for each in list_parents(path))}:
        for each in (*list_parents(directory), directory):
            lines.setdefault(each, [])
    for path, entry in state.files.items():
        directory, _, name = path.rpartition(b"/")
        lines[directory].append((name, _encode_line(entry.mode, name, entry.oid)))
    trees: list[bytes] = []
    for directory in sorted(lines, key=lambda path: (-path.count(b"/") - bool(path), path)):
        content = b"".join(line for _, line in sorted(lines[directory]))
        trees.append(content)
        if directory:
            parent, _, name = directory.rpartition(b"/")
            oid = object_name(frame(b"tree", content))
            lines[parent].append((name + b"/", _encode_line(DIRECTORY, name, oid)))
    return trees


def _encode_line(mode: int, name: bytes, oid: str) -> bytes:
    return b"%o %s\0%s" % (mode, name, bytes.fromhex(oid))


def from_tree(content: bytes) -> Iterator[tuple[bytes, FileEntry]]:
    """Yield names and entries of a tree. Raise `ValueError` if it is malformed."""
    position = 0
    while position < len(content):
        space, end = content.index(b" ", position), content.index(b"\0", position)
        oid = content[end + 1 : end + 1 + ID_BYTES]
        if len(oid) != ID_BYTES:
            raise ValueError("the tree is truncated")
        yield content[space + 1 : end], FileEntry(int(content[position:space], 8), oid.hex())
        position = end + 1 + ID_BYTES
