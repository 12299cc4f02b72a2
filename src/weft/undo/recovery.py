"""What an undo needs, and finishing what dead processes left of undos and of changes that no session knows of."""

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
from weft.model.part import ErrorState, PatchOwn, PatchPart, ToolPart
from weft.model.session import Session, own_of
from weft.session.revert_point import cut_at, patches_in, trees_in, trees_of
from weft.snapshot.contract import Snapshots
from weft.store.contract import Store
from weft.undo.changes import Tally

Editor = Callable[[Session], Session]


class Undoer(Struct, frozen=True, kw_only=True):
    store: Store
    journal: Journal
    clock: Clock
    mint: Mint
    snapshots: Snapshots
    tally: Tally
    theirs: str = ""  # where OpenCode keeps its snapshots, a repository for each project

    async def tell(
        self, session: SessionID, patches: Sequence[Patch], editor: Editor = lambda it: it
    ) -> Session:
        """Change a session, and say what it did to files, if these are all the patches it has."""
        found = await self.tally.add_up(session, patches)
        now = self.clock.now()

        def edited(it: Session) -> Session:
            it = editor(it)
            it = it if found is None else replace(it, summary=found.summary)
            return replace(it, time=replace(it.time, updated=max(now, it.time.updated)))

        if found is not None:
            await self.journal.commit(SessionDiffed(session_id=session, diff=found.diffs))
        # Last of all, for where files are restored: with it stands, or falls, what was done to them.
        return await self.journal.edit(session, edited)

    async def let_go(
        self, session: SessionID, gone: Iterable[Tree], *, still: Iterable[MessageWithParts]
    ) -> None:
        """Snapshots are needed no more, unless something that is still there names them, or files are yet to be restored
        from them."""
        if await self.snapshots.is_unsettled(session):
            return
        await self.snapshots.unpin(session, sorted({*gone} - trees_in(still)))


async def recover(undoer: Undoer) -> list[WeftError]:
    """Finish a restoring if its session says that it was taken back, else roll it back; store what was not stored.

    Return what could not be settled. It stays as it is until the next opening, and keeps nobody from working.
    """

    async def wanted(session: SessionID, note: str) -> bool:
        try:
            return own_of(await undoer.store.get_session(session)).restored == note
        except UnreadableError:
            raise  # nobody can say; once the session is repaired it will
        except NotFoundError:
            return False

    try:
        found = await undoer.snapshots.recover(wanted)
    except (WeftError, OSError) as error:
        return [_unsettled("what a dead process left of undoing", error)]
    unsettled: list[WeftError] = []
    for session in dict.fromkeys(session for session, _ in found.patches):
        patches = [patch for whose, patch in found.patches if whose == session]
        try:
            await _settle(undoer, session, patches)
        except (WeftError, OSError) as error:
            unsettled.append(_unsettled(f"what a dead run of session {session} did to files", error))
    return unsettled


def _unsettled(what: str, error: Exception) -> WeftError:
    return StoreError(f"{what} is not settled yet: {error}", hint="the next opening tries again")


async def _settle(undoer: Undoer, session: SessionID, patches: Sequence[Patch]) -> None:
    try:
        await _store(undoer, session, patches)
    except UnreadableError:
        raise  # its snapshots are needed again once it is repaired
    except NotFoundError:
        await undoer.snapshots.release(session)
    await undoer.snapshots.stored(session)


async def _store(undoer: Undoer, session: SessionID, patches: Sequence[Patch], call_id: str = "") -> None:
    """Put them with the last answer, which is the one that was cut short; and with that of who had sent the session."""
    info = await undoer.store.get_session(session)
    history = await undoer.store.list_messages(session)
    known = {(patch.hash, patch.until) for patch in patches_in(history)}
    new = [patch for patch in patches if (patch.hash, patch.until) not in known]
    answer = _last_answer(history)
    if new and answer is not None:
        owned = [PatchOwn(patch=patch, call_id=call_id) for patch in new]
        await undoer.journal.commit(*(PartUpdated(part=_part(undoer, answer, own)) for own in owned))
        history = await undoer.store.list_messages(session)
        await undoer.tell(session, patches_in(cut_at(info.revert, history).kept))
    if info.parent_id is not None:
        await _store_above(undoer, info.parent_id, session, patches)


async def _store_above(undoer: Undoer, parent: SessionID, child: SessionID, patches: Sequence[Patch]) -> None:
    """What a child did is the doing of who sent it, too, if it died in that call."""
    for message in reversed(await undoer.store.list_messages(parent)):
        if isinstance(message.info, AssistantMessage):
            call = next((part for part in message.parts if _has_sent(part, child)), None)
            if isinstance(call, ToolPart):
                await undoer.snapshots.pin(parent, sorted(trees_of(patches)))
                await _store(undoer, parent, patches, call.call_id)
            return


def _has_sent(part: object, child: SessionID) -> bool:
    match part:
        case ToolPart(state=ErrorState(metadata=dict(metadata))):
            return metadata.get("sessionId") == child
        case _:
            return False


def _last_answer(history: Sequence[MessageWithParts]) -> AssistantMessage | None:
    answers = (message.info for message in reversed(history) if isinstance(message.info, AssistantMessage))
    return next(answers, None)


def _part(undoer: Undoer, answer: AssistantMessage, own: PatchOwn) -> PatchPart:
    return PatchPart(
        id=undoer.mint.part(),
        session_id=answer.session_id,
        message_id=answer.id,
        hash=own.patch.hash,
        files=(),
        weft=own,
    )
