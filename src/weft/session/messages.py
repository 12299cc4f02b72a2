"""The messages of a session at rest: read backwards, put, and taken away."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from weft.errors import InvalidInputError, NotFoundError
from weft.journal import Journal
from weft.model.diff import FileDiff
from weft.model.event import MessageRemoved, MessageUpdated, PartRemoved, PartUpdated
from weft.model.ids import MessageID, PartID, SessionID, check_new, checked
from weft.model.message import AnyMessage, MessageWithParts, UserMessage
from weft.model.part import AnyPart
from weft.model.transcript import Transcript
from weft.store.contract import Store

FIRST_PAGE = 32


async def newest_first(store: Store, session: SessionID) -> AsyncIterator[MessageWithParts]:
    """One after the other, from the last to the first. Whoever stops early has not read them all."""
    await store.get_session(session)
    before: MessageID | None = None
    size = FIRST_PAGE
    while page := await store.list_messages(session, last=size, before=before):
        for message in reversed(page):
            yield message
        # Twice as many each time: a page costs a look at every message, so there must be few of them.
        before, size = page[0].info.id, size * 2


class Door(NamedTuple):
    """By which messages are put and taken away. `known` is what a run under way knows of the session, if there is one: it
    goes on with what it is now."""

    journal: Journal
    store: Store
    known: Transcript | None = None


async def put_message(door: Door, message: AnyMessage) -> AnyMessage:
    """Add a message or replace it."""
    check_new("message", message.id)
    await door.store.get_session(SessionID(checked("session", message.session_id)))
    await door.journal.commit(MessageUpdated(info=message), into=door.known)
    return message


async def put_part(door: Door, part: AnyPart, *, delta: str | None = None) -> AnyPart:
    """Add a part or replace it; `delta` says by what its text has just grown."""
    check_new("part", part.id)
    await get_message(door.store, part.session_id, part.message_id)
    if delta is not None and not getattr(part, "text", "").endswith(delta):
        raise InvalidInputError("delta", "the part's text does not end so")
    await door.journal.commit(PartUpdated(part=part, delta=delta), into=door.known)
    return part


async def remove_message(door: Door, session: SessionID, id: MessageID) -> None:
    """Take a message away and its parts with it. OpenCode leaves the parts behind."""
    await get_message(door.store, session, id)
    await door.journal.commit(MessageRemoved(session_id=session, message_id=id), into=door.known)


async def remove_part(door: Door, session: SessionID, message: MessageID, id: PartID) -> None:
    found = await get_message(door.store, session, message)
    if id not in (part.id for part in found.parts):
        raise NotFoundError("part", id)
    gone = PartRemoved(session_id=session, message_id=message, part_id=id)
    await door.journal.commit(gone, into=door.known)


async def get_message(store: Store, session: SessionID, id: MessageID) -> MessageWithParts:
    await store.get_session(SessionID(checked("session", session)))
    found = await store.find_message(session, MessageID(checked("message", id)))
    if found is None:
        raise NotFoundError("message", id)
    return found


def diffs_of(message: MessageWithParts) -> list[FileDiff]:
    """What a prompt led to in files, as far as it was worked out; nothing for an answer."""
    summary = message.info.summary if isinstance(message.info, UserMessage) else None
    return list(summary.diffs) if summary is not None else []
