"""The chains of sessions as files below `.weft/chain`: one line for each entry, under a line with the number and the hash of the last.

An entry is written before the documents that it covers are renamed into place. If the process dies in between, either the
write-ahead note of the batch repeats both, or the document is still a temporary file: then the entry does not count, and the next
writer removes it.
"""

import os
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.errors import DocumentError, InvalidIdError
from weft.host.files import Disk, Stamp, read_file, stamp_of
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AnyMessage
from weft.model.part import AnyPart
from weft.model.session import SessionInfo, Todo
from weft.model.wire import decode
from weft.store.chain import (
    SESSION_KEY,
    ChainedChanges,
    ChainEntry,
    ChainLines,
    digest_document,
    encode_entry,
    get_root,
    link,
    to_line,
)
from weft.store.files.documents import LIMIT
from weft.store.files.layout import TEMP_MARK, Layout, session_lock

MAX_KNOWN: Final = 1000  # sessions whose chain is remembered
HEAD_FORMAT: Final = b"%012d %s\n"
HEAD_BYTES: Final = 12 + 1 + 64 + 1
# What a document of a key is: the first word of the key.
KINDS: Final[Mapping[str, object]] = {
    "session": SessionInfo,
    "message": AnyMessage,
    "part": AnyPart,
    "diff": tuple[FileDiff, ...],
    "todo": tuple[Todo, ...],
}


class ChainAppend(msgspec.Struct, frozen=True, array_like=True):
    """An entry to append: the chain (relative to the root), the offset, the line with its newline, and the new first line."""

    path: str
    at: int
    line: str
    head: str


class _Head(Struct, frozen=True):
    """The end of a chain: the number of the last entry, its hash, and where the next one goes."""

    number: int
    hash: bytes
    end: int


class _Known(Struct, frozen=True):
    """What this process wrote last: the head, and the digest of the session's document; its path and stamp if it wrote that, too."""

    head: _Head
    digest: str | None
    path: str | None = None
    stamp: Stamp | None = None


class PlannedEntry(Struct, frozen=True):
    """An entry that is about to be written at an offset of a file, and the end of the chain after it."""

    session: SessionID
    path: str
    at: int
    line: bytes
    after: _Head
    changes: ChainedChanges


def encode_head(head: _Head) -> bytes:
    return HEAD_FORMAT % (head.number, head.hash.hex().encode())


