"""The decision log: one chained entry per decision, written within a second, and verified."""

import asyncio
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.errors import DocumentError, StoreError
from weft.host.clock import Clock
from weft.host.files import Disk, locked, make_directory, read_bytes, write_atomic
from weft.model.permission import Grant, PermissionRequest, Rule
from weft.model.wire import Wire, decode, encode
from weft.permission.requests import Answer, Asked

# allowed and denied by a rule, a grant or a setting; asked of a person, answered by one, answered by nobody in time;
# withdrawn when the run was aborted; granted and revoked for longer; dropped when old files went.
What = Literal[
    "allowed",
    "denied",
    "asked",
    "answered",
    "unanswered",
    "withdrawn",
    "granted",
    "revoked",
    "dropped",
    "lost",
]
BEGINNING = "0" * 64
LONGEST = 2000


class Entry(Wire, frozen=True, kw_only=True):
    """What was decided, of what, for whom, and on whose word. `count` is how many entries were dropped or lost."""

    time: int
    what: What
    session_id: str = ""
    agent: str = ""
    permission: str = ""
    patterns: tuple[str, ...] = ()
    rule: str = ""
    grants: tuple[str, ...] = ()
    request_id: str = ""
    reply: str = ""
    scope: str = ""
    message: str = ""
    by: str = ""
    count: int = 0


def of_request(
    what: What, request: PermissionRequest, agent: str, time: int, *, why: Rule | str | Sequence[Grant] = ""
) -> Entry:
    """What became of a request. `why` is the rule, the setting or the grants that decided."""
    granted = () if isinstance(why, str | Rule) else tuple(grant.id for grant in why)
    rule = f"{why.permission} {why.pattern} {why.action}" if isinstance(why, Rule) else why
    return Entry(
        time=time,
        what=what,
        session_id=request.session_id,
        agent=agent,
        permission=request.permission,
        patterns=request.patterns,
        rule=rule if isinstance(rule, str) else "",
        grants=granted,
        request_id=request.id,
    )


def of_answer(asked: Asked, request: PermissionRequest, answer: Answer, scope: str) -> Entry:
    return replace(
        of_request("answered", request, asked.agent, answer.time),
        reply=answer.reply,
        scope=scope,
        message=answer.message,
        by=answer.by,
    )


def of_grant(what: What, grant: Grant, time: int, by: str) -> Entry:
    return Entry(
        time=time,
        what=what,
        session_id=grant.session_id or "",
        agent=grant.agent or "",
        permission=grant.permission,
        patterns=grant.patterns,
        grants=(grant.id,),
        scope=grant.scope,
        by=by,
    )


class Record(Wire, frozen=True, kw_only=True):
    """An entry in its place: its number, and the hash of the line before it."""

    seq: int
    prev: str
    entry: Entry


class Link(Wire, frozen=True, kw_only=True):
    """The end of a chain: the last number, and the hash of that line."""

    seq: int
    hash: str


START = Link(seq=0, hash=BEGINNING)
_decoder = msgspec.json.Decoder(Record)


def add(end: Link, entry: Entry) -> tuple[bytes, Link]:
    """The line for an entry, without its newline, and the chain's new end."""
    line = encode(Record(seq=end.seq + 1, prev=end.hash, entry=entry))
    return line, Link(seq=end.seq + 1, hash=hash_of(line))


def read_line(line: bytes) -> Record | None:
    """The record of a line, None if it is none."""
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError:
        return None


def hash_of(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


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


FLUSH_SECONDS = 1.0
MOST = 10_000


class Audit:
    """Without `files` nothing is written down. A log that cannot be written to holds up nobody: it is tried again."""

    def __init__(self, files: LogFiles | None) -> None:
        self._files = files
        self._waiting: deque[Entry] = deque()
        self._lost = 0
        self._noted = asyncio.Event()
        self._writing = asyncio.Lock()

    def note(self, entry: Entry) -> None:
        if self._files is None:
            return
        if len(self._waiting) >= MOST:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(entry)
        self._noted.set()

    async def flush(self, *, to_disk: bool = False) -> None:
        """Write what waits. Raises `StoreError`, and it waits on."""
        async with self._writing:
            self._noted.clear()
            entries, lost = list(self._waiting), self._lost
            if self._files is None or not entries:
                return
            told = [Entry(time=entries[0].time, what="lost", count=lost)] if lost else []
            await asyncio.to_thread(self._files.append, [*told, *entries], flush=to_disk)
            for _ in entries:
                self._waiting.popleft()
            self._lost -= lost

    async def settle(self) -> None:
        """Have what a person said on the disk itself, if it can be written at all; else it is tried again."""
        with suppress(StoreError):
            await self.flush(to_disk=True)

    async def keep_flushing(self, clock: Clock) -> None:
        while True:
            await self._noted.wait()
            await clock.sleep(FLUSH_SECONDS)
            with suppress(StoreError):
                await self.flush()


class Break(Struct, frozen=True, kw_only=True):
    """The first record that does not follow from the one before: where it stands, and what is wrong."""

    seq: int
    file: str
    line: int
    reason: str


def read_entries(files: LogFiles) -> Iterator[tuple[int, Entry]]:
    """Every entry that can be read, oldest first, with its number."""
    for path, _, line in _lines(files):
        record = read_line(line)
        if path and record is not None:
            yield record.seq, record.entry


def find_break(files: LogFiles) -> tuple[int, Break | None]:
    """How many records hold, and the first that does not."""
    end: Link | None = None
    held, dropped, first = 0, 0, 0
    path, number = files.path, 0
    for path, number, line in _lines(files):
        record = read_line(line)
        if record is None:
            return held, Break(seq=held + first, file=path, line=number, reason="is not a record")
        if end is None:
            first = record.seq
            end = START if record.seq == 1 else Link(seq=record.seq - 1, hash=record.prev)
        if record.prev != end.hash or record.seq != end.seq + 1:
            reason = "does not follow the one before it, which was changed, added or taken out"
            return held, Break(seq=record.seq, file=path, line=number, reason=reason)
        if record.entry.what == "dropped":
            dropped = record.entry.count
        end, held = Link(seq=record.seq, hash=hash_of(line)), held + 1
    if first > 1 and dropped != first - 1:
        reason = f"is the first there is, and only {dropped} before it are known to have been dropped"
        return held, Break(seq=first, file=files.list_files()[0], line=1, reason=reason)
    return held, _cut_short(files, end or START, path, number)


def _cut_short(files: LogFiles, end: Link, path: str, number: int) -> Break | None:
    """A log that ends before its last known end. One that goes on after it was only cut off from telling so."""
    known = files.find_end()
    if known is None and end == START:
        return None
    if known is None:
        return Break(
            seq=end.seq, file=path, line=number, reason="is the last, but the note of the end is gone"
        )
    if known.seq > end.seq:
        reason = f"is missing, with all up to {known.seq}"
        return Break(seq=end.seq + 1, file=path, line=number + 1, reason=reason)
    if known.seq == end.seq and known.hash != end.hash:
        return Break(seq=end.seq, file=path, line=number, reason="is not the one that was written")
    return None


def _lines(files: LogFiles) -> Iterator[tuple[str, int, bytes]]:
    for path in files.list_files():
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n"):  # else it is still being written
                    yield path, number, line[:-1]
