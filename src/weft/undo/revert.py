"""Take a session back to a message, its files too; bring it forward again.

Whoever calls this holds the session's lease. Nothing is removed yet: `cleanup` does that when the session goes on.
"""

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import InvalidInputError
from weft.model.diff import FileFate, Patch
from weft.model.ids import MessageID, PartID
from weft.model.message import MessageWithParts
from weft.model.session import Reverted, Session, SessionRevert, own_of, with_own
from weft.session.revert_point import (
    cut,
    cut_at,
    find_point,
    foreign_in,
    left_in,
    patches_in,
    ran_commands,
    trees_of,
    untold_in,
)
from weft.snapshot.contract import Plan, Restoration
from weft.undo.changes import is_within
from weft.undo.recovery import Undoer, recover

DIFF_LIMIT: Final = 256 << 10
COMMANDS: Final = (
    "what commands did to ignored files, to repositories within, and outside of the project is not undone"
)
_HEAD: Final = "diff --git "


Target = tuple[MessageID, PartID | None]


class Wish(Struct, frozen=True, kw_only=True):
    """What of it is to be done to files: all, or only to `files` (absolute); with `dry_run`, nothing."""

    files: tuple[str, ...] | None = None
    dry_run: bool = False


ALL: Final = Wish()


async def revert(
    undoer: Undoer,
    session: Session,
    history: Sequence[MessageWithParts],
    to: Target,
    wish: Wish = ALL,
) -> Reverted:
    """Take it back to a message, or to a part of one. From where it was taken back before, that may be further back
    or forward: what was undone then and stays now is brought back."""
    point = find_point(history, *to)
    parted = cut(history, point)
    _check_foreign_mark(session, history, parted.gone)
    undone = own_of(session).undo
    plan = _plan(undoer, session, [*patches_in(parted.gone), *undone], wish)
    others = _asked_for([*untold_in(parted.gone), *foreign_in(parted.gone)], wish)
    caution = COMMANDS if wish.files is None and ran_commands(parted.gone) else ""
    if wish.dry_run:
        preview = await undoer.snapshots.preview(plan)
        return Reverted(session=session, files=_told(preview, others), caution=caution)
    async with _restoring(undoer, plan) as restored:
        way_back = undone if restored.undo is None else (*undone, restored.undo)
        mark = SessionRevert(
            message_id=point.message_id,
            part_id=point.part_id,
            snapshot=None if session.revert is None else session.revert.snapshot,
            diff=await _diff(undoer, way_back),
        )
        taken = await undoer.tell(
            session.id,
            patches_in(parted.kept),
            lambda it: with_own(
                replace(it, revert=mark), replace(own_of(it), undo=way_back, restored=plan.note)
            ),
        )
    return Reverted(session=taken, files=_told(restored, others), caution=caution)


async def unrevert(
    undoer: Undoer, session: Session, history: Sequence[MessageWithParts], wish: Wish = ALL
) -> Reverted:
    """Bring all of it back. What the person changed in between stays as it is. Not taken back, it is as it was.

    What OpenCode took back is read from its own snapshots. Raise `SnapshotMissingError` if they are gone: the session
    stays as it is, and OpenCode's way back is not lost.
    """
    if session.revert is None:
        return Reverted(session=session)
    parted = cut_at(session.revert, history)
    undone = (*await _foreign(undoer, session, parted.gone, wish), *own_of(session).undo)
    plan = _plan(undoer, session, undone, wish)
    foreign = _asked_for(foreign_in(parted.gone), wish)
    if wish.dry_run:
        preview = await undoer.snapshots.preview(plan)
        return Reverted(session=session, files=_told(preview, foreign))
    async with _restoring(undoer, plan) as restored:
        back = await undoer.tell(
            session.id,
            patches_in(history),
            lambda it: with_own(replace(it, revert=None), replace(own_of(it), undo=(), restored=plan.note)),
        )
    spent = undone if restored.undo is None else (*undone, restored.undo)
    await undoer.let_go(session.id, trees_of(spent), still=history)
    return Reverted(session=back, files=_told(restored, foreign))


# --- what OpenCode took back ---


async def _foreign(
    undoer: Undoer, session: Session, gone: Sequence[MessageWithParts], wish: Wish
) -> tuple[Patch, ...]:
    """Return what OpenCode did to files when it took the session back."""
    snapshot = None if session.revert is None else session.revert.snapshot
    left = left_in(gone)
    if snapshot is None or not left or wish.files == ():
        return ()
    git_dir = os.path.join(undoer.theirs, session.project_id)
    return (await undoer.snapshots.borrow(git_dir, snapshot, left),)


def _check_foreign_mark(
    session: Session, history: Sequence[MessageWithParts], gone: Sequence[MessageWithParts]
) -> None:
    """Raise `InvalidInputError` if messages would come back without the files that OpenCode took back with them."""
    if session.revert is None or session.revert.snapshot is None:
        return
    if not left_in(cut_at(session.revert, history).gone).keys() <= left_in(gone).keys():
        raise InvalidInputError(
            "message",
            "OpenCode took this session back further than to there",
            hint="bring it forward first: weft redo",
        )


# --- the plan ---


def _plan(undoer: Undoer, session: Session, patches: Iterable[Patch], wish: Wish) -> Plan:
    if wish.files == ():
        patches = ()
    wanted = tuple(patches)
    if not is_within(undoer.tally.root, wanted):
        raise InvalidInputError(
            "session",
            f"it changed files elsewhere than in {undoer.tally.root}",
            hint=f"take it back from where it worked: --dir {session.directory}",
        )
    return Plan(session=session.id, patches=wanted, files=wish.files, note=undoer.mint.part())


@asynccontextmanager
async def _restoring(undoer: Undoer, plan: Plan) -> AsyncIterator[Restoration]:
    """The files are as planned, and stay so if the body does not raise."""
    if not plan.patches:
        yield Restoration(session=plan.session, fates=(), note=plan.note)
        return
    await recover(undoer)  # an earlier attempt that ran out of space
    async with undoer.snapshots.restoring(plan) as restored:
        yield restored


def _asked_for(fates: list[FileFate], wish: Wish) -> list[FileFate]:
    return fates if wish.files is None else [each for each in fates if each.file in wish.files]


def _told(restored: Restoration, others: Iterable[FileFate]) -> tuple[FileFate, ...]:
    told = {each.file: each for each in (*others, *restored.fates)}
    return tuple(told[file] for file in sorted(told))


async def _diff(undoer: Undoer, way_back: Sequence[Patch]) -> str | None:
    """What was done to files since the session was first taken back, as a unified diff; screens list its files."""
    if not way_back:
        return None
    whole = await undoer.snapshots.fold(way_back)
    text = await undoer.snapshots.diff_text(whole.hash, whole.until)
    return bounded(text) or None


def bounded(text: str, limit: int = DIFF_LIMIT) -> str:
    """As many whole files of a unified diff as fit."""
    if len(text) <= limit:
        return text
    end = text.rfind(f"\n{_HEAD}", 0, limit)
    return text[: end + 1]
