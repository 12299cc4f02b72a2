"""What an undo and the recovery after a crash work with, and the snapshots and file changes of sessions."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import GitError, SnapshotMissingError
from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.diff import FileDiff, Patch, Tree
from weft.model.event import SessionDiffed
from weft.model.ids import Mint, SessionID
from weft.model.message import MessageWithParts, UserMessage
from weft.model.session import SessionInfo, get_weft_data
from weft.session.lifecycle import make_touch
from weft.session.messages import list_diffs
from weft.session.revert_point import get_history_trees, get_patch_trees, list_patches
from weft.snapshot.contract import Snapshots
from weft.store.contract import SessionEditor, Store
from weft.undo.changes import ChangeTotals


class UndoContext(Struct, frozen=True, kw_only=True):
    """What an undo needs. `opencode_snapshots` is the directory with those of OpenCode, one repository for each project."""

    store: Store
    journal: Journal
    clock: Clock
    mint: Mint
    snapshots: Snapshots
    totals: ChangeTotals
    opencode_snapshots: str = ""

    async def update_session(
        self, session: SessionID, patches: Sequence[Patch], editor: SessionEditor = lambda stored: stored
    ) -> SessionInfo:
        """Change a session, and store its total of file changes. `patches` are all its patches."""
        total = await self.totals.add_up(session, patches)
        touch = make_touch(self.clock.now())

        def apply(stored: SessionInfo) -> SessionInfo:
            edited = editor(stored)
            return touch(edited if total is None else replace(edited, summary=total.summary))

        if total is not None:
            await self.journal.commit(SessionDiffed(session_id=session, diff=total.diffs))
        # Last: whether restored files stay restored depends on this change being stored.
        return await self.journal.edit(session, apply)

    async def release_trees(
        self, session: SessionID, trees: Iterable[Tree], *, remaining: Iterable[MessageWithParts]
    ) -> None:
        """Release snapshots, unless remaining messages name them or files still have to be restored from them."""
        if await self.snapshots.has_unfinished_restore(session):
            return
        await self.snapshots.unpin(session, sorted({*trees} - get_history_trees(remaining)))


async def pin_session(undo_context: UndoContext, session: SessionInfo) -> None:
    """Keep the snapshots of a session that is a copy, because its original may be removed."""
    history = await undo_context.store.list_messages(session.id)
    trees = get_history_trees(history) | get_patch_trees(get_weft_data(session).undo)
    if trees:
        await undo_context.snapshots.pin(session.id, sorted(trees))


async def release_sessions(undo_context: UndoContext, removed: Iterable[SessionInfo]) -> None:
    """Release the snapshots of removed sessions."""
    for session in removed:
        await undo_context.snapshots.release(session.id)


async def list_message_diffs(undo_context: UndoContext, message: MessageWithParts) -> list[FileDiff]:
    """Return the file changes of a prompt or of an answer; empty if they can no longer be read."""
    if isinstance(message.info, UserMessage):
        return list_diffs(message)
    total = await undo_context.totals.add_up(message.info.id, list_patches([message]))
    return [] if total is None else list(total.diffs)


async def make_diff_text(undo_context: UndoContext, messages: Iterable[MessageWithParts]) -> str:
    """Return the file changes of messages as one unified diff; empty if they can no longer be read."""
    try:
        patch = await undo_context.snapshots.fold(list_patches(messages))
        return await undo_context.snapshots.diff_text(patch.before, patch.after)
    except (GitError, SnapshotMissingError):
        return ""
