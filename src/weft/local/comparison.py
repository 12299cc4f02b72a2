"""Compare sessions: how each ended, what it changed, what it cost, and where they first differ."""

import asyncio
import os

from msgspec import Struct

from weft.errors import NotFoundError
from weft.local.step_checkout import list_session_steps
from weft.local.workspace_sources import WorkspaceSources
from weft.model.failure import AbortedFailure, BudgetFailure
from weft.model.message import AssistantMessage
from weft.model.session import CheckResult, SessionInfo, get_weft_data
from weft.model.spending import add_spent
from weft.model.trial import ComparedSession, Comparison, Outcome
from weft.project.checkout import find_top
from weft.run.runtime import Runtime
from weft.session.divergence import find_divergence
from weft.session.steps import SessionStep
from weft.session.totals import get_spending
from weft.worktree.git import WorktreeGit


class SessionChanges(Struct, frozen=True, kw_only=True):
    """What a session changed: added and removed lines by file."""

    lines: tuple[tuple[str, int, int], ...] = ()
    patch: str = ""
    tree: str = ""

    @property
    def additions(self) -> int:
        return sum(added for _, added, _ in self.lines)

    @property
    def deletions(self) -> int:
        return sum(removed for _, _, removed in self.lines)


async def compare_sessions(
    runtime: Runtime, sources: WorkspaceSources, sessions: list[SessionInfo]
) -> Comparison:
    """Return the sessions side by side, each with the place where it first differs from the first one."""
    steps = [await list_own_steps(runtime, session) for session in sessions]
    rows = [
        await _compare_session(runtime, sources, session, steps[index], steps[0] if index else None)
        for index, session in enumerate(sessions)
    ]
    return Comparison(sessions=tuple(rows), spent=add_spent(row.spent for row in rows))


async def list_own_steps(runtime: Runtime, session: SessionInfo) -> list[SessionStep]:
    """Return the steps that a session took itself, without those that a fork copied."""
    steps = await list_session_steps(runtime, session)
    return [step for step in steps if step.info.time.created >= session.time.created]


async def _compare_session(
    runtime: Runtime,
    sources: WorkspaceSources,
    session: SessionInfo,
    steps: list[SessionStep],
    first: list[SessionStep] | None,
) -> ComparedSession:
    running = await runtime.store.find_holder(session.id) is not None
    outcome, detail = find_outcome(steps, running=running)
    trial = get_weft_data(session).trial
    changes = await read_changes(runtime, sources, session)
    last = steps[-1].info if steps else None
    return ComparedSession(
        session=session.id,
        title=session.title,
        model=f"{last.provider_id}/{last.model_id}" if last is not None else "",
        agent=last.agent or last.mode if last is not None else "",
        worktree=trial.worktree if trial is not None else "",
        outcome=outcome,
        detail=detail,
        check=_find_check(session, changes),
        files=len(changes.lines),
        additions=changes.additions,
        deletions=changes.deletions,
        spent=(await get_spending(runtime.store, session)).tree,
        ms=_measure_time(steps, now=runtime.clock.now()) if steps else 0,
        divergence=None if first is None else find_divergence(first, steps, results=False),
        changed=tuple(path for path, _, _ in changes.lines),
    )


def find_outcome(steps: list[SessionStep], *, running: bool) -> tuple[Outcome, str]:
    """Return how a session ended, and why if it did not finish."""
    if running:
        return "running", ""
    if not steps:
        return "empty", "it has not begun"
    info: AssistantMessage = steps[-1].info
    message = str(getattr(getattr(info.error, "data", None), "message", "") or "")
    match info.error:
        case None if info.time.completed is None:
            return "aborted", "it was cut short"
        case None:
            return "finished", ""
        case BudgetFailure():
            return "stopped", message
        case AbortedFailure():
            return "aborted", message
        case _:
            return "failed", message


def _measure_time(steps: list[SessionStep], *, now: int) -> int:
    start = min(step.prompt.info.time.created if step.prompt else step.info.time.created for step in steps)
    return max(0, max(step.info.time.completed or now for step in steps) - start)


def _find_check(session: SessionInfo, changes: SessionChanges) -> CheckResult | None:
    """Return the last result of the check, if it is about the present files."""
    trial = get_weft_data(session).trial
    checked = trial.checked if trial is not None else None
    return checked if checked is not None and (not changes.tree or checked.tree == changes.tree) else None


async def read_changes(runtime: Runtime, sources: WorkspaceSources, session: SessionInfo) -> SessionChanges:
    """Return what a session changed: in the worktree of a trial everything, else what the session recorded."""
    trial = get_weft_data(session).trial
    if trial is not None:
        found = await asyncio.to_thread(_read_worktree_changes, sources, session, trial.base)
        if found is not None:
            return found
    diffs = await runtime.store.list_diff(session.id)
    return SessionChanges(lines=tuple((each.file, each.additions, each.deletions) for each in diffs))


def _read_worktree_changes(
    sources: WorkspaceSources, session: SessionInfo, base: str
) -> SessionChanges | None:
    """Return the changes in a worktree since its base, None if the worktree or the base is gone."""
    top = find_existing_top(session.directory)
    if top is None:
        return None
    git = WorktreeGit(sources.env, top)
    commit = git.find_commit(base)
    if commit is None:
        return None
    start, tree = git.get_tree(commit), git.capture(untracked=True)
    return SessionChanges(
        lines=tuple(git.count_lines(start, tree)), patch=git.make_patch(start, tree), tree=tree
    )


def find_existing_top(directory: str) -> str | None:
    """Return the top of the checkout that a directory is in, None if it is in none or is gone."""
    real = os.path.realpath(directory)
    # The parents of a directory that is gone may be in another checkout.
    return (find_top(real) or None) if os.path.isdir(real) else None


def get_top(session: SessionInfo) -> str:
    """Return the top of the checkout of a trial. Raise `NotFoundError` if it was removed."""
    top = find_existing_top(session.directory)
    if top is None:
        raise NotFoundError(
            "worktree", session.directory, hint=f"it was discarded; session {session.id} is still stored"
        )
    return top
