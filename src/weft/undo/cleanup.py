"""Remove undone messages when a session continues, and release their snapshots."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from weft.errors import DocumentError
from weft.model.event import Durable, MessageRemoved, PartRemoved, TodoUpdated
from weft.model.message import MessageWithParts
from weft.model.part import CompletedState, ToolPart
from weft.model.session import SessionInfo, Todo, get_weft_data, with_weft_data
from weft.model.wire import from_plain
from weft.session.revert_point import (
    HistoryCut,
    cut_at_revert,
    get_history_trees,
    get_patch_trees,
    list_patches,
)
from weft.session.totals import update_ledger
from weft.undo.context import UndoContext

TODO_TOOL: Final = "todowrite"


async def clean_up(
    undo_context: UndoContext, session: SessionInfo, history: Sequence[MessageWithParts]
) -> tuple[SessionInfo, list[Durable]]:
    """Remove the messages that were undone. Return the session and the events. The cost of the messages still counts.

    OpenCode leaves the parts of removed messages behind, and keeps their todo list.
    """
    if session.revert is None:
        return session, []
    cut = cut_at_revert(session.revert, history)
    await update_ledger(undo_context.journal, session.id, [message.info for message in history])
    events = [*list_removals(cut), *_list_todo_events(session, cut)]
    if events:
        await undo_context.journal.commit(*events)
    undone = get_weft_data(session).undo
    session = await undo_context.update_session(
        session.id,
        list_patches(cut.kept),
        lambda stored: with_weft_data(replace(stored, revert=None), replace(get_weft_data(stored), undo=())),
    )
    await undo_context.release_trees(
        session.id, get_history_trees(cut.removed) | get_patch_trees(undone), remaining=cut.kept
    )
    return session, events


def list_removals(cut: HistoryCut) -> Iterator[Durable]:
    """Yield the removal of whole messages, and of parts for the message that is cut."""
    kept_ids = {message.info.id for message in cut.kept}
    for message in cut.removed:
        session, id = message.info.session_id, message.info.id
        if id not in kept_ids:
            yield MessageRemoved(session_id=session, message_id=id)
            continue
        for part in message.parts:
            yield PartRemoved(session_id=session, message_id=id, part_id=part.id)


def _list_todo_events(session: SessionInfo, cut: HistoryCut) -> Iterator[Durable]:
    """Yield the todo list of the messages that stay, if the others changed it."""
    if find_todos(cut.removed) is not None:
        yield TodoUpdated(session_id=session.id, todos=find_todos(cut.kept) or ())


def find_todos(messages: Iterable[MessageWithParts]) -> tuple[Todo, ...] | None:
    """Return the todo list that was last written in these messages, or None."""
    found: tuple[Todo, ...] | None = None
    for message in messages:
        for part in message.parts:
            match part:
                case ToolPart(tool=tool, state=CompletedState(input=input)) if tool == TODO_TOOL:
                    with suppress(DocumentError):
                        found = from_plain(input.get("todos", []), tuple[Todo, ...])
                case _:
                    pass
    return found
