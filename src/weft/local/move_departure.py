"""Hand a session over to another server: hold it, pack it with its files and what undo needs, and mark that it has gone."""

import asyncio
import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from msgspec.structs import replace

from weft.errors import ConflictError, DirectoryError, WeftError
from weft.local.offline import OfflineSessions
from weft.local.undo import open_undo_context
from weft.model.diff import Patch
from weft.model.move import MOVE_FORMAT, MoveOffer, SessionDeparture
from weft.model.project import Place, get_root
from weft.model.session import SessionInfo, get_weft_data, with_weft_data
from weft.model.transfer import SessionExport
from weft.run.briefing import list_briefing_keys
from weft.session.lifecycle import refuse_workspace
from weft.session.remove import hold_leases
from weft.session.revert_point import get_patch_trees, list_patches
from weft.session.settle import to_settling_events
from weft.transfer.bundle import BundledWorkspace, BundleWriter
from weft.transfer.session_import import pack_session
from weft.undo.context import UndoContext
from weft.worktree.git import WorktreeGit

BLOCK_BYTES: Final = 1 << 20


class Departure:
    """A session that is held to be moved, with its descendants. Make one with `open_departure`."""

    def __init__(
        self, offline: OfflineSessions, family: list[SessionInfo], undo_context: UndoContext, place: Place
    ) -> None:
        self.family = family
        self.place = place
        self._offline = offline
        self._undo_context = undo_context

    @property
    def session(self) -> SessionInfo:
        return self.family[0]

    @property
    def departed(self) -> SessionDeparture | None:
        return get_weft_data(self.session).departed

    def now(self) -> int:
        return self._offline.clock.now()

    async def mark(self, departed: SessionDeparture | None) -> None:
        """Store where the sessions are, or None if they stay. All of them are marked before this returns."""
        for each in reversed(self.family):  # the topmost one last: it says whether all are marked
            await self._offline.journal.edit(
                each.id, lambda it: with_weft_data(it, replace(get_weft_data(it), departed=departed))
            )
        self.family[0] = await self._offline.store.get_session(self.session.id)

    async def pack(self, path: str, move: str) -> MoveOffer:
        """Write the sessions, the uncommitted work and what undo needs into a file. Return the offer for it.

        Raise `ConflictError` if something in the checkout cannot be moved.
        """
        exports = [await pack_session(self._offline.store, each.id) for each in self.family]
        patches = [
            patch
            for export in exports
            for patch in (*list_patches(export.messages), *get_weft_data(export.info).undo)
        ]
        git = WorktreeGit(self._offline.env, get_root(self.place))
        commit, paths = await asyncio.to_thread(_list_work, git, patches)
        snapshots = self._undo_context.snapshots
        trees = await snapshots.pack_files(paths)
        workspace = BundledWorkspace(
            directory=get_root(self.place),
            commit=commit,
            present=trees.present,
            absent=trees.absent,
            briefings=await self._read_briefings(),
        )
        with await asyncio.to_thread(open, path, "wb") as file:
            writer = BundleWriter(file)
            for export in exports:
                await asyncio.to_thread(writer.add_session, _without_local_data(export))
            await snapshots.read_objects([*trees, *sorted(get_patch_trees(patches))], writer.add_object)
            await asyncio.to_thread(writer.close, workspace=workspace)
        size, digest = await asyncio.to_thread(measure_file, path)
        return MoveOffer(
            move=move,
            format=MOVE_FORMAT,
            session=self.session.id,
            sessions=tuple(each.id for each in self.family),
            host=os.uname().nodename,
            directory=workspace.directory,
            commit=commit,
            size=size,
            sha256=digest,
        )

    async def _read_briefings(self) -> dict[str, Any]:
        """Return the stored briefings, so that models see the same beginning on the other server."""
        found: dict[str, Any] = {}
        for each in self.family:
            stored = [await self._offline.store.find_value(key) for key in list_briefing_keys(each)]
            briefing = next((value for value in stored if value is not None), None)
            if briefing is not None:
                found[each.id] = briefing
        return found


def make_move_id() -> str:
    return f"mov_{secrets.token_hex(13)}"


def measure_file(path: str) -> tuple[int, str]:
    """Return the size of a file and the SHA-256 of its content."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()


def _without_local_data(export: SessionExport) -> SessionExport:
    """Return the session without data that has a meaning only here: its owner, its share, and where it goes."""
    data = replace(get_weft_data(export.info), owner="", departed=None)
    return replace(export, info=with_weft_data(replace(export.info, share=None), data))


def _list_work(git: WorktreeGit, patches: Iterable[Patch]) -> tuple[str, list[bytes]]:
    """Return the commit, and the paths that differ from it or that the session changed although git ignores them."""
    commit = git.find_commit()
    if commit is None:
        raise DirectoryError(git.top, "the repository has no commit yet", hint="commit something first")
    changes = git.list_differences(git.get_tree(commit), git.capture(untracked=True))
    for change in changes:
        if change.is_submodule:
            raise ConflictError(
                "submodule",
                change.path,
                "has changes, which cannot be moved",
                hint="commit them, or put a repository that is no submodule elsewhere",
            )
    paths = {change.path for change in changes}
    ignored = git.list_ignored()
    for file in {file for patch in patches for file in patch.files}:
        path = os.path.relpath(file, git.top)
        if any(path == each or path.startswith(f"{each}/") for each in ignored):
            paths.add(path)
    return commit, sorted(os.fsencode(path) for path in paths)


def _refuse_unsettled(error: WeftError) -> None:
    """Raise the error of something that could not be settled: a session must not leave without all of its changes."""
    raise error


@asynccontextmanager
async def open_departure(offline: OfflineSessions, session: SessionInfo) -> AsyncIterator[Departure]:
    """Hold a session and its descendants. Settle what a run that died left open.

    Raise `SessionBusyError` if one of them runs, `DirectoryError` if the session works in no checkout of this machine, and
    `ConflictError` if it is a child, or in a git workspace.
    """
    if session.parent_id is not None:
        raise ConflictError(
            "session", session.id, "is a child session", hint=f"move its parent: {session.parent_id}"
        )
    refuse_workspace(session)
    if not await asyncio.to_thread(os.path.isdir, session.directory):
        raise DirectoryError(
            session.directory, "it is not on this machine", hint=f"the session {session.id} worked there"
        )
    async with AsyncExitStack() as stack:
        family = await hold_leases(offline.remover(), session, stack)
        undo_context = await stack.enter_async_context(
            open_undo_context(offline, session, warn=_refuse_unsettled)
        )
        for each in family:
            if events := to_settling_events(await offline.store.list_messages(each.id)):
                await offline.journal.commit(*events)
        family = [await offline.store.get_session(each.id) for each in family]
        place = (await replace(offline, directory=session.directory).maker()).place
        if place.worktree == "/":
            raise DirectoryError(
                session.directory,
                "it is not in a git repository, so its files cannot be moved",
                hint="weft export --bundle FILE takes the conversation along",
            )
        yield Departure(offline, family, undo_context, place)
