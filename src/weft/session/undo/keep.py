"""What of snapshots belongs to sessions at rest: kept for a copy, let go with what is removed, looked at."""

from collections.abc import Iterable

from weft.errors import GitError, SnapshotMissingError
from weft.model.diff import FileDiff
from weft.model.message import MessageWithParts, UserMessage
from weft.model.session import Session, own_of
from weft.session.messages import diffs_of
from weft.session.undo.point import patches_in, trees_in, trees_of
from weft.session.undo.undoer import Undoer


async def pin_all(undoer: Undoer, session: Session) -> None:
    """Keep what a session names that came to be as a copy: the original may go."""
    history = await undoer.store.list_messages(session.id)
    trees = trees_in(history) | trees_of(own_of(session).undo)
    if trees:
        await undoer.snapshots.pin(session.id, sorted(trees))


async def release_all(undoer: Undoer, gone: Iterable[Session]) -> None:
    for session in gone:
        await undoer.snapshots.release(session.id)


async def diff_of(undoer: Undoer, message: MessageWithParts) -> list[FileDiff]:
    """What a prompt led to in files, or what one answer to it did; nothing if it cannot be said any more."""
    if isinstance(message.info, UserMessage):
        return diffs_of(message)
    found = await undoer.tally.add_up(message.info.id, patches_in([message]))
    return [] if found is None else list(found.diffs)


async def diff_text_of(undoer: Undoer, messages: Iterable[MessageWithParts]) -> str:
    """What messages did to files, all together, as a unified diff."""
    try:
        whole = await undoer.snapshots.fold(patches_in(messages))
        return await undoer.snapshots.diff_text(whole.hash, whole.until)
    except (GitError, SnapshotMissingError):
        return ""
