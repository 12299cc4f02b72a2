"""The snapshot contract on a separate git repository. Blocking work runs in threads."""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from weft.errors import GitError, StoreError
from weft.host.files import Disk, hold_lock
from weft.host.now import now
from weft.host.tasks import open_tasks, run_to_completion
from weft.model.diff import FileDiff, Patch, Tree
from weft.model.ids import SessionID
from weft.snapshot.contract import (
    Coverage,
    FileTrees,
    PackedObject,
    RecoveredPatch,
    RecoveryReport,
    Restoration,
    RestorePlan,
    SnapshotLimits,
    SnapshotReader,
    Snapshots,
)
from weft.snapshot.entry import FileEntry
from weft.snapshot.location import SnapshotSite, find_scan_obstacle, locate_snapshots

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.host.witness import DeathWitness
    from weft.snapshot.tracker import FileTracker
    from weft.snapshot.watch import CallWatcher, WatchedCall

PULSE_SECONDS: Final = 1.0
HOUR_NS: Final = 60 * 60 * 1_000_000_000
DEFAULT_LIMITS: Final = SnapshotLimits()
SWITCHED_OFF: Final = "snapshots are switched off"
FIRST_SCAN_TOO_SLOW: Final = "the first scan of the files took too long"


@asynccontextmanager
async def open_snapshots(
    site: SnapshotSite,
    environ: Mapping[str, str],
    limits: SnapshotLimits = DEFAULT_LIMITS,
    *,
    off: bool = False,
) -> AsyncIterator[Snapshots]:
    """Open the snapshots of one directory. Nothing is read or written yet. Leaving ends running work.

    If `off`, nothing new is recorded, but earlier snapshots can still be restored.
    """
    async with open_tasks() as tasks:
        snapshots = GitSnapshots(site, environ, limits, tasks, off=off)
        try:
            yield snapshots
        finally:
            await run_to_completion(snapshots.close())


