"""What a listener was told, as far as it takes to tell the rest of it after a gap (pure).

A server that numbers its events tells what was missed. Where it cannot (OpenCode's; one that was started anew; a listener
that was away for too long) what is there now is held against what was told, and the difference is told as events.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from weft.model.event import (
    Event,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    PermissionAsked,
    QuestionAsked,
    SessionCreated,
    SessionDeleted,
    SessionRested,
    SessionUpdated,
    StatusChanged,
    session_of,
)
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import MessageWithParts
from weft.model.part import AnyPart, ReasoningPart, TextPart
from weft.model.permission import PermissionRequest
from weft.model.question import QuestionRequest
from weft.model.session import Session
from weft.model.status import AnyStatus, Busy, Idle
from weft.model.transcript import Transcript, grown

FOLLOWED: Final = 200
# Told in place of what was missed; what is other than was told comes after it.
RESYNC: Final = "server.resync"


class Now(Struct, frozen=True, kw_only=True):
    """How things stand: the sessions there are, the messages of those that are followed, what is done and asked. Of a
    run that is `awaited` by other means it is not known yet whether it has begun: nothing is said of its end."""

    sessions: Mapping[SessionID, Session]
    messages: Mapping[SessionID, list[MessageWithParts]]
    status: Mapping[SessionID, AnyStatus]
    permissions: Iterable[PermissionRequest] = ()
    questions: Iterable[QuestionRequest] = ()
    awaited: Collection[SessionID] = ()


class Known:
    """What was told of one session."""

    def __init__(self) -> None:
        self.info: Session | None = None
        self.transcript = Transcript()
        self.status: AnyStatus | None = None
        self.begun: int | None = None

    def since(self) -> int | None:
        """From when on its messages were told: earlier ones are nobody's news."""
        if self.begun is not None:
            return self.begun
        told = self.transcript.messages()
        if told:
            return told[0].info.time.created
        return self.info.time.updated if self.info else None


class Heard:
    """The sessions that events were about, the last ones of them."""

    def __init__(self) -> None:
        self._known: OrderedDict[SessionID, Known] = OrderedDict()
        self._asked: set[str] = set()

    def sessions(self) -> list[SessionID]:
        return list(self._known)

    def note(self, event: Event) -> None:
        session = session_of(event)
        if session is None:
            return
        known = self._known.setdefault(session, Known())
        self._known.move_to_end(session)
        match event:
            case SessionCreated(info=info):
                known.info, known.begun = info, 0
            case SessionUpdated(info=info):
                known.info = info
            case SessionDeleted():
                del self._known[session]
            case StatusChanged(status=status):
                known.status = status
            case PermissionAsked(request=permission):
                self._asked.add(permission.id)
            case QuestionAsked(request=question):
                self._asked.add(question.id)
            case _:
                known.transcript.feed(event)
        while len(self._known) > FOLLOWED:
            self._known.popitem(last=False)

    def expect(self, session: SessionID, since: int | None = None) -> None:
        """A run is about to begin there, and its end is news even if nothing else of it is heard."""
        known = self._known.setdefault(session, Known())
        known.status = Busy()
        if known.since() is None:
            known.begun = since

    def as_growth(self, event: Event) -> list[Event]:
        """Growth as OpenCode 1.1.34 tells it, the whole part with each piece, as growth: whoever writes text out needs
        the piece alone. What is no growth stays as it is."""
        if not isinstance(event, PartUpdated) or event.delta is None:
            return [event]
        known = self._known.get(event.part.session_id)
        found = known.transcript.find(event.part.message_id) if known else None
        before = next((part for part in found.parts if part.id == event.part.id), None) if found else None
        return [event] if _growth(before, event.part) is None else list(_grown(before, event.part))

    def placed(self, properties: dict[str, Any]) -> dict[str, Any]:
        """Growth as OpenCode 1.18 tells it, with the place it grows from: there the text so far ends."""
        session, message = SessionID(str(properties.get("sessionID"))), properties.get("messageID")
        known = self._known.get(session)
        found = known.transcript.find(MessageID(str(message))) if known else None
        parts = {part.id: part for part in found.parts} if found else {}
        part = parts.get(PartID(str(properties.get("partID"))))
        length = len(part.text) if isinstance(part, TextPart | ReasoningPart) else 0
        return {**properties, "offset": length}

    def children(self, sessions: Mapping[SessionID, Session]) -> list[Session]:
        """Sessions that came to be below those followed, oldest first."""
        below = set(self._known)
        fresh: list[Session] = []
        for session in sorted(sessions.values(), key=lambda each: each.time.created):
            if session.parent_id in below and session.id not in below:
                below.add(session.id)
                fresh.append(session)
        return fresh

    def missed(self, now: Now) -> Iterator[Event]:
        """What must have happened for things to stand as they do. What came to be below has been told already."""
        for id, known in list(self._known.items()):
            info = now.sessions.get(id)
            if info is None:
                if known.info is not None:
                    yield SessionDeleted(info=known.info)
                continue
            if known.info is not None and known.info != info:
                yield SessionUpdated(info=info)
            yield from _said(id, known, now.messages.get(id, []))
        for permission in now.permissions:
            if permission.id not in self._asked and permission.session_id in self._known:
                yield PermissionAsked(request=permission)
        for question in now.questions:
            if question.id not in self._asked and question.session_id in self._known:
                yield QuestionAsked(request=question)
        for id, known in list(self._known.items()):
            if id not in now.awaited:
                yield from _done(id, known, now.status.get(id, Idle()))


def _said(session: SessionID, known: Known, messages: list[MessageWithParts]) -> Iterator[Event]:
    since = known.since()
    there = {message.info.id for message in messages}
    for told in known.transcript.messages():
        if told.info.id not in there:
            yield MessageRemoved(session_id=session, message_id=told.info.id)
    for message in messages:
        if since is not None and message.info.time.created >= since:
            yield from _changed(known.transcript.find(message.info.id), message)


def _changed(told: MessageWithParts | None, message: MessageWithParts) -> Iterator[Event]:
    if told is None or told.info != message.info:
        yield MessageUpdated(info=message.info)
    before = {part.id: part for part in told.parts} if told else {}
    for part in message.parts:
        yield from _grown(before.pop(part.id, None), part)
    for id in before:
        yield PartRemoved(session_id=message.info.session_id, message_id=message.info.id, part_id=id)


def _grown(told: AnyPart | None, part: AnyPart) -> Iterator[Event]:
    """What was added to a text comes as growth: whoever writes it out goes on where they are."""
    if told == part:
        return
    growth = _growth(told, part)
    if growth is not None and told is not None:
        yield growth
        told = grown(told, growth)
    if told != part:
        yield PartUpdated(part=part)


def _growth(told: AnyPart | None, part: AnyPart) -> PartGrew | None:
    if not isinstance(told, TextPart | ReasoningPart) or not isinstance(part, TextPart | ReasoningPart):
        return None
    if len(part.text) <= len(told.text) or not part.text.startswith(told.text):
        return None
    return PartGrew(
        session_id=part.session_id,
        message_id=part.message_id,
        part_id=part.id,
        field="text",
        delta=part.text[len(told.text) :],
        offset=len(told.text),
    )


def _done(session: SessionID, known: Known, status: AnyStatus) -> Iterator[Event]:
    if known.status is None or known.status == status:
        return
    yield StatusChanged(session_id=session, status=status)
    if isinstance(status, Idle):
        yield SessionRested(session_id=session)
