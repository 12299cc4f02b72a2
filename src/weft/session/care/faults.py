"""Faults of a session that can be read: references that lead nowhere, times that cannot be."""

from collections.abc import Collection, Iterator

from msgspec import Struct

from weft.model.ids import SessionID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.parcel import Parcel
from weft.model.session import Session

PARENT_GONE = "its parent"
DAY_MS = 24 * 60 * 60 * 1000


class Fault(Struct, frozen=True, kw_only=True):
    """Something wrong with a stored thing: what it is of, where it lies if that is known, and what is wrong."""

    session: SessionID | None = None
    where: str
    reason: str


def find_faults(parcel: Parcel, known: Collection[str], *, now: int) -> list[Fault]:
    """`known` are the ids of all sessions there are."""
    session = parcel.info
    found = [
        *_session_faults(session, known, now),
        *_revert_faults(parcel),
        *(
            (message.info.id, reason)
            for message in parcel.messages
            for reason in _message_faults(message, parcel, now)
        ),
    ]
    return [Fault(session=session.id, where=where, reason=reason) for where, reason in found]


def _session_faults(session: Session, known: Collection[str], now: int) -> Iterator[tuple[str, str]]:
    time = session.time
    if session.parent_id is not None and session.parent_id not in known:
        yield session.id, f"{PARENT_GONE} {session.parent_id} is gone"
    if session.parent_id == session.id:
        yield session.id, "it is its own parent"
    if time.created <= 0 or time.updated < time.created:
        yield session.id, f"created at {time.created} and updated at {time.updated}: that cannot be"
    if max(time.created, time.updated) > now + DAY_MS:
        yield session.id, "its time lies in the future"


def _revert_faults(parcel: Parcel) -> Iterator[tuple[str, str]]:
    revert = parcel.info.revert
    if revert is not None and revert.message_id not in {message.info.id for message in parcel.messages}:
        yield parcel.info.id, f"it was taken back to {revert.message_id}, which is gone"


def _message_faults(message: MessageWithParts, parcel: Parcel, now: int) -> Iterator[str]:
    info = message.info
    if info.session_id != parcel.info.id:
        yield f"it names another session, {info.session_id}"
    if info.time.created <= 0 or info.time.created > now + DAY_MS:
        yield f"created at {info.time.created}: that cannot be"
    if isinstance(info, AssistantMessage):
        done = info.time.completed
        if done is not None and done < info.time.created:
            yield "completed before it was created"
        if info.parent_id and all(each.info.id != info.parent_id for each in parcel.messages):
            yield f"the prompt it answers, {info.parent_id}, is gone"
    for part in message.parts:
        if (part.message_id, part.session_id) != (info.id, parcel.info.id):
            yield f"its part {part.id} names {part.message_id} of {part.session_id}"