class GitSnapshots:
    """The snapshots of a directory, used by this process. Create it with `open_snapshots`."""

    def __init__(
        self,
        site: SnapshotSite,
        environ: Mapping[str, str],
        limits: SnapshotLimits,
        tasks: asyncio.TaskGroup,
        *,
        off: bool,
    ) -> None:
        self._site = site
        self._environ = environ
        self._limits = limits
        self._tasks = tasks
        self._place = locate_snapshots(site.base, site.project, site.root)
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._live = f"{self._place.live}/{self._name}"
        self._made_tracker: FileTracker | None = None
        self._made_watcher: CallWatcher | None = None
        self._locks = ExitStack()
        self._enter_lock = threading.Lock()
        self._entered = False
        self._witness: DeathWitness | None = None
        self._first_scan: asyncio.Task[None] | None = None
        self._off_reason = SWITCHED_OFF if off else ""
        self._partial_reason = find_scan_obstacle(site, self._place)

    # What tracks files is loaded when there is something to track. It is made on the event loop, so that there is only one.

    @property
    def _tracker(self) -> FileTracker:
        if self._made_tracker is None:
            from weft.snapshot.tracker import FileTracker  # noqa: PLC0415  an open directory without runs tracks nothing

            self._made_tracker = FileTracker(self._site, self._environ, self._limits, self._name)
        return self._made_tracker

    @property
    def _watcher(self) -> CallWatcher:
        if self._made_watcher is None:
            from weft.snapshot.watch import CallWatcher  # noqa: PLC0415  an answer without tool calls changes nothing

            self._made_watcher = CallWatcher(self._tracker, self._live)
        return self._made_watcher

    def coverage(self) -> Coverage:
        if self._off_reason:
            return Coverage(extent="none", reason=self._off_reason)
        if self._partial_reason:
            return Coverage(extent="announced", reason=self._partial_reason)
        return Coverage(extent="all")

    async def close(self) -> None:
        if self._made_tracker is not None:
            self._made_tracker.plumbing.stop()
        if self._first_scan is not None:
            await asyncio.wait([self._first_scan])
        if self._entered and (self._made_watcher is None or self._made_watcher.has_stored_all):
            await self._dismiss_witness()
            await asyncio.to_thread(Disk().remove, self._live)
        self._locks.close()

    # --- tracking ---

    def begin(self) -> None:
        if self._first_scan is None and not self._off_reason and not self._partial_reason:
            self._first_scan = self._tasks.create_task(self._scan_first())

    async def _scan_first(self) -> None:
        try:
            await self._enter()
            await asyncio.to_thread(self._tracker.scan_first)
        except (GitError, OSError) as error:
            self._partial_reason = f"the files could not be scanned: {error}"

    async def _enter(self) -> None:
        """Lock the directory of this process before writing to it, so that others see that the process is alive."""
        await asyncio.to_thread(self._lock, self._tracker)

    def _lock(self, tracker: FileTracker) -> None:
        with self._enter_lock:
            if not self._entered:
                tracker.make()
                self._locks.enter_context(hold_lock(f"{self._live}/lock"))
                with suppress(OSError):  # without it, more is in doubt after a crash
                    self._witness = tracker.make_witness(self._live)
                    self._locks.callback(self._witness.close)
                self._entered = True

    async def _wait_for_scan(self) -> str:
        """Wait for the first scan. Return why the files cannot be scanned, "" if they can."""
        self.begin()
        if self._first_scan is not None and not self._first_scan.done():
            await asyncio.wait([self._first_scan], timeout=self._limits.wait_seconds)
            if not self._first_scan.done():
                return FIRST_SCAN_TOO_SLOW
        return self._partial_reason

    @asynccontextmanager
    async def watch(
        self, session: SessionID, files: Sequence[str] | None = None, call: str = ""
    ) -> AsyncIterator[None]:
        watched = await self._open_call(session, files, call)
        pulse = self._tasks.create_task(self._show_life())
        try:
            yield
        finally:
            pulse.cancel()
            if watched is not None:
                await run_to_completion(self._close_call(watched))

    async def _show_life(self) -> None:
        """Keep the time at which this process was last alive up to date, while a call may change files."""
        while self._witness is not None:
            await asyncio.sleep(PULSE_SECONDS)
            if (witness := self._witness) is not None:  # a concurrent call may have failed to be recorded
                await asyncio.to_thread(witness.show_life)

    async def _dismiss_witness(self) -> None:
        witness, self._witness = self._witness, None
        if witness is not None:
            await asyncio.to_thread(witness.dismiss)

    async def _open_call(
        self, session: SessionID, files: Sequence[str] | None, call: str
    ) -> WatchedCall | None:
        """Return None if nothing can be recorded. The call runs all the same."""
        if self._off_reason:
            return None
        try:
            await self._enter()
            if files is not None:
                return await self._watcher.open_some(session, files, call)
            return await self._watcher.open_all(session, await self._wait_for_scan(), call)
        except OSError as error:
            self._off_reason = f"snapshots cannot be written ({error.strerror or error})"
            return None

    async def _close_call(self, call: WatchedCall) -> None:
        try:
            if call.any:
                await self._watcher.close_all(call)
            else:
                await self._watcher.close_some(call)
        except OSError as error:
            self._off_reason = f"snapshots cannot be written ({error.strerror or error})"
            # The call stays open in the ledger. What changes from now on until this process ends is not the call's.
            await self._dismiss_witness()

    async def take(self, session: SessionID) -> tuple[Patch, ...]:
        if self._made_watcher is None:
            return ()
        return await run_to_completion(self._made_watcher.take(session))

    async def mark_stored(self, session: SessionID) -> None:
        if self._made_watcher is not None:
            await self._made_watcher.mark_stored(session)

    async def track(self, session: SessionID) -> Tree | None:
        del session  # all sessions see the same files
        if self._off_reason or await self._wait_for_scan() or await self._watcher.scan():
            return None
        return await asyncio.to_thread(self._tracker.write_tree)

    async def changes(self, since: Tree, until: Tree | None = None) -> Patch:
        if until is None:
            until = await self.track(SessionID("")) or since
        return await asyncio.to_thread(self._tracker.compare_trees, since, until)

    # --- showing ---

    async def fold(self, patches: Sequence[Patch]) -> Patch:
        return await asyncio.to_thread(self._tracker.fold, patches)

    async def diff(
        self, before: Tree, after: Tree, files: Sequence[str] | None = None
    ) -> tuple[FileDiff, ...]:
        return await asyncio.to_thread(self._tracker.diffs.list_diffs, before, after, files)

    async def diff_text(self, before: Tree, after: Tree) -> str:
        return await asyncio.to_thread(self._tracker.diffs.make_text, before, after)

    # --- reading ---

    async def list_files(self, tree: Tree) -> Mapping[bytes, FileEntry]:
        return (await asyncio.to_thread(self._tracker.objects.read_state, tree)).files

    async def read_contents(self, oids: Collection[str]) -> dict[str, bytes]:
        objects = self._tracker.objects
        return await asyncio.to_thread(lambda: dict(objects.read(oids)))

    def open_archive(self, root: str) -> SnapshotReader:
        from weft.snapshot.archive import SnapshotArchive  # noqa: PLC0415  few runs read what they stored

        return SnapshotArchive(self._site.base, self._site.project, root, self._environ)

    # --- restoring ---

    async def read_opencode_revert(self, git_dir: str, snapshot: str, trees: Mapping[str, str]) -> Patch:
        await asyncio.to_thread(self._tracker.make)
        return await asyncio.to_thread(self._tracker.read_opencode_revert, git_dir, snapshot, trees)

    async def preview(self, plan: RestorePlan) -> Restoration:
        return await asyncio.to_thread(self._tracker.restorer.preview, plan)

    async def restore(self, plan: RestorePlan) -> Restoration:
        async with self.restoring(plan) as restored:
            return restored

    @asynccontextmanager
    async def restoring(self, plan: RestorePlan) -> AsyncIterator[Restoration]:
        await asyncio.to_thread(self._tracker.make)
        stack = ExitStack()
        restoring = self._tracker.restorer.restoring(plan)
        try:
            # If we are cancelled meanwhile, the files are restored when that is raised.
            yield await run_to_completion(asyncio.to_thread(stack.enter_context, restoring))
        except BaseException as error:
            await run_to_completion(
                asyncio.to_thread(stack.__exit__, type(error), error, error.__traceback__)
            )
            raise
        await run_to_completion(asyncio.to_thread(stack.close))

    async def recover(self, should_stand: Callable[[SessionID, str], Awaitable[bool]]) -> RecoveryReport:
        finished: list[Restoration] = []
        rolled_back: list[Restoration] = []
        interrupted = await self._find_interrupted()
        if interrupted is not None:
            finish = await should_stand(*interrupted)
            restored = await asyncio.to_thread(self._tracker.restorer.recover, finish=finish)
            if restored is not None:
                (finished if finish else rolled_back).append(restored)
        patches = await run_to_completion(self._recover_patches())
        return RecoveryReport(
            finished=tuple(finished), rolled_back=tuple(rolled_back), patches=tuple(patches)
        )

    async def _find_interrupted(self) -> tuple[SessionID, str] | None:
        """Return session and note of a restore that a dead process began."""
        if not await asyncio.to_thread(os.path.exists, self._place.intent):
            return None
        return await asyncio.to_thread(self._tracker.restorer.find_interrupted)

    async def has_unfinished_restore(self, session: SessionID) -> bool:
        interrupted = await self._find_interrupted()
        return interrupted is not None and interrupted[0] == session

    async def _recover_patches(self) -> list[RecoveredPatch]:
        patches: list[RecoveredPatch] = []
        await asyncio.to_thread(self._remove_old_temps)
        for directory in await asyncio.to_thread(self._list_process_directories):
            from weft.snapshot.recovery import recover_process  # noqa: PLC0415  other processes are rare

            stack = ExitStack()
            ledgers = await asyncio.to_thread(stack.enter_context, recover_process(self._tracker, directory))
            if ledgers:
                await self._enter()
            for ledger in ledgers:
                # Save them in our own ledger before those of the dead process are removed.
                await self._watcher.adopt(ledger.session, ledger.patches, ledger.call)
                patches += [
                    RecoveredPatch(session=ledger.session, patch=patch, call=ledger.call)
                    for patch in ledger.patches
                ]
            await asyncio.to_thread(stack.close)
        return patches

    def _remove_old_temps(self) -> None:
        """Remove temporary files that are older than an hour."""
        if os.path.isdir(self._place.objects):
            from weft.snapshot.objects import remove_temps  # noqa: PLC0415  not every directory has snapshots

            old = now() * 1_000_000 - HOUR_NS
            remove_temps(self._place, older_than=lambda found: found.st_mtime_ns < old)

    def _list_process_directories(self) -> list[str]:
        """Return the directories of other processes, running or dead."""
        with suppress(FileNotFoundError):
            names = sorted(os.listdir(self._place.live))
            return [f"{self._place.live}/{name}" for name in names if name != self._name]
        return []

    # --- moving to another machine ---

    async def pack_files(self, paths: Collection[bytes]) -> FileTrees:
        from weft.snapshot.pack import pack_files  # noqa: PLC0415  few sessions are moved

        return await asyncio.to_thread(pack_files, self._tracker, paths)

    async def read_objects(
        self,
        trees: Sequence[Tree],
        receive: Callable[[PackedObject], None],
        *,
        known: Collection[str] = frozenset(),
    ) -> None:
        from weft.snapshot.pack import read_objects  # noqa: PLC0415  few sessions are moved

        def read_all() -> None:
            for each in read_objects(self._tracker, trees, known):
                receive(each)

        await asyncio.to_thread(read_all)

    async def add_objects(self, objects: Iterable[PackedObject], where: str) -> None:
        from weft.snapshot.pack import add_objects  # noqa: PLC0415  few sessions are moved

        await run_to_completion(asyncio.to_thread(add_objects, self._tracker, objects, where))

    async def plan_overlay(self, trees: FileTrees) -> Patch:
        from weft.snapshot.pack import plan_overlay  # noqa: PLC0415  few sessions are moved

        return await asyncio.to_thread(plan_overlay, self._tracker, trees)

    # --- pins ---

    async def pin(self, session: SessionID, trees: Sequence[Tree]) -> None:
        from weft.snapshot.objects import pin_trees  # noqa: PLC0415  only changed files are pinned

        try:
            await asyncio.to_thread(pin_trees, self._place, session, trees)
        except OSError as error:
            raise StoreError(
                f"the snapshots of files cannot be written ({error.strerror or error})",
                hint="free some space and try again",
            ) from error

    async def unpin(self, session: SessionID, trees: Sequence[Tree]) -> None:
        from weft.snapshot.objects import unpin_trees  # noqa: PLC0415  only changed files are pinned

        await asyncio.to_thread(unpin_trees, self._place, session, trees)

    async def release(self, session: SessionID) -> None:
        from weft.snapshot.objects import release_session  # noqa: PLC0415  only changed files are pinned

        await asyncio.to_thread(release_session, self._place, session)
