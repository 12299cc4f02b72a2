"""The log of decisions: lines that are only ever added, each with the hash of the one before.

One chain for a project, in files of bounded size; the newest is `<name>.jsonl`, older ones carry the number of their
last record. Beside it, `<name>.end` tells how far the chain went, so that a log cut short is seen to be.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from weft.errors import DocumentError, StoreError
from weft.host.files import Disk, locked, make_directory, read_bytes, write_atomic
from weft.model.wire import decode, encode
from weft.permission.entry import LONGEST, START, Entry, Link, add, hash_of, read_line

FILE_BYTES = 8 << 20
FILES = 8
TAIL = 1 << 20
END_LIMIT = 4096

Clean = Callable[[str], str]


def as_it_is(text: str) -> str:
    return text


class LogFiles:
    """Where the chain of a project lies. `clean` covers what must not be written down, such as keys."""

    def __init__(
        self,
        directory: str,
        name: str,
        *,
        clean: Clean = as_it_is,
        file_bytes: int = FILE_BYTES,
        files: int = FILES,
    ) -> None:
        self.path = os.path.join(directory, f"{name}.jsonl")
        self.end_path = os.path.join(directory, f"{name}.end")
        self._directory = directory
        self._name = name
        self._clean = clean
        self._file_bytes = file_bytes
        self._files = files

    def append(self, entries: Sequence[Entry], *, flush: bool = False) -> None:
        """Add entries to the chain, whoever else is adding to it. Raises `StoreError` and has added none."""
        make_directory(self._directory)
        try:
            with locked(f"{self.path}.lock"):
                end = self._end()
                dropped = self._turn(end, entries[0].time) if self._is_full() else []
                self._write(end, [*dropped, *map(self._covered, entries)], flush=flush)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror}") from error

    def list_files(self) -> list[str]:
        """The files of the chain, oldest first."""
        older = sorted(self._older().items())
        return [path for _, path in older] + ([self.path] if os.path.exists(self.path) else [])

    def find_end(self) -> Link | None:
        """How far the chain went when it was last added to; None if that is not known."""
        try:
            return decode(read_bytes(self.end_path, limit=END_LIMIT), Link, where=self.end_path)
        except (OSError, DocumentError):
            return None

    def _write(self, end: Link, entries: Iterable[Entry], *, flush: bool) -> None:
        lines: list[bytes] = []
        for entry in entries:
            line, end = add(end, entry)
            lines.append(line)
        try:
            size = os.path.getsize(self.path)
        except FileNotFoundError:
            size = 0
        disk = Disk()
        disk.extend(self.path, size, b"".join(line + b"\n" for line in lines))
        if flush:
            disk.flush(self.path)
        write_atomic(self.end_path, encode(end), temp=f"{self.end_path}~")

    def _end(self) -> Link:
        """Where the chain goes on: at the last line there is, or at the end that was noted.

        The note has the word if the line was changed, or is gone: going on from what stands there would heal the chain.
        """
        noted, found = self.find_end() or START, START
        for path in reversed(self.list_files()):
            line = _last_line(path)
            record = read_line(line) if line else None
            if record is not None:
                found = Link(seq=record.seq, hash=hash_of(line))
            if line:
                break
        # Further than the note: whoever wrote the line died before noting it.
        return found if found.seq > noted.seq else noted

    def _is_full(self) -> bool:
        with suppress(OSError):
            return os.path.getsize(self.path) >= self._file_bytes
        return False

    def _turn(self, end: Link, now: int) -> list[Entry]:
        """Begin a new file. What goes for good is told in it: how many records, from the first on."""
        os.replace(self.path, os.path.join(self._directory, f"{self._name}.{end.seq}.jsonl"))
        older = sorted(self._older().items())
        gone = older[: max(0, len(older) - (self._files - 1))]
        for _, path in gone:
            os.unlink(path)
        return [Entry(time=now, what="dropped", count=gone[-1][0])] if gone else []

    def _older(self) -> dict[int, str]:
        found: dict[int, str] = {}
        with suppress(FileNotFoundError):
            for name in os.listdir(self._directory):
                number = name.removeprefix(f"{self._name}.").removesuffix(".jsonl")
                if name == f"{self._name}.{number}.jsonl" and number.isdigit():
                    found[int(number)] = os.path.join(self._directory, name)
        return found

    def _covered(self, entry: Entry) -> Entry:
        return replace(
            entry,
            patterns=tuple(self._clean(pattern[:LONGEST]) for pattern in entry.patterns),
            message=self._clean(entry.message[:LONGEST]),
        )


def _last_line(path: str) -> bytes:
    """The last whole line of a file, empty if there is none. What follows it is cut off."""
    fd = os.open(path, os.O_RDWR)
    try:
        size = os.fstat(fd).st_size
        start = max(0, size - TAIL)
        raw = os.pread(fd, size - start, start)
        whole = raw.rfind(b"\n") + 1
        if whole < len(raw):
            os.ftruncate(fd, start + whole)
        return raw[:whole].rstrip(b"\n").rpartition(b"\n")[2]
    finally:
        os.close(fd)
