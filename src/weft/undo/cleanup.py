"""Remove what was undone when a session goes on, and release its snapshots."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from weft.errors import DocumentError, GitError, SnapshotMissingError
from weft.model.diff import FileDiff
from weft.model.event import Durable, MessageRemoved, PartRemoved, TodoUpdated
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import CompletedState, ToolPart
from weft.model.session import Session, Todo, own_of, with_own
from weft.model.wire import from_plain
from weft.session.messages import diffs_of
from weft.session.revert_point import Cut, cut_at, patches_in, trees_in, trees_of
from weft.session.totals import keep_count
from weft.undo.recovery import Undoer

TODO_TOOL: Final = "todowrite"


async def clean_up(
    undoer: Undoer, session: Session, history: Sequence[MessageWithParts]
) -> tuple[Session, list[Durable]]:
    """Remove what goes; gives the session as it is then, and what happened. What it cost is not forgotten.

    OpenCode leaves the parts of removed messages behind, and the todo list as the removed ones had it.
    """
    if session.revert is None:
        return session, []
    parted = cut_at(session.revert, history)
    await keep_count(undoer.journal, session.id, [message.info for message in history])
    removed = [*removals(parted), *_todos(session, parted)]
    if removed:
        await undoer.journal.commit(*removed)
    undone = own_of(session).undo
    session = await undoer.tell(
        session.id,
        patches_in(parted.kept),
        lambda it: with_own(replace(it, revert=None), replace(own_of(it), undo=())),
    )
    await undoer.let_go(session.id, trees_in(parted.gone) | trees_of(undone), still=parted.kept)
    return session, removed


def removals(parted: Cut) -> Iterator[Durable]:
    """Whole messages; of one that was cut through, the parts that go."""
    stays = {message.info.id for message in parted.kept}
    for message in parted.gone:
        session, id = message.info.session_id, message.info.id
        if id not in stays:
            yield MessageRemoved(session_id=session, message_id=id)
            continue
        for part in message.parts:
            yield PartRemoved(session_id=session, message_id=id, part_id=part.id)


def _todos(session: Session, parted: Cut) -> Iterator[Durable]:
    """The list as what stays left it, if what goes has changed it."""
    if find_todos(parted.gone) is not None:
        yield TodoUpdated(session_id=session.id, todos=find_todos(parted.kept) or ())


def find_todos(messages: Iterable[MessageWithParts]) -> tuple[Todo, ...] | None:
    """The list as it was last written there; None if it was not."""
    found: tuple[Todo, ...] | None = None
    for message in messages:
        for part in message.parts:
            match part:
                case ToolPart(tool=tool, state=CompletedState(input=given)) if tool == TODO_TOOL:
                    with suppress(DocumentError):
                        found = from_plain(given.get("todos", []), tuple[Todo, ...])
                case _:
                    pass
    return found


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
