"""The hash chain of a session: what each write left in the store, every entry bound to the one before it (pure).

An entry names the documents that a write changed, with a digest of each. A digest is that of the compact encoding of a document,
so it is the same in every store. Text that streams into a part is not chained piece by piece: the part is, once it is complete,
and until then its entry says how many characters it covers.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.errors import DocumentError
from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    ProjectUpdated,
    SessionCreated,
    SessionDeleted,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.part import ReasoningPart, TextPart
from weft.model.wire import decode, encode, encode_many

SESSION_KEY, DIFF_KEY, TODO_KEY = "session", "diff", "todo"
DIGEST_CHARS = 43
HASH_BYTES = 32


class Change(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """A document that a write put, or removed if it has no digest.

    `length` is the number of characters of a text that can still grow.
    """

    key: str
    digest: str | None = None
    length: int | None = None


class ChainEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One write, made at `time` (ms).

    `created` says that this write created the session, so that the chain knows all its documents. `outside` is the time of the
    session's document (ms) if the writer found that another program, such as OpenCode, had written it since the entry before.
    `repair` says that maintenance made the write.
    """

    time: int
    changes: tuple[Change, ...]
    created: bool = False
    outside: int | None = None
    repair: bool = False


class ChainedChanges(Struct, frozen=True):
    """What some events change in a session. With `restarted` the session was deleted first, and its chain begins anew."""

    changes: dict[str, Change]
    created: bool = False
    restarted: bool = False

    @property
    def puts_session(self) -> bool:
        found = self.changes.get(SESSION_KEY)
        return found is not None and found.digest is not None


def message_key(message: MessageID) -> str:
    return f"message/{message}"


def part_key(message: MessageID, part: PartID) -> str:
    return f"part/{message}/{part}"


def digest_document(value: Any) -> str:
    return _digest(encode(value))


_EMPTY = sha256()  # copying it is faster than making a new one
# A digest and this byte are 33 bytes, which base64 turns into exactly 44 characters. The last of these is cut off.
_FILLER = b"\0"
_FILLED_CHARS = DIGEST_CHARS + 1


def _digest(document: bytes) -> str:
    return _digest_all([document])[0]


def _digest_all(documents: Iterable[bytes]) -> list[str]:
    """Return the digest of each document in base64. One call encodes them all, which takes a fifth of the time of one call for each."""
    copy = _EMPTY.copy
    found: list[bytes] = []
    for document in documents:
        hash = copy()
        hash.update(document)
        found.append(hash.digest())
    found.append(b"")  # so that the last one is filled, too
    text = b2a_base64(_FILLER.join(found), newline=False).decode()
    return [text[at : at + DIGEST_CHARS] for at in range(0, len(text), _FILLED_CHARS)]


def encode_documents(events: Iterable[Durable]) -> list[bytes]:
    """Return the encoded document of each event that puts one. The entry of any other event is meaningless."""
    # These two are by far the most frequent. A `match` would call `isinstance`, which takes as long as encoding if it returns False.
    values = [
        event.part
        if type(event) is PartUpdated
        else event.info
        if type(event) is MessageUpdated
        else _find_document(event)
        for event in events
    ]
    return encode_many(values)


def _find_document(event: Durable) -> Any:
    match event:
        case PartUpdated():
            return event.part
        case MessageUpdated() | SessionUpdated() | SessionCreated() | ProjectUpdated():
            return event.info
        case SessionDiffed():
            return event.diff
        case TodoUpdated():
            return event.todos
        case SessionDeleted() | MessageRemoved() | PartRemoved() | PartGrew():
            return None


class _ChangeCollector:
    """Collects what events change."""

    def __init__(self) -> None:
        self.found: dict[SessionID, ChainedChanges] = {}
        self._deleted: set[SessionID] = set()

    def get(self, session: SessionID) -> dict[str, Change]:
        """Return the changes of a session so far, to add more."""
        known = self.found.get(session)
        if known is None:
            known = self.found[session] = ChainedChanges({}, restarted=session in self._deleted)
        return known.changes

    def add(self, event: Durable, digest: str) -> None:
        match event:
            case PartUpdated(part=part):
                length = len(part.text) if isinstance(part, TextPart | ReasoningPart) else None
                self._put(part.session_id, part_key(part.message_id, part.id), digest, length)
            case MessageUpdated(info=message):
                self._put(message.session_id, message_key(message.id), digest)
            case SessionUpdated(info=session):
                self._put(session.id, SESSION_KEY, digest)
            case SessionCreated(info=session):
                self._put(session.id, SESSION_KEY, digest)
                self.found[session.id] = replace(self.found[session.id], created=True)
            case SessionDeleted(info=session):
                self._deleted.add(session.id)
                self.found.pop(session.id, None)
            case SessionDiffed(session_id=id):
                self._put(id, DIFF_KEY, digest)
            case TodoUpdated(session_id=id):
                self._put(id, TODO_KEY, digest)
            case MessageRemoved(session_id=id, message_id=removed):
                _remove_message(self.get(id), removed)
            case PartRemoved(session_id=id, message_id=message_id, part_id=part_id):
                self._put(id, part_key(message_id, part_id), None)
            case PartGrew() | ProjectUpdated():
                pass

    def _put(self, session: SessionID, key: str, digest: str | None, length: int | None = None) -> None:
        self.get(session)[key] = Change(key, digest, length)


