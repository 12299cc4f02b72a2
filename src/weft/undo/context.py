"""What an undo and the recovery after a crash work with."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.diff import Patch, Tree
from weft.model.event import SessionDiffed
from weft.model.ids import Mint, SessionID
from weft.model.message import MessageWithParts
from weft.model.session import SessionInfo
from weft.session.lifecycle import make_touch
from weft.session.revert_point import get_history_trees
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
