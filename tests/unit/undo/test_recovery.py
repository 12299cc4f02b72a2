"""What recovery asks of the store, and what is released while an undo is unfinished."""

import os
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from weft.bus import Bus
from weft.journal import Journal
from weft.model.diff import Tree
from weft.model.event import SessionCreated
from weft.model.ids import Mint, SessionID
from weft.model.session import get_weft_data, with_weft_data
from weft.snapshot.contract import RecoveryReport
from weft.snapshot.noop import NoSnapshots
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock
from weft.testing.store_samples import SESSION, session
from weft.undo.changes import ChangeTotals
from weft.undo.context import UndoContext
from weft.undo.recovery import recover_file_changes

TREE = Tree("a" * 40)


class InterruptedSnapshots(NoSnapshots):
    """Finds the undo of a dead process, and asks whether it is to be finished. It knows what was released."""

    def __init__(self, note: str = "", *, is_unfinished: bool = False) -> None:
        super().__init__()
        self._note = note
        self._is_unfinished = is_unfinished
        self.finished: list[bool] = []
        self.unpinned: list[Tree] = []

    async def recover(self, should_stand: Callable[[SessionID, str], Awaitable[bool]]) -> RecoveryReport:
        self.finished.append(await should_stand(SESSION, self._note))
        return RecoveryReport()

    async def has_unfinished_restore(self, session: SessionID) -> bool:
        return self._is_unfinished and session == SESSION

    async def unpin(self, session: SessionID, trees: Sequence[Tree]) -> None:
        assert session == SESSION
        self.unpinned += trees


async def make_context(snapshots: InterruptedSnapshots) -> UndoContext:
    """Return the context of a session whose last undo has the note `first`."""
    clock, store = HandClock(), MemoryStore()
    info = session()
    undone = with_weft_data(info, replace(get_weft_data(info), restored="first"))
    await store.apply(SessionCreated(info=undone))
    return UndoContext(
        store=store,
        journal=Journal(store, Bus(), directory="/work"),
        clock=clock,
        mint=Mint(clock.now, os.urandom),
        snapshots=snapshots,
        totals=ChangeTotals(snapshots, "/work"),
    )


async def test_an_interrupted_undo_is_finished_if_the_session_records_this_one() -> None:
    recorded, other = InterruptedSnapshots("first"), InterruptedSnapshots("second")
    for snapshots in (recorded, other):
        assert await recover_file_changes(await make_context(snapshots)) == []
    assert (recorded.finished, other.finished) == ([True], [False])


async def test_nothing_is_released_while_files_have_to_be_restored_from_it() -> None:
    whole, unfinished = InterruptedSnapshots(), InterruptedSnapshots(is_unfinished=True)
    for snapshots in (whole, unfinished):
        await (await make_context(snapshots)).release_trees(SESSION, [TREE], remaining=())
    assert (whole.unpinned, unfinished.unpinned) == ([TREE], [])
