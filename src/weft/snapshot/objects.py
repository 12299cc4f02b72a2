"""The object store in git's own format, and the pins that keep a session's trees. Calls block."""

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
from weft.snapshot.entry import DIRECTORY, Entry, State, frame, from_tree, name_of, to_trees
from weft.snapshot.place import Place

SECONDS: Final = 120.0
# More than this at a time go into one pack: a file for each would cost ten times as long, and a block of disk each.
LOOSE_AT_MOST: Final = 200
AT_ONCE: Final = 64
LEVEL: Final = 1


class NoRoomError(Exception):
    """It would not fit into what snapshots may take up."""


class Objects:
    """Reads also what is borrowed from the person's repository; writes only what is ours. Calls block.

    What is read is checked against its name: a damaged object is a missing one.
    """

    def __init__(self, place: Place, plumbing: Plumbing, max_bytes: int) -> None:
        self._place = place
        self._plumbing = plumbing
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._size: int | None = None
        self.borrow = ""

    # --- writing ---

    def write(self, content: bytes, kind: bytes = b"blob", *, always: bool = False) -> str:
        """Store one object. `NoRoomError` if there is no room, unless it is to be stored whatever it takes."""
        framed = frame(kind, content)
        oid = name_of(framed)
        if self._read_loose(oid) is not None:
            os.utime(self._path(oid))  # what is written again is not old: nobody is to sweep it away now
            return oid
        packed = zlib.compress(framed, LEVEL)
        if not always:
            self._grow(len(packed))
        temp = f"{self._place.objects}/tmp_obj_{os.getpid()}_{threading.get_ident()}"
        write_atomic(self._path(oid), packed, temp=temp)
        return oid

    def write_many(self, contents: Iterable[bytes], *, count: int) -> None:
        """Many blobs, as one pack if they are very many."""
        if count <= LOOSE_AT_MOST:
            for content in contents:
                self.write(content)
            return

        def told() -> Iterator[bytes]:
            for content in contents:
                self._grow(len(content) // 2)  # a guess, put right when the size is next measured
                yield b"blob\ndata %d\n" % len(content)
                yield content
                yield b"\n"
            yield b"done\n"

        try:
            self._plumbing.feed(
                ["fast-import", "--quiet", "--done", "--depth=0", "--force"], told(), seconds=SECONDS
            )
        finally:
            self._size = None

    def write_state(self, state: State) -> Tree:
        return Tree([self.write(content, b"tree", always=True) for content in to_trees(state)][-1])

    def own(self, oids: Collection[str]) -> set[str]:
        """Copy blobs that are only borrowed: the person's repository may forget it. Gives those that are not to be had."""
        unsure = [oid for oid in oids if not os.path.exists(self._path(oid))]
        wanted = self._missing(unsure, borrow="")
        if not wanted:
            return set()
        with suppress(NoRoomError):
            self.write_many((content for _, _, content in self._read_packed(wanted)), count=len(wanted))
        return set(self._missing(wanted, borrow=""))

    # --- reading ---

    def find(self, oid: str) -> bytes | None:
        """The content of one object; None if nobody has it whole."""
        for _, content in self.read([oid]):
            return content
        return None

    def read(self, oids: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """The contents of those that are to be had, in no order."""
        packed: list[str] = []
        for oid in oids:
            content = self._read_loose(oid)
            if content is None:
                packed.append(oid)
            else:
                yield oid, content
        for oid, _, content in self._read_packed(packed):
            yield oid, content

    def missing(self, oids: Collection[str]) -> set[str]:
        """Those that neither we nor who we borrow from has. Their contents are not looked at."""
        few = len(oids) <= LOOSE_AT_MOST
        unsure = [oid for oid in oids if not (few and os.path.exists(self._path(oid)))]
        return set(self._missing(unsure, borrow=self.borrow))

    def unreadable(self, oids: Collection[str]) -> set[str]:
        """Those whose content is not to be had whole."""
        return set(oids) - {oid for oid, _ in self.read(oids)}

    def read_state(self, tree: Tree) -> State:
        files: dict[bytes, Entry] = {}
        dirs: set[bytes] = set()
        self._walk(tree, b"", files, dirs)
        return State(files=files, dirs=frozenset(dirs))

    def names_in(self, tree: Tree) -> set[str]:
        """Every object that a tree leads to, itself too."""
        names, todo = {str(tree)}, [str(tree)]
        while todo:
            for entry in (each for _, each in from_tree(self.find(todo.pop()) or b"")):
                if entry.mode == DIRECTORY and entry.oid not in names:
                    todo.append(entry.oid)
                names.add(entry.oid)
        return names

    def _walk(self, tree: str, prefix: bytes, files: dict[bytes, Entry], dirs: set[bytes]) -> None:
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
            if name_of(framed) == oid:
                return framed[framed.index(b"\0") + 1 :]
        return None

    def _read_packed(self, oids: Collection[str]) -> Iterator[tuple[str, bytes, bytes]]:
        for some in _portions(list(oids), AT_ONCE):
            with suppress(GitError):
                said = self._ask("cat-file", "--batch", oids=some, borrow=self.borrow)
                yield from _parse_batch(said)

    def _missing(self, oids: Collection[str], *, borrow: str) -> list[str]:
        if not oids:
            return []
        try:
            said = self._ask("cat-file", "--batch-check=%(objectname)", oids=oids, borrow=borrow)
        except GitError:
            return list(oids)
        return [line.split()[0].decode() for line in said.splitlines() if line.endswith(b" missing")]

    def _ask(self, *args: str, oids: Collection[str], borrow: str) -> bytes:
        return self._plumbing.run(args, input=_lines(oids), borrow=borrow, seconds=SECONDS)

    # --- room ---

    def size(self) -> int:
        """The bytes that all objects take up."""
        with self._lock:
            if self._size is None:
                self._size = measure(self._place.objects)
            return self._size

    def _grow(self, by: int) -> None:
        if self.size() + by > self._max_bytes:
            raise NoRoomError
        with self._lock:
            self._size = (self._size or 0) + by

    def _path(self, oid: str) -> str:
        return f"{self._place.objects}/{oid[:2]}/{oid[2:]}"


def measure(directory: str, keep: Callable[[str], bool] = lambda _: True) -> int:
    """The bytes in the files below a directory."""
    total = 0
    for where, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                total += os.stat(f"{where}/{name}").st_size if keep(name) else 0
    return total


def sweep_temps(place: Place, *, older_than: Callable[[os.stat_result], bool]) -> None:
    """Remove what git, or we, were writing when the machine or the process went down."""
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


def _parse_batch(said: bytes) -> Iterator[tuple[str, bytes, bytes]]:
    """Name, kind and content of each object that git found and that is what its name says."""
    at = 0
    while at < len(said):
        end = said.index(b"\n", at)
        words = said[at:end].split()
        at = end + 1
        if words[-1] in (b"missing", b"ambiguous"):
            continue
        oid, kind, size = words[0].decode(), words[1], int(words[2])
        content = said[at : at + size]
        at += size + 1
        if name_of(frame(kind, content)) == oid:
            yield oid, kind, content


def _portions(things: list[str], size: int) -> Iterator[list[str]]:
    for at in range(0, len(things), size):
        yield things[at : at + size]


def _lines(oids: Iterable[str]) -> bytes:
    return "".join(f"{oid}\n" for oid in oids).encode()


_TREE = re.compile(r"[0-9a-f]{40}")
_SESSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")


def pin(place: Place, session: SessionID, trees: Iterable[Tree]) -> None:
    for tree in trees:
        path = _path(place, session, tree)
        if path is not None and not os.path.exists(path):
            write_atomic(path, f"{tree}\n".encode(), temp=f"{place.pins}/{session}~{tree}")


def unpin(place: Place, session: SessionID, trees: Iterable[Tree]) -> None:
    for tree in trees:
        if (path := _path(place, session, tree)) is not None:
            Disk().remove(path)
            Disk().prune(os.path.dirname(path))


def release(place: Place, session: SessionID) -> None:
    unpin(place, session, list_pins(place, session))


def list_pins(place: Place, session: SessionID) -> list[Tree]:
    return [Tree(name) for name in _names(f"{place.pins}/{session}") if _TREE.fullmatch(name)]


def list_sessions(place: Place) -> list[SessionID]:
    """Those that have anything pinned."""
    return [SessionID(name) for name in _names(place.pins) if _SESSION.fullmatch(name)]


def _path(place: Place, session: SessionID, tree: Tree) -> str | None:
    """None for what is no name: it would lead elsewhere."""
    valid = _SESSION.fullmatch(session) and _TREE.fullmatch(tree)
    return f"{place.pins}/{session}/{tree}" if valid else None


def _names(directory: str) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(directory))
    return []
