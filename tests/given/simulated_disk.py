"""A disk that loses at a power failure what was not flushed, fails, is full, and tears writes: all by a seed.

The files lie in a directory in memory, where the store reads them as on any disk. Beside them `Medium` keeps what would be there
after a power failure: the bytes of a file once the file was flushed, names once a directory was. As in the file systems with a journal
(ext4, XFS, btrfs, APFS), renames are atomic and changes of names reach the disk in their order. Nothing orders bytes: a file that
was not flushed may have its new name and be empty.
"""

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from random import Random

from weft.host.files import Disk

KEPT_WHOLE, KEPT_OLD = 0.4, 0.7


class Inode:
    """A file: its bytes on the disk itself, and after each write since they were flushed."""

    def __init__(self, durable: bytes = b"") -> None:
        self.durable = durable
        self.states: list[bytes] = []

    @property
    def now(self) -> bytes:
        return self.states[-1] if self.states else self.durable

    def write(self, raw: bytes) -> None:
        self.states.append(raw)

    def flush(self) -> None:
        self.durable, self.states = self.now, []

    def choose_survivor(self, random: Random) -> bytes:
        """Return what a power failure leaves: all, the flushed bytes, or a write that got only so far."""
        if not self.states:
            return self.durable
        chance = random.random()
        if chance < KEPT_WHOLE:
            return self.now
        if chance < KEPT_OLD:
            return self.durable
        before, after = random.choice([*zip([self.durable, *self.states], self.states, strict=False)])
        torn = random.randint(0, len(after))
        return after[:torn] + before[torn : len(after)]


Names = dict[str, Inode]


def rename(names: Names, source: str, target: str) -> None:
    """Rename a file, or a directory with all that is in it."""
    if source in names:
        names[target] = names.pop(source)
        return
    for path in [path for path in names if path.startswith(f"{source}/")]:
        names[target + path[len(source) :]] = names.pop(path)


