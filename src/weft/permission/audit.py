"""The audit log of permission decisions: chained entries, written within a second and verifiable."""

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
from weft.host.files import Disk, hold_lock, make_directory, read_bytes, write_atomic
from weft.model.permission import Grant, PermissionRequest, Rule
from weft.model.wire import Wire, decode, encode
from weft.permission.requests import OpenRequest, RequestAnswer

# * allowed, denied: by a rule, a grant or a setting
# * asked, answered: a person was asked, and answered
# * unanswered: nobody answered in time
# * withdrawn: the run was aborted
# * granted, revoked: a permission for more than one call
# * dropped: entries were removed with an old file
# * lost: entries were not written
Decision = Literal[
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
ZERO_HASH = "0" * 64
MAX_TEXT_CHARS = 2000


class AuditEntry(Wire, frozen=True, kw_only=True):
    """A decision: what was decided about which request, for whom and by whom.

    `count` is the number of dropped or lost entries.
    """

    time: int
    what: Decision
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


def entry_for_request(
    what: Decision,
    request: PermissionRequest,
    agent: str,
    time: int,
    *,
    why: Rule | str | Sequence[Grant] = "",
) -> AuditEntry:
    """Return an entry about a request. `why` is the rule, the setting or the grants that decided."""
    granted = () if isinstance(why, str | Rule) else tuple(grant.id for grant in why)
    rule = f"{why.permission} {why.pattern} {why.action}" if isinstance(why, Rule) else why
    return AuditEntry(
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


def entry_for_answer(
    open_request: OpenRequest, request: PermissionRequest, answer: RequestAnswer, scope: str
) -> AuditEntry:
    return replace(
        entry_for_request("answered", request, open_request.agent, answer.time),
        reply=answer.reply,
        scope=scope,
        message=answer.message,
        by=answer.by,
    )


def entry_for_grant(what: Decision, grant: Grant, time: int, by: str) -> AuditEntry:
    return AuditEntry(
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


class AuditRecord(Wire, frozen=True, kw_only=True):
    """An entry in the chain: its number, and the hash of the previous line."""

    seq: int
    prev: str
    entry: AuditEntry


class ChainEnd(Wire, frozen=True, kw_only=True):
    """The end of a chain: the last number, and the hash of that line."""

    seq: int
    hash: str


CHAIN_START = ChainEnd(seq=0, hash=ZERO_HASH)
_decoder = msgspec.json.Decoder(AuditRecord)


def encode_entry(end: ChainEnd, entry: AuditEntry) -> tuple[bytes, ChainEnd]:
    """Return the line of an entry without its newline, and the new end of the chain."""
    line = encode(AuditRecord(seq=end.seq + 1, prev=end.hash, entry=entry))
    return line, ChainEnd(seq=end.seq + 1, hash=hash_line(line))


def read_line(line: bytes) -> AuditRecord | None:
    """Return the record of a line, None if it is not one."""
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError:
        return None


def hash_line(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


MAX_FILE_BYTES = 8 << 20
MAX_FILES = 8
TAIL_BYTES = 1 << 20
MAX_END_BYTES = 4096

Redact = Callable[[str], str]


def keep_text(text: str) -> str:
    """Return the text unchanged: nothing is redacted."""
    return text


class AuditFiles:
    """The files of a project's chain. `redact` removes what must not be written down, such as keys."""

    def __init__(
        self,
        directory: str,
        name: str,
        *,
        redact: Redact = keep_text,
        file_bytes: int = MAX_FILE_BYTES,
        files: int = MAX_FILES,
    ) -> None:
        self.path = os.path.join(directory, f"{name}.jsonl")
        self.end_path = os.path.join(directory, f"{name}.end")
        self._directory = directory
        self._name = name
        self._redact = redact
        self._file_bytes = file_bytes
        self._files = files

    def append(self, entries: Sequence[AuditEntry], *, flush: bool = False) -> None:
        """Add entries to the chain, also while other processes do. Raise `StoreError` if none were added."""
        make_directory(self._directory)
        try:
            with hold_lock(f"{self.path}.lock"):
                end = self._get_end()
                dropped = self._rotate(end, entries[0].time) if self._is_full() else []
                self._write(end, [*dropped, *map(self._redact_entry, entries)], flush=flush)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror}") from error

    def list_files(self) -> list[str]:
        """Return the files of the chain, oldest first."""
        older = sorted(self._list_older().items())
        return [path for _, path in older] + ([self.path] if os.path.exists(self.path) else [])

    def find_end(self) -> ChainEnd | None:
        """Return the recorded end of the chain, None if it is unknown."""
        try:
            return decode(read_bytes(self.end_path, limit=MAX_END_BYTES), ChainEnd, where=self.end_path)
        except (OSError, DocumentError):
            return None

    def _write(self, end: ChainEnd, entries: Iterable[AuditEntry], *, flush: bool) -> None:
        lines: list[bytes] = []
        for entry in entries:
            line, end = encode_entry(end, entry)
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

    def _get_end(self) -> ChainEnd:
        """Return where the chain continues: after the last line, or at the recorded end.

        The record wins if the last line was changed or removed: continuing from the line would hide that.
        """
        recorded, last = self.find_end() or CHAIN_START, CHAIN_START
        for path in reversed(self.list_files()):
            line = _read_last_line(path)
            record = read_line(line) if line else None
            if record is not None:
                last = ChainEnd(seq=record.seq, hash=hash_line(line))
            if line:
                break
        # Beyond the record: a process wrote the line and died before recording it.
        return last if last.seq > recorded.seq else recorded

    def _is_full(self) -> bool:
        with suppress(OSError):
            return os.path.getsize(self.path) >= self._file_bytes
        return False

    def _rotate(self, end: ChainEnd, now: int) -> list[AuditEntry]:
        """Start a new file and remove the oldest. Return an entry with the number of removed records."""
        os.replace(self.path, os.path.join(self._directory, f"{self._name}.{end.seq}.jsonl"))
        older = sorted(self._list_older().items())
        removed = older[: max(0, len(older) - (self._files - 1))]
        for _, path in removed:
            os.unlink(path)
        return [AuditEntry(time=now, what="dropped", count=removed[-1][0])] if removed else []

    def _list_older(self) -> dict[int, str]:
        found: dict[int, str] = {}
        with suppress(FileNotFoundError):
            for name in os.listdir(self._directory):
                number = name.removeprefix(f"{self._name}.").removesuffix(".jsonl")
                if name == f"{self._name}.{number}.jsonl" and number.isdigit():
                    found[int(number)] = os.path.join(self._directory, name)
        return found

    def _redact_entry(self, entry: AuditEntry) -> AuditEntry:
        return replace(
            entry,
            patterns=tuple(self._redact(pattern[:MAX_TEXT_CHARS]) for pattern in entry.patterns),
            message=self._redact(entry.message[:MAX_TEXT_CHARS]),
        )


def _read_last_line(path: str) -> bytes:
    """Return the last complete line of a file, empty if there is none. An incomplete line is truncated."""
    fd = os.open(path, os.O_RDWR)
    try:
        size = os.fstat(fd).st_size
        start = max(0, size - TAIL_BYTES)
        raw = os.pread(fd, size - start, start)
        end = raw.rfind(b"\n") + 1
        if end < len(raw):
            os.ftruncate(fd, start + end)
        return raw[:end].rstrip(b"\n").rpartition(b"\n")[2]
    finally:
        os.close(fd)


FLUSH_SECONDS = 1.0
MAX_WAITING = 10_000


class AuditLog:
    """Collects entries and writes them in the background. Without `files` nothing is written.

    A log that cannot be written blocks nobody: writing is tried again.
    """

    def __init__(self, files: AuditFiles | None) -> None:
        self._files = files
        self._waiting: deque[AuditEntry] = deque()
        self._lost = 0
        self._entry_waits = asyncio.Event()
        self._write_lock = asyncio.Lock()

    def note(self, entry: AuditEntry) -> None:
        """Queue an entry to be written. If too many wait, drop the oldest and count it as lost."""
        if self._files is None:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(entry)
        self._entry_waits.set()

    async def flush(self, *, to_disk: bool = False) -> None:
        """Write the waiting entries. Raise `StoreError` if that fails; then they wait for the next attempt."""
        async with self._write_lock:
            self._entry_waits.clear()
            entries, lost = list(self._waiting), self._lost
            if self._files is None or not entries:
                return
            lost_entry = [AuditEntry(time=entries[0].time, what="lost", count=lost)] if lost else []
            await asyncio.to_thread(self._files.append, [*lost_entry, *entries], flush=to_disk)
            for _ in entries:
                self._waiting.popleft()
            self._lost -= lost

    async def settle(self) -> None:
        """Try to write what a person decided to the disk itself. On failure it is tried again later."""
        with suppress(StoreError):
            await self.flush(to_disk=True)

    async def keep_flushing(self, clock: Clock) -> None:
        """Write waiting entries every `FLUSH_SECONDS` until cancelled."""
        while True:
            await self._entry_waits.wait()
            await clock.sleep(FLUSH_SECONDS)
            with suppress(StoreError):
                await self.flush()


class ChainBreak(Struct, frozen=True, kw_only=True):
    """The first record that does not follow from the previous one: where it is, and what is wrong."""

    seq: int
    file: str
    line: int
    reason: str


def read_entries(files: AuditFiles) -> Iterator[tuple[int, AuditEntry]]:
    """Yield every readable entry with its number, oldest first."""
    for path, _, line in _iterate_lines(files):
        record = read_line(line)
        if path and record is not None:
            yield record.seq, record.entry


def find_break(files: AuditFiles) -> tuple[int, ChainBreak | None]:
    """Return how many records are intact, and the first that is not."""
    end: ChainEnd | None = None
    intact, dropped, first = 0, 0, 0
    path, number = files.path, 0
    for path, number, line in _iterate_lines(files):
        record = read_line(line)
        if record is None:
            return intact, ChainBreak(seq=intact + first, file=path, line=number, reason="is not a record")
        if end is None:
            first = record.seq
            end = CHAIN_START if record.seq == 1 else ChainEnd(seq=record.seq - 1, hash=record.prev)
        if record.prev != end.hash or record.seq != end.seq + 1:
            reason = "does not follow the one before it, which was changed, added or taken out"
            return intact, ChainBreak(seq=record.seq, file=path, line=number, reason=reason)
        if record.entry.what == "dropped":
            dropped = record.entry.count
        end, intact = ChainEnd(seq=record.seq, hash=hash_line(line)), intact + 1
    if first > 1 and dropped != first - 1:
        reason = f"is the first there is, and only {dropped} before it are known to have been dropped"
        return intact, ChainBreak(seq=first, file=files.list_files()[0], line=1, reason=reason)
    return intact, _find_missing_end(files, end or CHAIN_START, path, number)


def _find_missing_end(files: AuditFiles, end: ChainEnd, path: str, number: int) -> ChainBreak | None:
    """Return the break if the log ends before its recorded end. One that continues after it was not recorded in time."""
    recorded = files.find_end()
    if recorded is None and end == CHAIN_START:
        return None
    if recorded is None:
        return ChainBreak(
            seq=end.seq, file=path, line=number, reason="is the last, but the note of the end is gone"
        )
    if recorded.seq > end.seq:
        reason = f"is missing, with all up to {recorded.seq}"
        return ChainBreak(seq=end.seq + 1, file=path, line=number + 1, reason=reason)
    if recorded.seq == end.seq and recorded.hash != end.hash:
        return ChainBreak(seq=end.seq, file=path, line=number, reason="is not the one that was written")
    return None


def _iterate_lines(files: AuditFiles) -> Iterator[tuple[str, int, bytes]]:
    for path in files.list_files():
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                if line.endswith(b"\n"):  # otherwise it is still being written
                    yield path, number, line[:-1]
