"""Read, add, replace and remove messages and parts of a session."""

from collections.abc import AsyncIterator

from msgspec import Struct

from weft.errors import InvalidInputError, NotFoundError
from weft.journal import Journal
from weft.model.diff import FileDiff
from weft.model.event import MessageRemoved, MessageUpdated, PartRemoved, PartUpdated
from weft.model.ids import MessageID, PartID, SessionID, check_id, check_new_id
from weft.model.message import AnyMessage, MessageWithParts, UserMessage
from weft.model.part import AnyPart
from weft.model.transcript import Transcript
from weft.store.contract import Store

FIRST_PAGE_SIZE = 32


async def iterate_newest_first(
    store: Store, session: SessionID, *, first: int = FIRST_PAGE_SIZE
) -> AsyncIterator[MessageWithParts]:
    """Yield messages from the last to the first, reading them page by page. The first page has `first` messages."""
    await store.get_session(session)
    before: MessageID | None = None
    size = first
    while page := await store.list_messages(session, last=size, before=before):
        for message in reversed(page):
            yield message
        # Each page is twice as large as the one before: for any page a store may list the ids of all messages, so few are better.
        before, size = page[0].info.id, size * 2


class MessageEditor(Struct, frozen=True):
    """What changing messages needs. `transcript` is the transcript of a run under way, which must see the change."""

    journal: Journal
    store: Store
    transcript: Transcript | None = None


async def put_message(editor: MessageEditor, message: AnyMessage) -> AnyMessage:
    """Add or replace a message."""
    check_new_id("message", message.id)
    await editor.store.get_session(SessionID(check_id("session", message.session_id)))
    await editor.journal.commit(MessageUpdated(info=message), into=editor.transcript)
    return message


async def put_part(editor: MessageEditor, part: AnyPart, *, delta: str | None = None) -> AnyPart:
    """Add or replace a part. `delta` is the text that was just appended to it."""
    check_new_id("part", part.id)
    await get_message(editor.store, part.session_id, part.message_id)
    if delta is not None and not getattr(part, "text", "").endswith(delta):
        raise InvalidInputError("delta", "the part's text does not end with it")
    await editor.journal.commit(PartUpdated(part=part, delta=delta), into=editor.transcript)
    return part


async def remove_message(editor: MessageEditor, session: SessionID, id: MessageID) -> None:
    """Remove a message and its parts. OpenCode leaves the parts behind."""
    await get_message(editor.store, session, id)
    await editor.journal.commit(MessageRemoved(session_id=session, message_id=id), into=editor.transcript)


async def remove_part(editor: MessageEditor, session: SessionID, message: MessageID, id: PartID) -> None:
    """Remove a part. Raise `NotFoundError` if it does not exist."""
    stored = await get_message(editor.store, session, message)
    if id not in (part.id for part in stored.parts):
        raise NotFoundError("part", id)
    removed = PartRemoved(session_id=session, message_id=message, part_id=id)
    await editor.journal.commit(removed, into=editor.transcript)


async def get_message(store: Store, session: SessionID, id: MessageID) -> MessageWithParts:
    """Return a message with its parts. Raise `NotFoundError` if the session or the message does not exist."""
    await store.get_session(SessionID(check_id("session", session)))
    found = await store.find_message(session, MessageID(check_id("message", id)))
    if found is None:
        raise NotFoundError("message", id)
    return found


def list_diffs(message: MessageWithParts) -> list[FileDiff]:
    """Return the stored file changes of a prompt; empty for an answer."""
    summary = message.info.summary if isinstance(message.info, UserMessage) else None
    return list(summary.diffs) if summary is not None else []
