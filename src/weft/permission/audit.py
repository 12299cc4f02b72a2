"""The audit log of permission decisions: chained entries, written within a second and verifiable."""

import asyncio
import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.errors import DocumentError, StoreError
from weft.host.clock import Clock
from weft.host.tasks import run_to_completion
from weft.model.ids import ProjectID
from weft.model.permission import Grant, PermissionDecision, PermissionRequest, Rule
from weft.model.wire import Wire, encode, from_plain, to_plain
from weft.permission.requests import OpenRequest, RequestAnswer
from weft.permission.storage import RecordStore, end_key, log_key

# * allowed, denied: by a rule, a grant, a plugin or the answer to an earlier request
# * asked, answered: a person was asked, and answered
# * unanswered: nobody could be asked, or nobody answered in time
# * withdrawn: the run was aborted
# * granted, revoked: a permission for more than one call
# * dropped: the oldest entries were removed
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
# What front ends see of an entry.
_SHOWN = frozenset(PermissionDecision.__struct_fields__) - {"seq", "extra_"}
ZERO_HASH = "0" * 64
MAX_TEXT_CHARS = 2000
# What is left of a word, so that a secret is redacted whole. Only private keys contain spaces, and the beginning of one is recognised.
REST_OF_WORD = re.compile(r"\S{0,4000}")


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
    """The end of a chain: the last number, and the hash of that line.

    The first `dropped` records may have been removed. Some of them are left, because others may append while `append` removes them.
    """

    seq: int
    hash: str
    dropped: int = 0


CHAIN_START = ChainEnd(seq=0, hash=ZERO_HASH)
_decoder = msgspec.json.Decoder(AuditRecord)


def encode_entry(end: ChainEnd, entry: AuditEntry) -> tuple[bytes, ChainEnd]:
    """Return the line of an entry without its newline, and the new end of the chain."""
    line = encode(AuditRecord(seq=end.seq + 1, prev=end.hash, entry=entry))
    dropped = entry.count if entry.what == "dropped" else end.dropped
    return line, ChainEnd(seq=end.seq + 1, hash=hash_line(line), dropped=dropped)


def read_line(line: bytes) -> AuditRecord | None:
    """Return the record of a line, None if it is not one."""
    try:
        return _decoder.decode(line)
    except msgspec.DecodeError:
        return None