class ChainFiles:
    """Appends to chains. The caller holds the locks of their sessions."""

    def __init__(self, layout: Layout, disk: Disk) -> None:
        self._layout = layout
        self._disk = disk
        self._known: dict[SessionID, _Known] = {}

    def plan(
        self, session: SessionID, changes: ChainedChanges, *, now: int, repair: bool = False
    ) -> PlannedEntry:
        """Return the entry for changes that are about to be written."""
        path = self._layout.chain(session)
        known = None if changes.restarted else self._find_known(session, path)
        head = _Head(0, get_root(session), HEAD_BYTES) if known is None else known.head
        outside = None
        if known is not None and changes.puts_session:
            outside = self._find_outside(session, known)
        body = encode_entry(changes, now=now, outside=outside, repair=repair)
        hash = link(head.hash, body)
        line = to_line(hash, body) + b"\n"
        after = _Head(head.number + 1, hash, head.end + len(line))
        return PlannedEntry(session, path, head.end, line, after, changes)

    def note_written(self, entry: PlannedEntry) -> None:
        """Remember the head of a chain, and how the session's document looks now that the batch is in place."""
        session, changes, before = entry.session, entry.changes, self._known.get(entry.session)
        if not changes.puts_session:
            if before is not None:
                self._known[session] = _Known(entry.after, before.digest, before.path, before.stamp)
            return
        path = None if before is None else before.path
        stamp = _find_stamp(path)
        if stamp is None:
            path = find_session_path(self._layout, session)
            stamp = _find_stamp(path)
        self._remember(session, _Known(entry.after, changes.changes[SESSION_KEY].digest, path, stamp))

    def write(self, entry: PlannedEntry, *, head: bool) -> list[str]:
        """Write an entry, and the head too if `head` is True. A head may be older than the chain: its hash of an earlier entry stays right.

        Return the paths that the caller must flush after the documents are in place. If the entry reached the disk first, a power
        cut could leave an entry without its documents.
        """
        if entry.at == HEAD_BYTES:
            self._disk.extend(entry.path, 0, encode_head(entry.after) + entry.line)
            return [entry.path, self._layout.chains]
        self._disk.append(entry.path, entry.line, at=entry.at, head=encode_head(entry.after) if head else b"")
        return [entry.path]

    def to_append(self, entry: PlannedEntry) -> ChainAppend:
        """Return an entry in the form that a write-ahead note stores."""
        head = encode_head(entry.after).decode()
        return ChainAppend(self._layout.relative(entry.path), entry.at, entry.line.decode("ascii"), head)

    def take_back(self, entry: PlannedEntry) -> None:
        """Remove an entry whose documents could not be written."""
        drop_entry(self._layout, self._disk, self.to_append(entry))

    def forget(self, session: SessionID) -> None:
        """Forget the chain of a session that was removed."""
        self._known.pop(session, None)

    def _find_known(self, session: SessionID, path: str) -> _Known | None:
        known = self._known.get(session)
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            return None
        if known is not None and known.head.end == size:
            return known
        drop_unapplied(self._layout, self._disk, session)
        lines = read_lines(path).lines
        if not lines:
            return None
        end = HEAD_BYTES + sum(len(line) + 1 for line in lines)
        self._disk.extend(path, end, b"")  # without a line that a dead process did not write to its end
        digest = None
        for line in reversed(lines):
            found = [change.digest for change in parse_entry(line).changes if change.key == SESSION_KEY]
            if found:
                digest = found[0]
                break
        found_head = _Head(len(lines), _parse_hash(lines[-1]), end)
        known = _Known(found_head, digest)
        self._remember(session, known)
        return known

    def _remember(self, session: SessionID, known: _Known) -> None:
        """Remember a chain, and forget the one that was used longest ago if there are too many. It is read again when needed."""
        self._known.pop(session, None)
        self._known[session] = known
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def _find_outside(self, session: SessionID, known: _Known) -> int | None:
        """Return the time of the session's document if somebody wrote it who does not keep the chain."""
        if known.stamp is not None and known.stamp == _find_stamp(known.path):
            return None
        path = find_session_path(self._layout, session)
        try:
            info = None if path is None else decode(read_file(path, limit=LIMIT)[0], SessionInfo)
        except (OSError, DocumentError):
            return None
        if info is None or known.digest in (None, digest_document(info)):
            return None
        return info.time.updated


def _find_stamp(path: str | None) -> Stamp | None:
    try:
        return None if path is None else stamp_of(os.stat(path))
    except OSError:
        return None


def write_append(layout: Layout, disk: Disk, append: ChainAppend) -> None:
    """Write an entry, and the head after it. Doing so twice changes nothing."""
    path = layout.absolute(append.path)
    raw, head = append.line.encode(), append.head.encode()
    if append.at == HEAD_BYTES:  # a new chain: there is no head yet to write over
        disk.extend(path, 0, head + raw)
    else:
        disk.extend_under_head(path, append.at, raw, head)


def drop_entry(layout: Layout, disk: Disk, append: ChainAppend) -> None:
    """Remove an entry, which is the last one."""
    path = layout.absolute(append.path)
    if append.at == HEAD_BYTES:
        disk.remove(path)
        return
    lines = read_lines(path).lines
    count = int(append.head.split()[0]) - 1
    if len(lines) >= count:
        hash = _parse_hash(lines[count - 1])
        disk.extend_under_head(path, append.at, b"", HEAD_FORMAT % (count, hash.hex().encode()))


