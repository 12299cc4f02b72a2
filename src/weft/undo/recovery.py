"""Recover after a crash: finish or roll back an undo, and store file changes that no session recorded."""

from collections.abc import Sequence

from weft.errors import NotFoundError, StoreError, UnreadableError, WeftError
from weft.model.diff import Patch
from weft.model.event import PartUpdated
from weft.model.ids import SessionID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import ErrorState, PatchPart, RunningState, ToolPart, WeftPatchData
from weft.model.session import get_weft_data
from weft.session.revert_point import cut_at_revert, get_patch_trees, list_patches
from weft.snapshot.contract import RecoveredPatch
from weft.undo.context import UndoContext


async def recover_file_changes(undo_context: UndoContext) -> list[WeftError]:
    """Finish an interrupted undo if its session records it, else roll it back. Store file changes that were not stored.

    Return the errors of what could not be settled. It is tried again at the next opening, and blocks nothing until then.
    """

    async def is_recorded(session: SessionID, note: str) -> bool:
        try:
            return get_weft_data(await undo_context.store.get_session(session)).restored == note
        except UnreadableError:
            raise  # unknown until the session is repaired
        except NotFoundError:
            return False

    try:
        report = await undo_context.snapshots.recover(is_recorded)
    except (WeftError, OSError) as error:
        return [_to_unsettled_error("the undo of a dead process is", error)]
    unsettled: list[WeftError] = []
    for session in dict.fromkeys(each.session for each in report.patches):
        recovered = [each for each in report.patches if each.session == session]
        try:
            await _settle(undo_context, session, recovered)
        except (WeftError, OSError) as error:
            unsettled.append(
                _to_unsettled_error(f"the file changes of a dead run of session {session} are", error)
            )
    return unsettled


def _to_unsettled_error(what: str, error: Exception) -> WeftError:
    return StoreError(f"{what} not settled yet: {error}", hint="the next opening tries again")


async def _settle(undo_context: UndoContext, session: SessionID, recovered: Sequence[RecoveredPatch]) -> None:
    try:
        for call in dict.fromkeys(each.call for each in recovered):
            await _store(undo_context, session, [each.patch for each in recovered if each.call == call], call)
    except UnreadableError:
        raise  # its snapshots are needed when it is repaired
    except NotFoundError:
        await undo_context.snapshots.release(session)
    await undo_context.snapshots.mark_stored(session)


async def _store(
    undo_context: UndoContext, session: SessionID, patches: Sequence[Patch], call_id: str = ""
) -> None:
    """Store patches with the last answer, which was cut short, and with the call in the parent that started the session."""
    info = await undo_context.store.get_session(session)
    history = await undo_context.store.list_messages(session)
    stored_trees = {(patch.before, patch.after) for patch in list_patches(history)}
    new = [patch for patch in patches if (patch.before, patch.after) not in stored_trees]
    answer = _find_last_answer(history)
    if new and answer is not None:
        data = [WeftPatchData(patch=patch, call_id=call_id) for patch in new]
        await undo_context.journal.commit(
            *(PartUpdated(part=_make_part(undo_context, answer, each)) for each in data)
        )
        history = await undo_context.store.list_messages(session)
        await undo_context.update_session(session, list_patches(cut_at_revert(info.revert, history).kept))
    if info.parent_id is not None:
        await _store_in_parent(undo_context, info.parent_id, session, patches)


async def _store_in_parent(
    undo_context: UndoContext, parent: SessionID, child: SessionID, patches: Sequence[Patch]
) -> None:
    """Store the changes of a child in its parent, too, if the last answer there has the call that started it."""
    for message in reversed(await undo_context.store.list_messages(parent)):
        if isinstance(message.info, AssistantMessage):
            call = next((part for part in message.parts if _has_started(part, child)), None)
            if isinstance(call, ToolPart):
                await undo_context.snapshots.pin(parent, sorted(get_patch_trees(patches)))
                await _store(undo_context, parent, patches, call.call_id)
            return


def _has_started(part: object, child: SessionID) -> bool:
    match part:
        case ToolPart(state=RunningState(metadata=dict(metadata)) | ErrorState(metadata=dict(metadata))):
            return metadata.get("sessionId") == child
        case _:
            return False


def _find_last_answer(history: Sequence[MessageWithParts]) -> AssistantMessage | None:
    answers = (message.info for message in reversed(history) if isinstance(message.info, AssistantMessage))
    return next(answers, None)


def _make_part(undo_context: UndoContext, answer: AssistantMessage, data: WeftPatchData) -> PatchPart:
    return PatchPart(
        id=undo_context.mint.part(),
        session_id=answer.session_id,
        message_id=answer.id,
        hash=data.patch.before,
        files=(),
        weft=data,
    )
