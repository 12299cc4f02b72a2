"""A scratch checkout with the files of a session as they were after any of its changes.

Files that the session changed come from its snapshots. All others come from the commit that was checked out when it began;
where the person had other contents, and has not touched them since, from the checkout.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager

from msgspec import Struct

from weft.errors import ConflictError, DirectoryError, GitError, SnapshotMissingError
from weft.host.tasks import run_to_completion
from weft.local.undo import make_undo_settings, open_undo_snapshots
from weft.local.workspace_sources import WorkspaceSources
from weft.local.worktrees import EnteredWorktree, run_silently
from weft.model.project import Place, get_root
from weft.model.session import SessionInfo
from weft.run.runtime import Runtime
from weft.session.revert_point import cut_at_revert, list_unrecorded_files
from weft.session.steps import SessionStep, list_steps
from weft.snapshot.contract import Snapshots
from weft.snapshot.entry import FileEntry
from weft.trust.decision import is_trusted
from weft.undo.step_files import FileStates, StepFiles, read_contents, read_step_files
from weft.worktree.git import WorktreeGit
from weft.worktree.repository import Worktree, WorktreeRepository, get_repository
from weft.worktree.scratch import (
    ScratchCheckout,
    ScratchFile,
    ScratchFiles,
    list_names,
    open_scratch,
    read_present_files,
)


class RecordedSession(Struct, frozen=True, kw_only=True):
    """A session with its steps, and the files that they changed. `root` is the top of the checkout in which it worked."""

    session: SessionInfo
    root: str
    steps: tuple[SessionStep, ...]
    files: StepFiles


class StepCheckout:
    """A scratch checkout that can be filled with the files after any change of a session."""

    def __init__(
        self,
        scratch: ScratchCheckout,
        recorded: RecordedSession,
        snapshots: Snapshots,
        present: ScratchFiles,
        notes: tuple[str, ...],
    ) -> None:
        self.recorded = recorded
        self.root = scratch.directory
        self.notes = notes
        self._scratch = scratch
        self._snapshots = snapshots
        self._present = present

    @property
    def directory(self) -> str:
        """The directory that corresponds to that of the session."""
        path = os.path.normpath(
            os.path.join(self.root, os.path.relpath(self.recorded.session.directory, self.recorded.root))
        )
        return path if os.path.isdir(path) and path.startswith(self.root) else self.root

    async def fill(self, place: int) -> None:
        """Set the files to those after the changes up to a place; 0 is before the first."""
        states = self.recorded.files.get_after(place)
        layer = to_scratch_files(states, await read_contents(self._snapshots, states.values()))
        await run_to_completion(asyncio.to_thread(self._scratch.fill, self._present, layer))

    async def prepare(self, place: Place, sources: WorkspaceSources) -> None:
        """Run the start command of the project, as in every new worktree, and keep what it installs in ignored files."""
        commands, paths = place.project.commands, sources.paths
        if commands is not None and commands.start:
            trusted = await asyncio.to_thread(is_trusted, paths, sources.env, place.worktree, place.directory)
            if trusted:
                worktree = Worktree(name=os.path.basename(self.root), branch="", directory=self.root)
                await run_silently(
                    EnteredWorktree(worktree=worktree, directory=self.root), commands.start, sources.env
                )
        await asyncio.to_thread(self._scratch.mark_prepared)


def to_scratch_files(states: FileStates, contents: Mapping[str, bytes]) -> ScratchFiles:
    """Return files to write into a checkout. `contents` are those that the entries name."""
    return {
        path: None if entry is None else _to_scratch_file(entry, contents) for path, entry in states.items()
    }


def _to_scratch_file(entry: FileEntry, contents: Mapping[str, bytes]) -> ScratchFile:
    return ScratchFile(
        content=contents[entry.oid],
        permissions=entry.permissions,
        link=entry.is_link,
    )


def get_place_repository(place: Place, sources: WorkspaceSources) -> WorktreeRepository:
    """Return the repository of a place. Raise `DirectoryError` if there is none, or it has no commit."""
    top = "" if place.project.vcs is None else place.worktree
    return get_repository(place.project.id, top, place.directory, sources.paths, sources.env)


def is_same_directory(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def find_session_root(session: SessionInfo, steps: list[SessionStep]) -> str:
    """Return the top of the checkout in which a session worked."""
    roots = [step.info.path.root for step in steps if step.info.path is not None]
    root = next((root for root in roots if root not in ("", "/")), session.directory)
    return os.path.realpath(root)


@asynccontextmanager
async def open_session_snapshots(
    runtime: Runtime, sources: WorkspaceSources, root: str
) -> AsyncIterator[Snapshots]:
    """Open the snapshots of the checkout in which a session worked, which may be gone."""
    if is_same_directory(get_root(runtime.place), root) or not sources.paths.data:
        yield runtime.undo_context.snapshots
        return
    settings = make_undo_settings(sources.paths, sources.env, sources.store)
    place = Place(project=runtime.place.project, directory=root, worktree=root)
    async with open_undo_snapshots(settings, place) as snapshots:
        yield snapshots


async def read_recorded(
    session: SessionInfo, snapshots: Snapshots, steps: list[SessionStep]
) -> RecordedSession:
    """Return a session with the files of its steps. Raise `ConflictError` if its snapshots are missing."""
    history = [step.message for step in steps]
    unrecorded = list_unrecorded_files(history)
    if unrecorded and not any(step.changes for step in steps):
        names = list_names(each.file for each in unrecorded)
        raise ConflictError(
            "session",
            session.id,
            f"changed files, but there are no snapshots of them: {names}",
            hint="snapshots were switched off, or another program ran it",
        )
    try:
        files = await read_step_files(snapshots, steps)
    except (SnapshotMissingError, GitError) as error:
        raise ConflictError(
            "session",
            session.id,
            "cannot be restored: its snapshots are gone",
            hint="they were removed with the session or by weft storage gc, or are on another machine",
        ) from error
    return RecordedSession(
        session=session, root=find_session_root(session, steps), steps=tuple(steps), files=files
    )


async def list_session_steps(runtime: Runtime, session: SessionInfo) -> list[SessionStep]:
    """Return the steps of a session that were not undone."""
    await runtime.journal.flush()
    history = await runtime.store.list_messages(session.id)
    return list_steps(cut_at_revert(session.revert, history).kept)


def check_project(runtime: Runtime, session: SessionInfo) -> None:
    """Raise `ConflictError` if a session belongs to another repository."""
    if session.project_id != runtime.place.project.id:
        raise ConflictError(
            "session",
            session.id,
            "belongs to another repository",
            hint=f"run it there: --dir {session.directory}",
        )


@asynccontextmanager
async def open_step_checkout(
    runtime: Runtime, sources: WorkspaceSources, session: SessionInfo
) -> AsyncIterator[StepCheckout]:
    """Open a scratch checkout for the files of a session. It is removed at the end."""
    check_project(runtime, session)
    repository = await asyncio.to_thread(get_place_repository, runtime.place, sources)
    steps = await list_session_steps(runtime, session)
    root = find_session_root(session, steps)
    async with open_session_snapshots(runtime, sources, root) as snapshots:
        recorded = await read_recorded(session, snapshots, steps)
        start = steps[0].info.time.created if steps else session.time.created
        git = repository.checkouts
        if await asyncio.to_thread(os.path.isdir, root):
            git = WorktreeGit(sources.env, root)
        commit = await asyncio.to_thread(git.find_commit_at, start // 1000)
        if commit is None:
            raise DirectoryError(
                repository.top,
                "the commit of that time is not in the repository any more",
                hint="git fetch may bring it back",
            )
        present, changed = await asyncio.to_thread(_read_present, git, commit, start, recorded)
        notes = (
            [f"taken from commit {commit[:12]}, because they changed since: {list_names(changed)}"]
            if changed
            else []
        )
        notes += _list_uncovered(recorded)
        with ExitStack() as stack:
            # Not cancellable: a half-made checkout would have nobody to remove it.
            scratch = await run_to_completion(
                asyncio.to_thread(stack.enter_context, open_scratch(repository, commit))
            )
            try:
                yield StepCheckout(scratch, recorded, snapshots, present, tuple(notes))
            finally:
                await run_to_completion(asyncio.to_thread(stack.close))


def _read_present(
    git: WorktreeGit, commit: str, start: int, recorded: RecordedSession
) -> tuple[ScratchFiles, list[str]]:
    if os.path.realpath(git.top) != recorded.root:  # the session worked in a checkout that is gone
        return {}, []
    touched = {os.fsdecode(change.path) for change in recorded.files.changes}
    return read_present_files(git, commit, until=start, is_excluded=touched.__contains__)


def _list_uncovered(recorded: RecordedSession) -> list[str]:
    """Return a note about files that changed without a snapshot. One that another call of the step recorded is known after all."""
    root = os.fsencode(recorded.root) + b"/"
    known = {(change.step, os.fsdecode(root + change.path)) for change in recorded.files.changes}
    files = dict.fromkeys(
        each.file
        for step, uncovered in recorded.files.uncovered.items()
        for each in uncovered
        if (step, each.file) not in known
    )
    return [f"not recorded, so not restored: {list_names(files)}"] if files else []
