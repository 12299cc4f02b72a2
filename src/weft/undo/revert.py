"""Undo a session and its files back to a message, and redo it.

The caller holds the session's lease. No message is removed yet: `cleanup` does that when the session continues.
"""

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from msgspec.structs import replace

from weft.errors import InvalidInputError
from weft.model.diff import FileFate, Patch
from weft.model.message import MessageWithParts
from weft.model.session import RevertResult, SessionInfo, SessionRevert, get_weft_data, with_weft_data
from weft.session.revert_point import (
    WHOLE_REVERT,
    RevertScope,
    RevertTarget,
    cut_at_revert,
    cut_history,
    find_opencode_trees,
    get_patch_trees,
    get_point,
    list_foreign_files,
    list_patches,
    list_unrecorded_files,
    may_reach_outside,
)
from weft.snapshot.contract import Restoration, RestorePlan
from weft.undo.changes import all_within
from weft.undo.context import UndoContext
from weft.undo.recovery import recover_file_changes

MAX_DIFF_CHARS: Final = 256 << 10
OUTSIDE_CAUTION: Final = "undo does not cover what commands, MCP servers and plugins changed in ignored files, in nested repositories and outside the project"
NO_SNAPSHOTS_CAUTION: Final = "nor what they changed while no snapshots were taken"
_FILE_HEADER: Final = "diff --git "


async def revert(
    undo_context: UndoContext,
    session: SessionInfo,
    history: Sequence[MessageWithParts],
    to: RevertTarget,
    scope: RevertScope = WHOLE_REVERT,
) -> RevertResult:
    """Undo back to a message, or to a part of one. If the session is undone already, this may go further back or forward."""
    point = get_point(history, *to)
    cut = cut_history(history, point)
    _check_opencode_undo(session, history, cut.removed)
    undone = get_weft_data(session).undo
    plan = _make_plan(undo_context, session, [*list_patches(cut.removed), *undone], scope)
    others = _select([*list_unrecorded_files(cut.removed), *list_foreign_files(cut.removed)], scope)
    caution = ""
    if scope.files is None and may_reach_outside(cut.removed):
        caution = _describe_unseen(undo_context)
    if scope.dry_run:
        preview = await undo_context.snapshots.preview(plan)
        return RevertResult(session=session, files=_list_fates(preview, others), caution=caution)
    unsettled = await _settle_earlier(undo_context, plan)
    async with _restore(undo_context, plan) as restored:
        redo = undone if restored.undo is None else (*undone, restored.undo)
        mark = SessionRevert(
            message_id=point.message_id,
            part_id=point.part_id,
            snapshot=None if session.revert is None else session.revert.snapshot,
            diff=await _make_diff(undo_context, redo),
        )
        changed = await undo_context.update_session(
            session.id,
            list_patches(cut.kept),
            lambda stored: with_weft_data(
                replace(stored, revert=mark), replace(get_weft_data(stored), undo=redo, restored=plan.note)
            ),
        )
    return RevertResult(
        session=changed, files=_list_fates(restored, others), caution=_join(caution, unsettled)
    )


async def unrevert(
    undo_context: UndoContext,
    session: SessionInfo,
    history: Sequence[MessageWithParts],
    scope: RevertScope = WHOLE_REVERT,
) -> RevertResult:
    """Redo all that was undone. What the person changed meanwhile stays. A session that is not undone is returned unchanged.

    If OpenCode did the undo, the files come from its snapshots. Raise `SnapshotMissingError` if they are gone; the session then
    stays as it is, so that OpenCode can still redo it.
    """
    if session.revert is None:
        return RevertResult(session=session)
    cut = cut_at_revert(session.revert, history)
    undone = (
        *await _read_opencode_undo(undo_context, session, cut.removed, scope),
        *get_weft_data(session).undo,
    )
    plan = _make_plan(undo_context, session, undone, scope)
    foreign = _select(list_foreign_files(cut.removed), scope)
    if scope.dry_run:
        preview = await undo_context.snapshots.preview(plan)
        return RevertResult(session=session, files=_list_fates(preview, foreign))
    unsettled = await _settle_earlier(undo_context, plan)
    async with _restore(undo_context, plan) as restored:
        changed = await undo_context.update_session(
            session.id,
            list_patches(history),
            lambda stored: with_weft_data(
                replace(stored, revert=None), replace(get_weft_data(stored), undo=(), restored=plan.note)
            ),
        )
    released = undone if restored.undo is None else (*undone, restored.undo)
    await undo_context.release_trees(session.id, get_patch_trees(released), remaining=history)
    return RevertResult(session=changed, files=_list_fates(restored, foreign), caution=unsettled)


