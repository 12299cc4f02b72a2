"""Listings: what git says of the files below a directory, compared with an index, as values."""

import os
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from msgspec import Struct

from weft.host.git import Plumbing
from weft.snapshot.entry import Entry
from weft.snapshot.objects import Objects

# Past this many, asking for all is cheaper than naming them.
NAMED_AT_MOST: Final = 300


class Differing(Struct, frozen=True, kw_only=True):
    """What differs from an index: files known to it, files new to it, and directories of which it knows nothing."""

    known: frozenset[bytes]
    new: frozenset[bytes]
    bare: frozenset[bytes]
    nested: frozenset[bytes]

    @property
    def files(self) -> list[bytes]:
        return sorted(self.known | self.new)


class Listing:
    """Asks git. `ignoring` says which rules of the person's own count besides the `.gitignore` files."""

    def __init__(self, plumbing: Plumbing, objects: Objects, seconds: float) -> None:
        self._plumbing = plumbing
        self._objects = objects
        self._seconds = seconds
        self.settings: tuple[str, ...] = ()
        self.ignoring: tuple[str, ...] = ()

    def differing(self, index: str, root: bytes) -> Differing:
        tagged = _split(self._files(index, "-t", "-m", "-d", "-o", "--directory", *self._standard()))
        known = frozenset(line[2:] for line in tagged if line[:1] in b"CR")
        others = [line[2:] for line in tagged if line[:1] == b"?"]
        # A directory where the index has a file is not told of: it has the name of something known.
        swapped = {path for path in known if _is_directory(os.path.join(root, path))}
        bare = frozenset(other[:-1] for other in others if other.endswith(b"/")) | swapped
        nested = {path for path in bare if os.path.lexists(os.path.join(root, path, b".git"))}
        deeper = self._in_bare(index, bare - nested)
        nested.update(path[:-1] for path in deeper if path.endswith(b"/"))
        new = {path for path in (*others, *deeper) if not path.endswith(b"/")}
        return Differing(known=known, new=frozenset(new), bare=bare - nested, nested=frozenset(nested))

    def entries(self, index: str, paths: Collection[bytes] | None = None) -> dict[bytes, Entry]:
        """What an index holds, or of these paths what it holds."""
        if not os.path.exists(index):
            return {}
        named = _named(paths) if paths is not None else None
        found = {}
        for line in _split(self._files(index, "-s", *(() if named is None else ("--", *named)))):
            facts, _, path = line.partition(b"\t")
            mode, oid, _ = facts.split(b" ")
            found[path] = Entry(int(mode, 8), oid.decode())
        if paths is None or named is not None:
            return found
        return {path: found[path] for path in paths if path in found}

    def _in_bare(self, index: str, bare: Collection[bytes]) -> list[bytes]:
        if not bare:
            return []
        named = _named(bare)
        return _split(self._files(index, "-o", *self._standard(), *(("--", *named) if named else ())))

    def _standard(self) -> tuple[str, ...]:
        return ("--exclude-standard", *self.ignoring)

    def _files(self, index: str, *args: str) -> bytes:
        asked = [*self.settings, "ls-files", "-z", *args]
        return self._plumbing.run(asked, index=index, borrow=self._objects.borrow, seconds=self._seconds)


def _named(paths: Collection[bytes]) -> Sequence[str] | None:
    """The paths as arguments; None if they are too many."""
    return [os.fsdecode(path) for path in paths] if len(paths) <= NAMED_AT_MOST else None


def _is_directory(path: bytes) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _split(said: bytes) -> list[bytes]:
    return said.split(b"\0")[:-1]


def directories_in(root: bytes, bare: Collection[bytes], *, at_most: int) -> Iterator[bytes]:
    """These directories and those in them, links not followed, up to a number."""
    todo = list(bare)
    while todo and at_most:
        path = todo.pop()
        at_most -= 1
        yield path
        try:
            with os.scandir(os.path.join(root, path)) as found:
                todo += [path + b"/" + each.name for each in found if each.is_dir(follow_symlinks=False)]
        except OSError:
            continue
