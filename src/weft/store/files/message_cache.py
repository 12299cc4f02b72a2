"""Cache the messages of recently read sessions until somebody may have changed them."""

import threading
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Final

from weft.host.now import now as system_now
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
from weft.model.ids import MessageID, SessionID
from weft.model.message import MessageWithParts, replace_messages
from weft.model.part import AnyPart
from weft.store.files.layout import session_lock
from weft.store.files.messages import NOT_LISTED, CachedMessage, MessageReader

NEWEST_CHECKED: Final = 16
FULL_CHECK_MS: Final = 60_000
NEVER: Final = -FULL_CHECK_MS


class CachedSession:
    """The cached messages of one session.

    `mark` identifies the last writer. `ours` are the messages that this process wrote since they were last checked.
    `checked_at` is when all messages were compared with the disk, `foreign_at` when a change without a mark was noticed.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.mark: bytes | None = None
        self.listing = NOT_LISTED
        self.entries: dict[str, CachedMessage] = {}
        self.messages: list[MessageWithParts] = []
        self.size = 0
        self.ours: set[str] = set()
        self.checked_at = NEVER
        self.foreign_at = NEVER

    def put(self, id: str, entry: CachedMessage | None) -> bool:
        """Replace a cached message. Return True if its value changed."""
        before = self.entries.pop(id, None)
        if entry is not None:
            self.entries[id] = entry
        self.size += (entry.size if entry else 0) - (before.size if before else 0)
        return (before and before.message) is not (entry and entry.message)

    def arrange(self, changed: set[str]) -> None:
        """Sort the changed messages into the list."""
        new = [self.entries[id].message for id in changed if id in self.entries]
        self.messages = replace_messages(self.messages, changed, new)


class MessageCache:
    """Holds up to `limit` bytes of documents, of the sessions that were read last.

    It is used by many threads. `_lock` guards the dictionary of sessions, `CachedSession.lock` guards one session. No thread
    waits for the former while it holds the latter.
    """

    def __init__(self, messages: MessageReader, *, limit: int, now: Callable[[], int] = system_now) -> None:
        self._messages = messages
        self._limit = limit
        self._now = now
        self._sessions: dict[str, CachedSession] = {}
        self._lock = threading.Lock()

    def has(self, session: SessionID) -> bool:
        return self._find(session_lock(session)) is not None

    def list_messages(self, session: SessionID, mark: bytes | None) -> list[MessageWithParts]:
        """Return all messages, oldest first. The caller keeps writers out and passes the mark it found in the lock."""
        lock = session_lock(session)
        with self._lock:
            known = self._sessions.pop(lock, None) or CachedSession()
            self._sessions[lock] = known  # at the end: the session that was read longest ago is evicted first
        with known.lock:
            self._refresh(session, known, mark)
            found = list(known.messages)
        self._evict()
        return found

    def note_mark(self, lock: str, before: bytes, mark: bytes) -> None:
        """Note that this process replaced the mark in a lock, before it writes."""
        known = self._find(lock)
        if known is not None:
            with known.lock:
                known.mark = mark if known.mark == before else None

    def _find(self, lock: str) -> CachedSession | None:
        with self._lock:
            return self._sessions.get(lock)

    @contextmanager
    def writing(self, events: Sequence[Durable]) -> Generator[None]:
        """Note which messages these events change, while the body writes them under the locks of their sessions."""
        try:
            yield
        except BaseException:
            self._mark_written(events)
            raise
        parts = [event.part for event in events if isinstance(event, PartUpdated)]
        if len(parts) == len(events):
            self._update_parts(parts)
        else:
            self._mark_written(events)

    def _update_parts(self, parts: Sequence[AnyPart]) -> None:
        """Update cached messages after only parts were written, so that they need not be read again."""
        for session in {part.session_id for part in parts}:
            known = self._find(session_lock(session))
            if known is not None:
                with known.lock:
                    self._put_parts(known, [part for part in parts if part.session_id == session])

    def _put_parts(self, known: CachedSession, parts: Sequence[AnyPart]) -> None:
        changed: set[str] = set()
        for part in parts:
            entry = None if part.message_id in known.ours else known.entries.get(part.message_id)
            written = entry and self._messages.with_part(entry, part)
            if written is None:
                known.ours.add(part.message_id)
            elif known.put(part.message_id, written):
                changed.add(part.message_id)
        if changed:
            known.arrange(changed)

    def _mark_written(self, events: Iterable[Durable]) -> None:
        for event in events:
            match event:
                case MessageUpdated(info=info):
                    self._mark_one_written(info.session_id, info.id)
                case PartUpdated(part=part):
                    self._mark_one_written(part.session_id, part.message_id)
                case MessageRemoved() | PartRemoved() | PartGrew():
                    self._mark_one_written(event.session_id, event.message_id)
                case SessionDeleted(info=session):
                    self.forget(session.id)
                case ProjectUpdated() | SessionCreated() | SessionUpdated() | SessionDiffed() | TodoUpdated():
                    pass

    def _mark_one_written(self, session: SessionID, message: MessageID) -> None:
        known = self._find(session_lock(session))
        if known is not None:
            with known.lock:
                known.ours.add(message)

    def forget(self, session: SessionID) -> None:
        with self._lock:
            self._sessions.pop(session_lock(session), None)

    def _refresh(self, session: SessionID, known: CachedSession, mark: bytes | None) -> None:
        now, ids = self._now(), known.listing.names
        known.listing = self._messages.list_again(session, known.listing)
        moved = ids ^ known.listing.names
        is_sure = mark is not None and mark == known.mark and _is_fresh(known, now)
        if is_sure:
            newest = {message.info.id for message in known.messages[-NEWEST_CHECKED:]}
            unread = known.listing.names - known.entries.keys()
            changed = self._check(session, known, moved | known.ours | newest | unread)
            if (changed | moved) - known.ours:
                known.foreign_at, is_sure = now, False
        if not is_sure:
            self._check(session, known, known.listing.names | ids)
            known.checked_at = now
        known.mark, known.ours = mark, set()

    def _check(self, session: SessionID, known: CachedSession, ids: Collection[str]) -> set[str]:
        """Compare these messages with the disk. Return those that changed."""
        gone = {id for id in ids if id not in known.listing.names and known.put(id, None)}
        there = [MessageID(id) for id in ids if id in known.listing.names]
        found = self._messages.read_again(session, there, known.entries)
        changed = gone | {id for id, entry in found if known.put(id, entry)}
        if changed:
            known.arrange(changed)
        return changed

    def _evict(self) -> None:
        with self._lock:
            held = sum(known.size for known in self._sessions.values())
            while held > self._limit and self._sessions:
                held -= self._sessions.pop(next(iter(self._sessions))).size


def _is_fresh(known: CachedSession, now: int) -> bool:
    return 0 <= now - known.checked_at < FULL_CHECK_MS <= now - known.foreign_at
