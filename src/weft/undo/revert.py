"""Undo a session and its files back to a message, and redo it.

The caller holds the session's lease. No message is removed yet: `cleanup` does that when the session continues.
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
from weft.model.session import RevertResult, Session, SessionRevert, get_weft_data, with_weft_data
from weft.session.revert_point import (
    cut_at_revert,
    cut_history,
    find_opencode_trees,
    find_point,
    get_patch_trees,
    has_commands,
    list_foreign_files,
    list_patches,
    list_unrecorded_files,
)
from weft.snapshot.contract import Restoration, RestorePlan
from weft.undo.changes import is_within
from weft.undo.recovery import Undoer, recover

DIFF_LIMIT: Final = 256 << 10
COMMANDS: Final = "changes that commands made to ignored files, nested repositories and files outside the project are not undone"
_HEAD: Final = "diff --git "


RevertTarget = tuple[MessageID, PartID | None]


class RevertScope(Struct, frozen=True, kw_only=True):
    """Which files to restore: all, or only `files` (absolute paths). With `dry_run`, nothing is changed."""

    files: tuple[str, ...] | None = None
    dry_run: bool = False


WHOLE_REVERT: Final = RevertScope()


async def revert(
    undoer: Undoer,
    session: Session,
    history: Sequence[MessageWithParts],
    to: RevertTarget,
    scope: RevertScope = WHOLE_REVERT,
) -> RevertResult:
    """Undo back to a message, or to a part of one. If the session is undone already, this may go further back or forward."""
    point = find_point(history, *to)
    cut = cut_history(history, point)
    _check_foreign_mark(session, history, cut.removed)
    undone = get_weft_data(session).undo
    plan = _make_plan(undoer, session, [*list_patches(cut.removed), *undone], scope)
    others = _select([*list_unrecorded_files(cut.removed), *list_foreign_files(cut.removed)], scope)
    caution = COMMANDS if scope.files is None and has_commands(cut.removed) else ""
    if scope.dry_run:
        preview = await undoer.snapshots.preview(plan)
        return RevertResult(session=session, files=_list_fates(preview, others), caution=caution)
    async with _restore(undoer, plan) as restored:
        redo = undone if restored.undo is None else (*undone, restored.undo)
        mark = SessionRevert(
            message_id=point.message_id,
            part_id=point.part_id,
            snapshot=None if session.revert is None else session.revert.snapshot,
            diff=await _make_diff(undoer, redo),
        )
        changed = await undoer.update_session(
            session.id,
            list_patches(cut.kept),
            lambda it: with_weft_data(
                replace(it, revert=mark), replace(get_weft_data(it), undo=redo, restored=plan.note)
            ),
        )
    return RevertResult(session=changed, files=_list_fates(restored, others), caution=caution)


async def unrevert(
    undoer: Undoer, session: Session, history: Sequence[MessageWithParts], scope: RevertScope = WHOLE_REVERT
) -> RevertResult:
    """Redo all that was undone. What the person changed meanwhile stays. A session that is not undone is returned unchanged.

    If OpenCode did the undo, the files come from its snapshots. Raise `SnapshotMissingError` if they are gone; the session then
    stays as it is, so that OpenCode can still redo it.
    """
    if session.revert is None:
        return RevertResult(session=session)
    cut = cut_at_revert(session.revert, history)
    undone = (*await _read_opencode_undo(undoer, session, cut.removed, scope), *get_weft_data(session).undo)
    plan = _make_plan(undoer, session, undone, scope)
    foreign = _select(list_foreign_files(cut.removed), scope)
    if scope.dry_run:
        preview = await undoer.snapshots.preview(plan)
        return RevertResult(session=session, files=_list_fates(preview, foreign))
    async with _restore(undoer, plan) as restored:
        back = await undoer.update_session(
            session.id,
            list_patches(history),
            lambda it: with_weft_data(
                replace(it, revert=None), replace(get_weft_data(it), undo=(), restored=plan.note)
            ),
        )
    spent = undone if restored.undo is None else (*undone, restored.undo)
    await undoer.release_trees(session.id, get_patch_trees(spent), still=history)
    return RevertResult(session=back, files=_list_fates(restored, foreign))


# --- undone by OpenCode ---


async def _read_opencode_undo(
    undoer: Undoer, session: Session, gone: Sequence[MessageWithParts], scope: RevertScope
) -> tuple[Patch, ...]:
    """Return the file changes that OpenCode made when it undid the session."""
    snapshot = None if session.revert is None else session.revert.snapshot
    left = find_opencode_trees(gone)
    if snapshot is None or not left or scope.files == ():
        return ()
    git_dir = os.path.join(undoer.opencode_snapshots, session.project_id)
    return (await undoer.snapshots.borrow(git_dir, snapshot, left),)


def _check_foreign_mark(
    session: Session, history: Sequence[MessageWithParts], gone: Sequence[MessageWithParts]
) -> None:
    """Raise `InvalidInputError` if messages would be redone without the files that OpenCode undid with them."""
    if session.revert is None or session.revert.snapshot is None:
        return
    if (
        not find_opencode_trees(cut_at_revert(session.revert, history).removed).keys()
        <= find_opencode_trees(gone).keys()
    ):
        raise InvalidInputError(
            "message",
            "OpenCode undid this session to a point before that",
            hint="redo it first: weft redo",
        )


# --- the plan ---


def _make_plan(undoer: Undoer, session: Session, patches: Iterable[Patch], scope: RevertScope) -> RestorePlan:
    if scope.files == ():
        patches = ()
    wanted = tuple(patches)
    if not is_within(undoer.totals.root, wanted):
        raise InvalidInputError(
            "session",
            f"it changed files outside of {undoer.totals.root}",
            hint=f"undo it from its own directory: --dir {session.directory}",
        )
    return RestorePlan(session=session.id, patches=wanted, files=scope.files, note=undoer.mint.part())


@asynccontextmanager
async def _restore(undoer: Undoer, plan: RestorePlan) -> AsyncIterator[Restoration]:
    """Restore the files. They stay restored if the body does not raise."""
    if not plan.patches:
        yield Restoration(session=plan.session, fates=(), note=plan.note)
        return
    await recover(undoer)  # finish an earlier attempt that ran out of space
    async with undoer.snapshots.restoring(plan) as restored:
        yield restored


def _select(fates: list[FileFate], scope: RevertScope) -> list[FileFate]:
    return fates if scope.files is None else [each for each in fates if each.file in scope.files]


def _list_fates(restored: Restoration, others: Iterable[FileFate]) -> tuple[FileFate, ...]:
    fates = {each.file: each for each in (*others, *restored.fates)}
    return tuple(fates[file] for file in sorted(fates))


async def _make_diff(undoer: Undoer, redo: Sequence[Patch]) -> str | None:
    """Return the changes since the session was first undone, as a unified diff. Screens list its files."""
    if not redo:
        return None
    whole = await undoer.snapshots.fold(redo)
    text = await undoer.snapshots.diff_text(whole.hash, whole.until)
    return cut_diff(text) or None


def cut_diff(text: str, limit: int = DIFF_LIMIT) -> str:
    """Cut a unified diff to a limit, at the end of a file."""
    if len(text) <= limit:
        return text
    end = text.rfind(f"\n{_HEAD}", 0, limit)
    return text[: end + 1]
