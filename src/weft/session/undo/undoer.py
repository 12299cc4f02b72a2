"""What it takes to undo: where sessions are kept, where files are, and what is told of both afterwards."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.diff import Patch, Tree
from weft.model.event import SessionDiffed
from weft.model.ids import Mint, SessionID
from weft.model.message import MessageWithParts
from weft.model.session import Session
from weft.session.undo.point import trees_in
from weft.session.undo.tally import Tally
from weft.snapshot.contract import Snapshots
from weft.store.contract import Store

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