def drop_unapplied(layout: Layout, disk: Disk, session: SessionID) -> None:
    """Remove the last entry if its document was never renamed into place. The caller holds the lock of the session."""
    path = layout.chain(session)
    lines = read_lines(path).lines
    if lines and _is_unapplied(layout, session, lines[-1]):
        at = HEAD_BYTES + sum(len(line) + 1 for line in lines[:-1])
        drop_entry(
            layout,
            disk,
            ChainAppend(
                layout.relative(path),
                at,
                "",
                f"{len(lines):012d} {lines[-1][:64].decode('ascii', 'replace')}",
            ),
        )


def read_chain_lines(layout: Layout, session: SessionID) -> ChainLines:
    """Return the chain of a session, without an entry whose document was never renamed into place."""
    unfinished = os.path.exists(layout.note(session_lock(session)))
    found = read_lines(layout.chain(session))
    if found.lines and _is_unapplied(layout, session, found.lines[-1]):
        found = ChainLines(found.lines[:-1])
    return replace(found, unfinished=unfinished, shared=True)


def read_lines(path: str) -> ChainLines:
    """Return the lines of a file, and its head. A last line without a newline was never written completely."""
    try:
        raw, _ = read_file(path, limit=LIMIT)
    except FileNotFoundError:
        return ChainLines([])
    head, *lines = raw.split(b"\n")
    if not lines:
        return ChainLines([], (0, head.decode("ascii", "replace")))
    count, _, hash = head.partition(b" ")
    number = int(count) if count.isdigit() and len(head) == HEAD_BYTES - 1 else -1
    return ChainLines(lines[:-1], (number, hash.decode("ascii", "replace")))


def list_chains(layout: Layout) -> list[SessionID]:
    try:
        return [SessionID(name) for name in sorted(os.listdir(layout.chains))]
    except FileNotFoundError:
        return []


def parse_entry(line: bytes) -> ChainEntry:
    """Return an entry; an empty one if the line is damaged."""
    try:
        return decode(line.partition(b" ")[2], ChainEntry)
    except DocumentError:
        return ChainEntry(time=0, changes=())


def _parse_hash(line: bytes) -> bytes:
    try:
        return bytes.fromhex(line[:64].decode("ascii"))
    except ValueError:
        return b""  # no entry follows from it, so that `weft storage verify` reports the chain


def find_session_path(layout: Layout, session: SessionID) -> str | None:
    """Return the path of a session's document, None if there is none."""
    sessions = layout.collection("session")
    try:
        projects = os.listdir(sessions)
    except FileNotFoundError:
        return None
    for project in projects:
        path = f"{sessions}/{project}/{session}.json"
        if os.path.exists(path):
            return path
    return None


def _is_unapplied(layout: Layout, session: SessionID, line: bytes) -> bool:
    """Return True if an entry is about a document that is still a temporary file, and not in its place."""
    changes = parse_entry(line).changes
    if len(changes) != 1:
        return False  # several documents have a write-ahead note
    [change] = changes
    kind = KINDS.get(change.key.partition("/")[0])
    if kind is None or change.digest is None:
        return False  # the line is damaged, or the document was removed, which has a write-ahead note
    prefix = f"{session_lock(session)}{TEMP_MARK}"
    try:
        temps = [f"{layout.temps}/{name}" for name in os.listdir(layout.temps) if name.startswith(prefix)]
    except FileNotFoundError:
        return False
    if not any(_find_digest(path, kind) == change.digest for path in temps):
        return False
    try:
        place = _find_place(layout, session, change.key)
    except InvalidIdError:
        return False  # the line is damaged
    return _find_digest(place, kind) != change.digest


def _find_digest(path: str | None, kind: object) -> str | None:
    try:
        return None if path is None else digest_document(decode(read_file(path, limit=LIMIT)[0], kind))
    except (OSError, DocumentError):
        return None


def _find_place(layout: Layout, session: SessionID, key: str) -> str | None:
    match key.split("/"):
        case ["message", id]:
            return layout.message(session, MessageID(id))
        case ["part", message, id]:
            return layout.part(MessageID(message), PartID(id))
        case ["diff"]:
            return layout.diff(session)
        case ["todo"]:
            return layout.todo(session)
        case _:
            return find_session_path(layout, session)