def hash_line(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


# About 60 MB.
MAX_RECORDS = 150_000
KEPT_RECORDS = 100_000

Redact = Callable[[str], str]


def keep_text(text: str) -> str:
    """Return the text unchanged: nothing is redacted."""
    return text


def read_end(stored: Any) -> ChainEnd | None:
    """Return the recorded end of a chain from its value in the store, None if it is unknown."""
    try:
        return from_plain(stored, ChainEnd, where="the end of an audit log")
    except DocumentError:
        return None


class AuditChain:
    """The chain of a project in a store. `redact` removes what must not be written down, such as keys.

    When the chain has `max_records`, the oldest are removed, so that a little more than `kept_records` are left.
    """

    def __init__(
        self,
        store: RecordStore,
        project: ProjectID,
        *,
        redact: Redact = keep_text,
        max_records: int = MAX_RECORDS,
        kept_records: int = KEPT_RECORDS,
    ) -> None:
        self._store = store
        self._log = log_key(project)
        self._end = end_key(project)
        self._redact = redact
        self._max_records = max_records
        self._kept_records = kept_records

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        """Add entries to the chain, also while other processes do. Raise `StoreError` if none were added."""
        recorded = read_end(await self._store.find_value(self._end)) or CHAIN_START
        redacted = [self._redact_entry(entry) for entry in entries]
        end = recorded

        def extend(last: bytes | None) -> list[bytes]:
            nonlocal end
            end = _continue_after(recorded, last)
            lines: list[bytes] = []
            for entry in (*self._note_dropped(end, redacted[0].time), *redacted):
                line, end = encode_entry(end, entry)
                lines.append(line)
            return lines

        await self._store.append_log(self._log, extend)
        with suppress(StoreError):  # the entries are added: the next append finds out where they end
            await self._store.update_value(
                self._end, lambda known: to_plain(_choose_later(read_end(known), end))
            )
            if end.dropped > recorded.dropped:
                # Others may have appended meanwhile. Some more are kept, so that no record is removed that was not noted.
                kept = end.seq - end.dropped + self._kept_records // 10
                await self._store.trim_log(self._log, keep=kept)

    def _note_dropped(self, end: ChainEnd, now: int) -> list[AuditEntry]:
        """Return an entry with the number of records that are about to be removed, if the chain is full."""
        if end.seq - end.dropped < self._max_records:
            return []
        return [AuditEntry(time=now, what="dropped", count=end.seq - self._kept_records)]

    def _redact_entry(self, entry: AuditEntry) -> AuditEntry:
        return replace(
            entry,
            patterns=tuple(self._redact_beginning(pattern) for pattern in entry.patterns),
            message=self._redact_beginning(entry.message),
        )

    def _redact_beginning(self, text: str) -> str:
        """Return the beginning of a text, redacted. It is read to the end of a word: half a secret would not be recognised."""
        rest = REST_OF_WORD.match(text, MAX_TEXT_CHARS)
        return self._redact(text[: rest.end() if rest else MAX_TEXT_CHARS])[:MAX_TEXT_CHARS]


def _continue_after(recorded: ChainEnd, last: bytes | None) -> ChainEnd:
    """Return where the chain continues: after the last line, or at the recorded end.

    The record wins if the last line was changed or removed: continuing from the line would hide that.
    """
    record = None if last is None else read_line(last)
    # Beyond the record: a process wrote the line and died before recording it.
    if last is None or record is None or record.seq <= recorded.seq:
        return recorded
    return ChainEnd(seq=record.seq, hash=hash_line(last), dropped=recorded.dropped)


def _choose_later(known: ChainEnd | None, end: ChainEnd) -> ChainEnd:
    return known if known is not None and known.seq > end.seq else end


AUDIT_SECONDS = 1.0
MAX_WAITING = 10_000


class AuditLog:
    """Collects entries and writes them in the background. Without a chain nothing is written.

    A log that cannot be written blocks nobody: writing is tried again.
    """

    def __init__(self, chain: AuditChain | None) -> None:
        self._chain = chain
        self._waiting: deque[AuditEntry] = deque()
        self._lost = 0
        self._entry_waits = asyncio.Event()
        self._write_lock = asyncio.Lock()

    def note(self, entry: AuditEntry) -> None:
        """Queue an entry to be written. If too many wait, drop the oldest and count it as lost."""
        if self._chain is None:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(entry)
        self._entry_waits.set()

    async def flush(self) -> None:
        """Write the waiting entries. Raise `StoreError` if that fails; then they wait for the next attempt."""
        async with self._write_lock:
            self._entry_waits.clear()
            if self._chain is not None and self._waiting:
                # A write that was begun is completed, or else its entries would be written twice.
                await run_to_completion(self._write(self._chain))

    async def _write(self, chain: AuditChain) -> None:
        # Taken first, so that entries that come meanwhile do not push out those that are being written.
        entries, lost = list(self._waiting), self._lost
        self._waiting.clear()
        self._lost = 0
        lost_entry = [AuditEntry(time=entries[0].time, what="lost", count=lost)] if lost else []
        try:
            await chain.append([*lost_entry, *entries])
        except BaseException:
            newer = list(self._waiting)
            self._waiting.clear()
            self._lost += lost
            for entry in (*entries, *newer):
                self.note(entry)
            raise

    async def try_flush(self) -> None:
        """Try to write what waits at once. On failure it is tried again later."""
        with suppress(StoreError):
            await self.flush()

    async def keep_flushing(self, clock: Clock) -> None:
        """Write waiting entries every `AUDIT_SECONDS` until cancelled."""
        while True:
            await self._entry_waits.wait()
            await clock.sleep(AUDIT_SECONDS)
            with suppress(StoreError):
                await self.flush()


class ChainBreak(Struct, frozen=True, kw_only=True):
    """The first record that does not follow from the previous one: its line in the log, and what is wrong."""

    seq: int
    line: int
    reason: str


def read_entries(lines: Iterable[bytes]) -> Iterator[tuple[int, AuditEntry]]:
    """Yield every readable entry of a log with its number, oldest first."""
    for line in lines:
        record = read_line(line)
        if record is not None:
            yield record.seq, record.entry


async def read_decisions(store: RecordStore, project: ProjectID, *, limit: int) -> list[PermissionDecision]:
    """Return the last decisions about a project, newest first."""
    entries = list(read_entries(await store.read_log(log_key(project))))
    shown = entries[max(0, len(entries) - limit) :]
    return [
        PermissionDecision(
            seq=number,
            **{name: getattr(entry, name) for name in _SHOWN},
        )
        for number, entry in reversed(shown)
    ]


def find_break(lines: Iterable[bytes], recorded: ChainEnd | None) -> tuple[int, ChainBreak | None]:
    """Return how many records of a log are intact, and the first that is not. `recorded` is the end that was recorded."""
    end: ChainEnd | None = None
    intact, dropped, first, number = 0, 0, 0, 0
    for number, line in enumerate(lines, start=1):
        record = read_line(line)
        if record is None:
            return intact, ChainBreak(seq=intact + first, line=number, reason="is not a record")
        if end is None:
            first = record.seq
            end = CHAIN_START if record.seq == 1 else ChainEnd(seq=record.seq - 1, hash=record.prev)
        if record.prev != end.hash or record.seq != end.seq + 1:
            reason = "does not follow the record before it: one of them was changed, added or removed"
            return intact, ChainBreak(seq=record.seq, line=number, reason=reason)
        if record.entry.what == "dropped":
            dropped = record.entry.count
        end, intact = ChainEnd(seq=record.seq, hash=hash_line(line)), intact + 1
    if first - 1 > dropped:
        reason = f"is the first record, but of those before it only {dropped} are known to have been dropped"
        return intact, ChainBreak(seq=first, line=1, reason=reason)
    return intact, _find_missing_end(recorded, end or CHAIN_START, number)


def _find_missing_end(recorded: ChainEnd | None, end: ChainEnd, number: int) -> ChainBreak | None:
    """Return the break if the log ends before its recorded end. One that continues after it was not recorded in time."""
    if recorded is None and end == CHAIN_START:
        return None
    if recorded is None:
        return ChainBreak(
            seq=end.seq,
            line=number,
            reason="is the last record, but the record of where the log ends is gone",
        )
    if recorded.seq > end.seq:
        reason = f"is missing, and so are all up to {recorded.seq}"
        return ChainBreak(seq=end.seq + 1, line=number + 1, reason=reason)
    if recorded.seq == end.seq and recorded.hash != end.hash:
        return ChainBreak(seq=end.seq, line=number, reason="is not the one that was written")
    return None