def collect_changes(events: Iterable[Durable], documents: Iterable[bytes]) -> dict[SessionID, ChainedChanges]:
    """Return what events change, by session. `documents` are what `encode_documents` returns for them.

    A session that ends up deleted has no chain, so it is left out.
    """
    collector = _ChangeCollector()
    last, changes = None, dict[str, Change]()  # most events are about the session of the one before them
    for event, digest in zip(events, _digest_all(documents), strict=True):
        # As in `encode_documents`: these are what `add` would do, without most of the calls.
        if type(event) is PartUpdated:
            part = event.part
            session = part.session_id
            if session != last:
                last, changes = session, collector.get(session)
            key = f"part/{part.message_id}/{part.id}"
            if type(part) is TextPart or type(part) is ReasoningPart:
                changes[key] = Change(key, digest, len(part.text))
            else:
                changes[key] = Change(key, digest)
        elif type(event) is MessageUpdated:
            message = event.info
            session = message.session_id
            if session != last:
                last, changes = session, collector.get(session)
            key = f"message/{message.id}"
            changes[key] = Change(key, digest)
        else:
            collector.add(event, digest)
            last = None
    return collector.found


def _remove_message(changes: dict[str, Change], message: MessageID) -> None:
    for key in [key for key in changes if key.startswith(f"part/{message}/")]:
        del changes[key]
    changes[message_key(message)] = Change(message_key(message))


def make_removal(*keys: str) -> ChainedChanges:
    """Return the changes of a repair that removes documents."""
    return ChainedChanges({key: Change(key) for key in keys})


def encode_entry(
    changes: ChainedChanges, *, now: int, outside: int | None = None, repair: bool = False
) -> bytes:
    """Return the body of an entry. It contains no newline."""
    entry = ChainEntry(
        time=now,
        changes=tuple(changes.changes.values()),
        created=changes.created,
        outside=outside,
        repair=repair,
    )
    return encode(entry)


def get_root(session: SessionID) -> bytes:
    """Return what the first entry of a session's chain is bound to: no entry fits into the chain of another session."""
    return sha256(b"weft chain " + session.encode("ascii", "backslashreplace")).digest()


def link(before: bytes, body: bytes) -> bytes:
    """Return the hash of an entry: that of the entry before it, and of its body."""
    return sha256(before + body).digest()


def to_line(hash: bytes, body: bytes) -> bytes:
    return hash.hex().encode() + b" " + body


class ChainLines(Struct, frozen=True):
    """A chain as it is stored: a line for each entry.

    `head` is the number and the hash of the last entry as they are stored elsewhere, if a store keeps them twice. `unfinished` says
    that a write was interrupted: documents and chain may disagree until the next writer finishes it. `shared` says that programs
    which keep no chain also write to the store. `owner` is the principal that the session's document names, which its readers are not shown.
    """

    lines: Sequence[bytes]
    head: tuple[int, str] | None = None
    unfinished: bool = False
    shared: bool = False
    owner: str = ""


class ChainedDocument(Struct, frozen=True):
    """What the chain last said about a document: in which entry, and when (ms)."""

    digest: str | None
    length: int | None
    entry: int
    time: int


class Chain(Struct, frozen=True):
    """A chain that was read.

    `hashes` are those of all entries. `breaks` says what is wrong with it, in words. `covered` is the last state of each document.
    `outside` are the entries whose writer found a foreign change, with its time (ms).
    """

    hashes: Sequence[str]
    breaks: Sequence[str]
    covered: Mapping[str, ChainedDocument]
    outside: Mapping[int, int]
    is_complete: bool
    began: int

    @property
    def head(self) -> str:
        return self.hashes[-1] if self.hashes else ""


def read_chain(session: SessionID, lines: Iterable[bytes]) -> Chain:
    """Check the links of a chain, and fold its entries."""
    before, hashes, breaks = get_root(session), list[str](), list[str]()
    covered, outside = dict[str, ChainedDocument](), dict[int, int]()
    is_complete, began = False, 0
    for number, line in enumerate(lines):
        given, _, body = line.partition(b" ")
        try:
            entry = decode(body, ChainEntry)
            hash = bytes.fromhex(given.decode("ascii"))
        except (DocumentError, ValueError):
            breaks.append(f"entry {number + 1} cannot be read")
            hashes.append("")
            continue
        if hash != link(before, body):
            breaks.append(f"entry {number + 1} does not follow from the one before it")
        before = hash
        hashes.append(hash.hex())
        if number == 0:
            is_complete, began = entry.created, entry.time
        if entry.outside is not None:
            outside[number] = entry.outside
        for change in entry.changes:
            _cover(covered, change, number, entry.time)
    return Chain(hashes, breaks, covered, outside, is_complete, began)


def _cover(covered: dict[str, ChainedDocument], change: Change, number: int, time: int) -> None:
    if change.digest is None and change.key.startswith("message/"):
        below = f"part/{change.key.removeprefix('message/')}/"
        for key in [key for key in covered if key.startswith(below)]:
            covered[key] = ChainedDocument(None, None, number, time)
    covered[change.key] = ChainedDocument(change.digest, change.length, number, time)
