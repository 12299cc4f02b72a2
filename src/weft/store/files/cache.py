"""Cache the messages of recently read sessions for as long as nobody can have changed them."""

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
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
    SessionDeleted,
)
from weft.model.ids import MessageID, SessionID
from weft.model.message import MessageWithParts, message_order
from weft.model.part import AnyPart
from weft.store.files.layout import session_lock
from weft.store.files.messages import NOT_LISTED, Entry, Messages

NEWEST: Final = 16
LOOKED_MS: Final = 60_000
NEVER: Final = -LOOKED_MS


class Known:
    """What is known of one session: its messages, by which mark, when all were looked at, and when a stranger had been
    there. `ours` are those that we have written since they were looked at."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.mark: bytes | None = None
        self.listing = NOT_LISTED
        self.entries: dict[str, Entry] = {}
        self.messages: list[MessageWithParts] = []
        self.size = 0
        self.ours: set[str] = set()
        self.looked_at = NEVER
        self.stranger_at = NEVER

    def put(self, id: str, entry: Entry | None) -> bool:
        """Whether the message is another than it was."""
        before = self.entries.pop(id, None)
        if entry is not None:
            self.entries[id] = entry
        self.size += (entry.size if entry else 0) - (before.size if before else 0)
        return (before and before.message) is not (entry and entry.message)

    def arrange(self, changed: set[str]) -> None:
        """Put the messages that have changed in their places."""
        stayed = [message for message in self.messages if message.info.id not in changed]
        came = [self.entries[id].message for id in changed if id in self.entries]
        came.sort(key=_order)
        if stayed and came and _order(came[0]) < _order(stayed[-1]):
            self.messages = sorted([*stayed, *came], key=_order)
        else:
            self.messages = [*stayed, *came]


def _order(message: MessageWithParts) -> tuple[int, int, str]:
    return message_order(message.info)


class Remembered:
    """Up to so many bytes of documents (`room`), of the sessions that were read last.

    Many threads use it at once. `_lock` guards which sessions are known, `Known.lock` what is known of one; nobody waits
    for the first while holding the second.
    """

    def __init__(self, messages: Messages, *, room: int, now: Callable[[], int] = system_now) -> None:
        self._messages = messages
        self._room = room
        self._now = now
        self._sessions: dict[str, Known] = {}
        self._lock = threading.Lock()

    def knows(self, session: SessionID) -> bool:
        return self._find(session_lock(session)) is not None

    def list_messages(self, session: SessionID, mark: bytes | None) -> list[MessageWithParts]:
        """All of them, oldest first. Whoever asks keeps writers out, and says whose mark it found."""
        lock = session_lock(session)
        with self._lock:
            known = self._sessions.pop(lock, None) or Known()
            self._sessions[lock] = known  # last: the one that was asked for longest ago is the first to go
        with known.lock:
            self._bring_up_to_date(session, known, mark)
            found = list(known.messages)
        self._make_room()
        return found

    def marked(self, lock: str, before: bytes, mark: bytes) -> None:
        """We are about to write under this lock, and have left our mark in place of another."""
        known = self._find(lock)
        if known is not None:
            with known.lock:
                known.mark = mark if known.mark == before else None

    def _find(self, lock: str) -> Known | None:
        with self._lock:
            return self._sessions.get(lock)

    @contextmanager
    def writing(self, events: Sequence[Durable]) -> Generator[None]:
        """These are written meanwhile, under the locks of their sessions."""
        try:
            yield
        except BaseException:
            self._touch(events)
            raise
        parts = [event.part for event in events if isinstance(event, PartUpdated)]
        if len(parts) == len(events):
            self._take(parts)
        else:
            self._touch(events)

    def _take(self, parts: Sequence[AnyPart]) -> None:
        """Parts alone were written: of messages that we know there is no need to read them again."""
        for session in {part.session_id for part in parts}:
            known = self._find(session_lock(session))
            if known is not None:
                with known.lock:
                    self._put_parts(known, [part for part in parts if part.session_id == session])

    def _put_parts(self, known: Known, parts: Sequence[AnyPart]) -> None:
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

    def _touch(self, events: Iterable[Durable]) -> None:
        for event in events:
            match event:
                case MessageUpdated(info=info):
                    self._add(info.session_id, info.id)
                case PartUpdated(part=part):
                    self._add(part.session_id, part.message_id)
                case MessageRemoved() | PartRemoved() | PartGrew():
                    self._add(event.session_id, event.message_id)
                case SessionDeleted(info=session):
                    self.forget(session.id)
                case _:
                    pass

    def _add(self, session: SessionID, message: MessageID) -> None:
        known = self._find(session_lock(session))
        if known is not None:
            with known.lock:
                known.ours.add(message)

    def forget(self, session: SessionID) -> None:
        with self._lock:
            self._sessions.pop(session_lock(session), None)

    def _bring_up_to_date(self, session: SessionID, known: Known, mark: bytes | None) -> None:
        now, ids = self._now(), known.listing.names
        known.listing = self._messages.list_again(session, known.listing)
        moved = ids ^ known.listing.names
        is_sure = mark is not None and mark == known.mark and _is_fresh(known, now)
        if is_sure:
            newest = {message.info.id for message in known.messages[-NEWEST:]}
            unread = known.listing.names - known.entries.keys()
            changed = self._look(session, known, moved | known.ours | newest | unread)
            if (changed | moved) - known.ours:
                known.stranger_at, is_sure = now, False
        if not is_sure:
            self._look(session, known, known.listing.names | ids)
            known.looked_at = now
        known.mark, known.ours = mark, set()

    def _look(self, session: SessionID, known: Known, ids: Iterable[str]) -> set[str]:
        """Look at these messages. Gives those that are not as they were known."""
        growing = self._messages.growing()
        changed: set[str] = set()
        for id in ids:
            there = id in known.listing.names
            entry = (
                self._messages.look(session, MessageID(id), known.entries.get(id), growing) if there else None
            )
            if known.put(id, entry):
                changed.add(id)
        if changed:
            known.arrange(changed)
        return changed

    def _make_room(self) -> None:
        with self._lock:
            held = sum(known.size for known in self._sessions.values())
            while held > self._room and self._sessions:
                held -= self._sessions.pop(next(iter(self._sessions))).size


def _is_fresh(known: Known, now: int) -> bool:
    return 0 <= now - known.looked_at < LOOKED_MS <= now - known.stranger_at
