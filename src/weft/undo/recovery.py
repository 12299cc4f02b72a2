"""Recover after a crash: finish or roll back an undo, and store file changes that no session recorded."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import NotFoundError, StoreError, UnreadableError, WeftError
from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.diff import Patch, Tree
from weft.model.event import PartUpdated, SessionDiffed
from weft.model.ids import Mint, SessionID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import ErrorState, PatchPart, ToolPart, WeftPatchData
from weft.model.session import Session, get_weft_data
from weft.session.revert_point import cut_at_revert, get_history_trees, get_patch_trees, list_patches
from weft.snapshot.contract import Snapshots
from weft.store.contract import Store
from weft.undo.changes import ChangeTotals

SessionEditor = Callable[[Session], Session]


class Undoer(Struct, frozen=True, kw_only=True):
    """What undoing needs. `opencode_snapshots` is the directory with those of OpenCode, one repository for each project."""

    store: Store
    journal: Journal
    clock: Clock
    mint: Mint
    snapshots: Snapshots
    totals: ChangeTotals
    opencode_snapshots: str = ""

    async def update_session(
        self, session: SessionID, patches: Sequence[Patch], editor: SessionEditor = lambda it: it
    ) -> Session:
        """Change a session, and store its total of file changes. `patches` are all its patches."""
        found = await self.totals.add_up(session, patches)
        now = self.clock.now()

        def edited(it: Session) -> Session:
            it = editor(it)
            it = it if found is None else replace(it, summary=found.summary)
            return replace(it, time=replace(it.time, updated=max(now, it.time.updated)))

        if found is not None:
            await self.journal.commit(SessionDiffed(session_id=session, diff=found.diffs))
        # Last: whether restored files stay restored depends on this change being stored.
        return await self.journal.edit(session, edited)

    async def release_trees(
        self, session: SessionID, gone: Iterable[Tree], *, still: Iterable[MessageWithParts]
    ) -> None:
        """Release snapshots, unless remaining messages name them or files still have to be restored from them."""
        if await self.snapshots.is_unsettled(session):
            return
        await self.snapshots.unpin(session, sorted({*gone} - get_history_trees(still)))


async def recover(undoer: Undoer) -> list[WeftError]:
    """Finish an interrupted undo if its session records it, else roll it back. Store file changes that were not stored.

    Return the errors of what could not be settled. That waits for the next opening, and does not keep anybody from working.
    """

    async def wanted(session: SessionID, note: str) -> bool:
        try:
            return get_weft_data(await undoer.store.get_session(session)).restored == note
        except UnreadableError:
            raise  # unknown until the session is repaired
        except NotFoundError:
            return False

    try:
        found = await undoer.snapshots.recover(wanted)
    except (WeftError, OSError) as error:
        return [_to_unsettled_error("the undo of a dead process", error)]
    unsettled: list[WeftError] = []
    for session in dict.fromkeys(session for session, _ in found.patches):
        patches = [patch for whose, patch in found.patches if whose == session]
        try:
            await _settle(undoer, session, patches)
        except (WeftError, OSError) as error:
            unsettled.append(
                _to_unsettled_error(f"the file changes of a dead run of session {session}", error)
            )
    return unsettled


def _to_unsettled_error(what: str, error: Exception) -> WeftError:
    return StoreError(f"{what} is not settled yet: {error}", hint="the next opening tries again")


async def _settle(undoer: Undoer, session: SessionID, patches: Sequence[Patch]) -> None:
    try:
        await _store(undoer, session, patches)
    except UnreadableError:
        raise  # its snapshots are needed when it is repaired
    except NotFoundError:
        await undoer.snapshots.release(session)
    await undoer.snapshots.mark_stored(session)


async def _store(undoer: Undoer, session: SessionID, patches: Sequence[Patch], call_id: str = "") -> None:
    """Store patches with the last answer, which was cut short, and with the call in the parent that started the session."""
    info = await undoer.store.get_session(session)
    history = await undoer.store.list_messages(session)
    known = {(patch.hash, patch.until) for patch in list_patches(history)}
    new = [patch for patch in patches if (patch.hash, patch.until) not in known]
    answer = _find_last_answer(history)
    if new and answer is not None:
        owned = [WeftPatchData(patch=patch, call_id=call_id) for patch in new]
        await undoer.journal.commit(*(PartUpdated(part=_make_part(undoer, answer, own)) for own in owned))
        history = await undoer.store.list_messages(session)
        await undoer.update_session(session, list_patches(cut_at_revert(info.revert, history).kept))
    if info.parent_id is not None:
        await _store_in_parent(undoer, info.parent_id, session, patches)


async def _store_in_parent(
    undoer: Undoer, parent: SessionID, child: SessionID, patches: Sequence[Patch]
) -> None:
    """Store the changes of a child in its parent, too, if the last answer there has the call that started it."""
    for message in reversed(await undoer.store.list_messages(parent)):
        if isinstance(message.info, AssistantMessage):
            call = next((part for part in message.parts if _has_started(part, child)), None)
            if isinstance(call, ToolPart):
                await undoer.snapshots.pin(parent, sorted(get_patch_trees(patches)))
                await _store(undoer, parent, patches, call.call_id)
            return


def _has_started(part: object, child: SessionID) -> bool:
    match part:
        case ToolPart(state=ErrorState(metadata=dict(metadata))):
            return metadata.get("sessionId") == child
        case _:
            return False


def _find_last_answer(history: Sequence[MessageWithParts]) -> AssistantMessage | None:
    answers = (message.info for message in reversed(history) if isinstance(message.info, AssistantMessage))
    return next(answers, None)


def _make_part(undoer: Undoer, answer: AssistantMessage, own: WeftPatchData) -> PatchPart:
    return PatchPart(
        id=undoer.mint.part(),
        session_id=answer.session_id,
        message_id=answer.id,
        hash=own.patch.hash,
        files=(),
        weft=own,
    )