# --- undone by OpenCode ---


async def _read_opencode_undo(
    undo_context: UndoContext, session: SessionInfo, removed: Sequence[MessageWithParts], scope: RevertScope
) -> tuple[Patch, ...]:
    """Return the file changes that OpenCode made when it undid the session."""
    snapshot = None if session.revert is None else session.revert.snapshot
    trees = find_opencode_trees(removed)
    if snapshot is None or not trees or scope.files == ():
        return ()
    git_dir = os.path.join(undo_context.opencode_snapshots, session.project_id)
    return (await undo_context.snapshots.read_opencode_revert(git_dir, snapshot, trees),)


def _check_opencode_undo(
    session: SessionInfo, history: Sequence[MessageWithParts], removed: Sequence[MessageWithParts]
) -> None:
    """Raise `InvalidInputError` if messages would be redone without the files that OpenCode undid with them."""
    if session.revert is None or session.revert.snapshot is None:
        return
    if (
        not find_opencode_trees(cut_at_revert(session.revert, history).removed).keys()
        <= find_opencode_trees(removed).keys()
    ):
        raise InvalidInputError(
            "message",
            "OpenCode undid this session to a point before that",
            hint="redo it first: weft redo",
        )


# --- the plan ---


def _make_plan(
    undo_context: UndoContext, session: SessionInfo, patches: Iterable[Patch], scope: RevertScope
) -> RestorePlan:
    if scope.files == ():
        patches = ()
    selected = tuple(patches)
    if not all_within(undo_context.totals.root, selected):
        raise InvalidInputError(
            "session",
            f"it changed files outside of {undo_context.totals.root}",
            hint=f"undo it from its own directory: --dir {session.directory}",
        )
    return RestorePlan(session=session.id, patches=selected, files=scope.files, note=undo_context.mint.part())


async def _settle_earlier(undo_context: UndoContext, plan: RestorePlan) -> str:
    """Finish or roll back an earlier undo that was interrupted, such as by a full disk. Return what could not be settled, "" if nothing is left."""
    # Opening the directory tried this already, maybe hours ago. Space may have been freed since.
    unsettled = await recover_file_changes(undo_context) if plan.patches else ()
    return _join(*map(str, unsettled))


def _describe_unseen(undo_context: UndoContext) -> str:
    """Return which changes of commands and of tools of servers and plugins an undo does not know."""
    coverage = undo_context.snapshots.coverage()
    if coverage.extent != "none":
        return OUTSIDE_CAUTION
    return f"{OUTSIDE_CAUTION}, {NO_SNAPSHOTS_CAUTION} ({coverage.reason})"


def _join(*cautions: str) -> str:
    return "; ".join(each for each in cautions if each)


@asynccontextmanager
async def _restore(undo_context: UndoContext, plan: RestorePlan) -> AsyncIterator[Restoration]:
    """Restore the files. They stay restored if the body does not raise."""
    if not plan.patches:
        yield Restoration(session=plan.session, fates=(), note=plan.note)
        return
    async with undo_context.snapshots.restoring(plan) as restored:
        yield restored


def _select(fates: list[FileFate], scope: RevertScope) -> list[FileFate]:
    return fates if scope.files is None else [each for each in fates if each.file in scope.files]


def _list_fates(restored: Restoration, others: Iterable[FileFate]) -> tuple[FileFate, ...]:
    fates = {each.file: each for each in (*others, *restored.fates)}
    return tuple(fates[file] for file in sorted(fates))


async def _make_diff(undo_context: UndoContext, redo: Sequence[Patch]) -> str | None:
    """Return the changes since the session was first undone, as a unified diff. Screens list its files."""
    if not redo:
        return None
    patch = await undo_context.snapshots.fold(redo)
    text = await undo_context.snapshots.diff_text(patch.before, patch.after)
    return cut_diff(text) or None


def cut_diff(text: str, limit: int = MAX_DIFF_CHARS) -> str:
    """Cut a unified diff to a limit, at the end of a file."""
    if len(text) <= limit:
        return text
    end = text.rfind(f"\n{_FILE_HEADER}", 0, limit)
    return text[: end + 1]
