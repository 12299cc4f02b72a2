"""The object store in git's own format, and the pins that keep a session's trees. Every function blocks."""

import os
import re
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Final

from weft.errors import GitError, SnapshotMissingError
from weft.host.files import Disk, make_directory, write_atomic
from weft.host.git import Plumbing
from weft.model.diff import Tree
from weft.model.ids import SessionID
from weft.snapshot.entry import DIRECTORY, FileEntry, TreeState, frame, from_tree, object_name, to_trees
from weft.snapshot.location import SnapshotLocation

GIT_SECONDS: Final = 120.0
# More objects than this go into one pack. One file for each would take ten times as long, and a disk block each.
MAX_LOOSE_OBJECTS: Final = 200
BATCH_SIZE: Final = 64
COMPRESSION_LEVEL: Final = 1


class SnapshotsFullError(Exception):
    """The object does not fit into the space for snapshots."""


class ObjectStore:
    """Reads objects of our own repository and of the user's (`alternate`); writes only to our own. Every method blocks.

    Every object is checked against its name when it is read. A damaged one counts as missing.
    """

    def __init__(self, place: SnapshotLocation, plumbing: Plumbing, max_bytes: int) -> None:
        self._place = place
        self._plumbing = plumbing
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._size: int | None = None
        self.alternate = ""

    # --- writing ---

    def write(self, content: bytes, kind: bytes = b"blob", *, always: bool = False) -> str:
        """Store one object. Raise `SnapshotsFullError` if there is no space, unless `always`."""
        framed = frame(kind, content)
        oid = object_name(framed)
        if self._read_loose(oid) is not None:
            os.utime(self._path(oid))  # it is in use again, so garbage collection must not take it for old
            return oid
        packed = zlib.compress(framed, COMPRESSION_LEVEL)
        if not always:
            self._reserve(len(packed))
        temp = f"{self._place.objects}/tmp_obj_{os.getpid()}_{threading.get_ident()}"
        write_atomic(self._path(oid), packed, temp=temp)
        return oid

    def write_many(self, contents: Iterable[bytes], *, count: int) -> None:
        """Store many blobs, as one pack if they are very many."""
        if count <= MAX_LOOSE_OBJECTS:
            for content in contents:
                self.write(content)
            return

        def encode() -> Iterator[bytes]:
            for content in contents:
                self._reserve(len(content) // 2)  # an estimate, corrected when the size is next measured
                yield b"blob\ndata %d\n" % len(content)
                yield content
                yield b"\n"
            yield b"done\n"

        try:
            self._plumbing.feed(
                ["fast-import", "--quiet", "--done", "--depth=0", "--force"], encode(), seconds=GIT_SECONDS
            )
        finally:
            self._size = None

    def write_state(self, state: TreeState) -> Tree:
        return Tree([self.write(content, b"tree", always=True) for content in to_trees(state)][-1])

    def copy_borrowed(self, oids: Collection[str]) -> set[str]:
        """Copy blobs that only the user's repository has, because it may drop them. Return those that are missing."""
        unsure = [oid for oid in oids if not os.path.exists(self._path(oid))]
        missing = self._find_missing(unsure, alternate="")
        if not missing:
            return set()
        with suppress(SnapshotsFullError):
            self.write_many((content for _, _, content in self._read_packed(missing)), count=len(missing))
        return set(self._find_missing(missing, alternate=""))

    # --- reading ---

    def find(self, oid: str) -> bytes | None:
        """Return the content of an object; None if it is missing or damaged."""
        for _, content in self.read([oid]):
            return content
        return None

    def read(self, oids: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the contents of the objects that exist, in no order."""
        packed: list[str] = []
        for oid in oids:
            content = self._read_loose(oid)
            if content is None:
                packed.append(oid)
            else:
                yield oid, content
        for oid, _, content in self._read_packed(packed):
            yield oid, content

    def find_missing(self, oids: Collection[str]) -> set[str]:
        """Return the objects that exist neither in our repository nor in the user's. Contents are not checked."""
        few = len(oids) <= MAX_LOOSE_OBJECTS
        unsure = [oid for oid in oids if not (few and os.path.exists(self._path(oid)))]
        return set(self._find_missing(unsure, alternate=self.alternate))

    def find_unreadable(self, oids: Collection[str]) -> set[str]:
        """Return the objects that are missing or damaged."""
        return set(oids) - {oid for oid, _ in self.read(oids)}

    def read_state(self, tree: Tree) -> TreeState:
        files: dict[bytes, FileEntry] = {}
        dirs: set[bytes] = set()
        self._walk(tree, b"", files, dirs)
        return TreeState(files=files, dirs=frozenset(dirs))

    def list_reachable(self, tree: Tree) -> set[str]:
        """Return the names of all objects reachable from a tree, including itself."""
        names, todo = {str(tree)}, [str(tree)]
        while todo:
            for entry in (each for _, each in from_tree(self.find(todo.pop()) or b"")):
                if entry.mode == DIRECTORY and entry.oid not in names:
                    todo.append(entry.oid)
                names.add(entry.oid)
        return names

    def _walk(self, tree: str, prefix: bytes, files: dict[bytes, FileEntry], dirs: set[bytes]) -> None:
        content = self.find(tree)
        if content is None:
            raise SnapshotMissingError(f"the snapshot {tree} cannot be read")
        try:
            for name, entry in from_tree(content):
                if entry.mode == DIRECTORY:
                    dirs.add(prefix + name)
                    self._walk(entry.oid, prefix + name + b"/", files, dirs)
                else:
                    files[prefix + name] = entry
        except ValueError as error:
            raise SnapshotMissingError(f"the snapshot {tree} is damaged") from error

    def _read_loose(self, oid: str) -> bytes | None:
        with suppress(OSError, zlib.error, ValueError):
            with open(self._path(oid), "rb") as file:
                framed = zlib.decompress(file.read())
            if object_name(framed) == oid:
                return framed[framed.index(b"\0") + 1 :]
        return None

    def _read_packed(self, oids: Collection[str]) -> Iterator[tuple[str, bytes, bytes]]:
        for batch in _split_batches(list(oids), BATCH_SIZE):
            with suppress(GitError):
                output = self._run_git("cat-file", "--batch", oids=batch, alternate=self.alternate)
                yield from _parse_batch(output)

    def _find_missing(self, oids: Collection[str], *, alternate: str) -> list[str]:
        if not oids:
            return []
        try:
            output = self._run_git("cat-file", "--batch-check=%(objectname)", oids=oids, alternate=alternate)
        except GitError:
            return list(oids)
        return [line.split()[0].decode() for line in output.splitlines() if line.endswith(b" missing")]

    def _run_git(self, *args: str, oids: Collection[str], alternate: str) -> bytes:
        return self._plumbing.run(args, input=_encode_lines(oids), alternate=alternate, seconds=GIT_SECONDS)

    # --- size ---

    def size(self) -> int:
        """Return the size of all objects in bytes."""
        with self._lock:
            if self._size is None:
                self._size = measure_files(self._place.objects)
            return self._size

    def _reserve(self, size: int) -> None:
        if self.size() + size > self._max_bytes:
            raise SnapshotsFullError
        with self._lock:
            self._size = (self._size or 0) + size

    def _path(self, oid: str) -> str:
        return f"{self._place.objects}/{oid[:2]}/{oid[2:]}"


def measure_files(directory: str, keep: Callable[[str], bool] = lambda _: True) -> int:
    """Return the size of all files below a directory in bytes."""
    total = 0
    for where, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                total += os.stat(f"{where}/{name}").st_size if keep(name) else 0
    return total


def remove_temps(place: SnapshotLocation, *, older_than: Callable[[os.stat_result], bool]) -> None:
    """Remove temporary files that git or weft left when they were killed."""
    make_directory(f"{place.objects}/pack")
    for directory, prefix in (
        (place.objects, "tmp_obj_"),
        (f"{place.objects}/pack", "tmp_"),
        (place.git_dir, "fast_import_crash_"),
    ):
        for name in os.listdir(directory):
            with suppress(OSError):
                path = f"{directory}/{name}"
                if name.startswith(prefix) and older_than(os.stat(path)):
                    Disk().remove(path)


def _parse_batch(output: bytes) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield name, kind and content of each object in git's output that matches its name."""
    position = 0
    while position < len(output):
        end = output.index(b"\n", position)
        header = output[position:end].split()
        position = end + 1
        if header[-1] in (b"missing", b"ambiguous"):
            continue
        oid, kind, size = header[0].decode(), header[1], int(header[2])
        content = output[position : position + size]
        position += size + 1
        if object_name(frame(kind, content)) == oid:
            yield oid, kind, content


def _split_batches(oids: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(oids), size):
        yield oids[start : start + size]


def _encode_lines(oids: Iterable[str]) -> bytes:
    return "".join(f"{oid}\n" for oid in oids).encode()


_TREE = re.compile(r"[0-9a-f]{40}")
_SESSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")


def pin_trees(place: SnapshotLocation, session: SessionID, trees: Iterable[Tree]) -> None:
    for tree in trees:
        path = _pin_path(place, session, tree)
        if path is not None and not os.path.exists(path):
            write_atomic(path, f"{tree}\n".encode(), temp=f"{place.pins}/{session}~{tree}")


def unpin_trees(place: SnapshotLocation, session: SessionID, trees: Iterable[Tree]) -> None:
    for tree in trees:
        if (path := _pin_path(place, session, tree)) is not None:
            Disk().remove(path)
            Disk().prune(os.path.dirname(path))


def release_session(place: SnapshotLocation, session: SessionID) -> None:
    unpin_trees(place, session, list_pins(place, session))


def list_pins(place: SnapshotLocation, session: SessionID) -> list[Tree]:
    return [Tree(name) for name in _list_names(f"{place.pins}/{session}") if _TREE.fullmatch(name)]


def list_sessions(place: SnapshotLocation) -> list[SessionID]:
    """Return the sessions that have pins."""
    return [SessionID(name) for name in _list_names(place.pins) if _SESSION.fullmatch(name)]


def _pin_path(place: SnapshotLocation, session: SessionID, tree: Tree) -> str | None:
    """Return None for an invalid name, because it could lead to another directory."""
    valid = _SESSION.fullmatch(session) and _TREE.fullmatch(tree)
    return f"{place.pins}/{session}/{tree}" if valid else None


def _list_names(directory: str) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(directory))
    return []