class Medium:
    """The disk itself, below a directory, and the changes of names that have not reached it."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._names: Names = {}
        self._durable: Names = {}
        self._log: list[Callable[[Names], None]] = []

    def write(self, path: str, raw: bytes) -> None:
        inode = self._names.get(path)
        if inode is None:
            inode = Inode()
            self._change(lambda names: names.update({path: inode}))
        inode.write(raw)

    def replace(self, path: str, raw: bytes) -> None:
        """Write a file that begins empty."""
        if path in self._names:
            self._names[path].write(b"")
        self.write(path, raw)

    def read(self, path: str) -> bytes:
        return self._names[path].now if path in self._names else b""

    def move(self, source: str, target: str) -> None:
        self._change(lambda names: rename(names, source, target))

    def remove(self, path: str) -> None:
        if path in self._names:
            self._change(lambda names: names.pop(path, None))

    def flush(self, path: str) -> None:
        if path in self._names:
            self._names[path].flush()
        else:
            for change in self._log:
                change(self._durable)
            self._log.clear()

    def flush_all(self) -> None:
        self.flush(self.root)
        for inode in self._names.values():
            inode.flush()

    def _change(self, change: Callable[[Names], object]) -> None:
        change(self._names)
        self._log.append(lambda names: (change(names), None)[1])

    def fail_power(self, random: Random) -> int:
        """Leave what a power failure may leave. Return how many changes of names were lost."""
        last = min(len(self._log), 6)
        lost = random.choice((0, len(self._log), random.randint(0, len(self._log)), random.randint(0, last)))
        self.cut(lambda inode: inode.choose_survivor(random), lost=lost)
        return lost

    def cut(self, survivor: Callable[[Inode], bytes], *, lost: int = 0) -> None:
        """Put into the directory what is on the disk itself, without the last changes of names. `survivor` chooses the bytes of files."""
        names = dict(self._durable)
        for change in self._log[: len(self._log) - lost]:
            change(names)
        shutil.rmtree(self.root, ignore_errors=True)
        for path, inode in names.items():
            inode.durable, inode.states = survivor(inode), []
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(inode.durable)
        self._names, self._durable, self._log = names, dict(names), []

    @property
    def unflushed_names(self) -> int:
        return len(self._log)


class DiskFaults:
    """What goes wrong with the operations of one process: errors at random, a full disk for a while, death at one of them."""

    def __init__(self, random: Random, tell: Callable[[str], None]) -> None:
        self.random = random
        self._tell = tell
        self.operations = 0
        self.dead = False
        self.dies_at: int | None = None
        self.moves_left: int | None = None  # after this many renames, it dies at one of the next operations
        self.die: Callable[[], None] = lambda: None
        self.rate = 0.0
        self.failed = 0
        self.unflushed_notes = 0  # failed flushes of the directory of the write-ahead notes
        self._full_until = 0

    def find_error(self, operation: str, path: str) -> OSError | None:
        """Count an operation. Return the error with which it fails, after a part of it was done or before."""
        self.operations += 1
        if operation == "move" and self.moves_left is not None:
            self.moves_left -= 1
            if self.moves_left == 0:
                self.dies_at = self.operations + self.random.choice((0, 0, 1, 1, 2, 3))
        if self.operations == self.dies_at:
            self._tell(f"dies in {operation} {os.path.basename(path)}")
            self.die()
            return OSError(errno.EIO, "the process is dead", path)
        if self.dead:
            return OSError(errno.EIO, "the process is dead", path)
        is_full = self.operations < self._full_until and operation in ("prepare", "extend", "append")
        if not is_full and (not self.rate or self.random.random() >= self.rate):
            return None
        self.failed += 1
        self.unflushed_notes += operation == "flush" and path.endswith("/redo")
        if not is_full and self.random.random() < 0.2:
            self._full_until = self.operations + self.random.randint(2, 30)
        self._tell(f"fails: {operation} {os.path.basename(path)}")
        is_full = is_full or operation in ("prepare", "extend", "append")
        return OSError(*((errno.ENOSPC, "No space left") if is_full else (errno.EIO, "I/O error")), path)


class SimulatedDisk(Disk):
    """The disk as one process sees it."""

    def __init__(self, medium: Medium, trouble: DiskFaults) -> None:
        self._medium = medium
        self._trouble = trouble

    def _cut(self, raw: bytes) -> bytes:
        return raw[: self._trouble.random.randint(0, len(raw))]

    def prepare(self, temp: str, raw: bytes, *, flush: bool = False) -> None:
        error = self._trouble.find_error("prepare", temp)
        if error is not None and (self._trouble.dead or self._trouble.random.random() < 0.3):
            self._prepare(temp, self._cut(raw))  # nobody could remove it
        if error is not None:
            raise error
        self._prepare(temp, raw)
        if flush and (error := self._trouble.find_error("flush", temp)) is not None:
            raise error
        if flush:
            self._medium.flush(temp)

    def _prepare(self, temp: str, raw: bytes) -> None:
        if self._is_late():
            return
        super().prepare(temp, raw)
        self._medium.replace(temp, raw)

    def _is_late(self) -> bool:
        """Whether the process was dead before this operation: then it does nothing."""
        return self._trouble.dead and self._trouble.operations != self._trouble.dies_at

    def move(self, source: str, target: str) -> list[str]:
        if (error := self._trouble.find_error("move", target)) is not None:
            raise error
        made = super().move(source, target)
        self._medium.move(source, target)
        return made

    def extend(self, path: str, offset: int, raw: bytes) -> None:
        error = self._trouble.find_error("extend", path)
        self._extend(path, offset, raw if error is None else self._choose_left(raw))
        if error is not None:
            raise error

    def _choose_left(self, raw: bytes) -> bytes:
        """Return what a failed write leaves: nothing, unless nobody could take it back."""
        nobody_could = self._trouble.dead or self._trouble.random.random() < 0.3
        return self._cut(raw) if nobody_could else b""

    def _extend(self, path: str, offset: int, raw: bytes) -> None:
        if not self._is_late():
            before = self._medium.read(path)
            super().extend(path, offset, raw)
            self._medium.write(path, before[:offset] + raw)

    def append(self, path: str, raw: bytes, *, at: int, head: bytes = b"") -> None:
        self._write_under_head("append", path, at, raw, head)

    def extend_under_head(self, path: str, offset: int, raw: bytes, head: bytes) -> None:
        self._write_under_head("extend", path, offset, raw, head)

    def _write_under_head(self, operation: str, path: str, offset: int, raw: bytes, head: bytes) -> None:
        error = self._trouble.find_error(operation, path)
        left = raw if error is None else self._choose_left(raw)
        self._extend(path, offset, left)
        # The head is written last. It may be there if the write failed all the same.
        if head and (error is None or (left == raw and self._trouble.random.random() < 0.5)):
            self._write_head(path, offset, left, head)
        if error is not None:
            raise error

    def _write_head(self, path: str, offset: int, raw: bytes, head: bytes) -> None:
        if not self._is_late():
            super().extend_under_head(path, offset, raw, head)
            self._medium.write(path, head + self._medium.read(path)[len(head) :])

    def remove(self, path: str) -> None:
        if (error := self._trouble.find_error("remove", path)) is not None:
            raise error
        super().remove(path)
        self._medium.remove(path)

    def prune(self, path: str) -> None:
        if not self._trouble.dead:
            super().prune(path)

    def flush(self, path: str) -> None:
        if (error := self._trouble.find_error("flush", path)) is not None:
            raise error
        if os.path.lexists(path):
            self._medium.flush(path)

    def flush_many(self, paths: Sequence[str]) -> None:
        self._flush_each(paths)  # in a thread, nobody could tell which one a fault hits

    def flush_all(self) -> None:
        if (error := self._trouble.find_error("flush", "")) is not None:
            raise error
        self._medium.flush_all()
