"""The snapshot contract on a git repository of our own, carried out in threads."""

import asyncio
import os
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Final

from weft.errors import GitError
from weft.host.files import Disk, locked
from weft.host.tasks import open_tasks, undivided
from weft.model.diff import FileDiff, Patch, Tree
from weft.model.ids import SessionID
from weft.snapshot.contract import Coverage, Limits, Plan, Recovered, Restoration, Snapshots
from weft.snapshot.objects import pin, release, unpin
from weft.snapshot.recovery import list_dead, rescuing, sweep
from weft.snapshot.watch import Watching, Window
from weft.snapshot.works import Site, Works

USUAL: Final = Limits()
OFF: Final = "snapshots are switched off"
SLOW: Final = "it took too long to look through the files for the first time"


@asynccontextmanager
async def open_snapshots(
    site: Site, environ: Mapping[str, str], limits: Limits = USUAL, *, off: bool = False
) -> AsyncIterator[Snapshots]:
    """Snapshots of one directory. Nothing is read or written yet; leaving ends what runs.

    Switched off, nothing new is kept; what was kept before can still be taken back.
    """
    async with open_tasks() as tasks:
        shadow = Shadow(Works(site, environ, limits, _name()), limits, tasks, off=off)
        try:
            yield shadow
        finally:
            await undivided(shadow.close())


class Shadow:
    """One process's hold on the snapshots of a directory. Make it with `open_snapshots`."""

    def __init__(self, works: Works, limits: Limits, tasks: asyncio.TaskGroup, *, off: bool) -> None:
        self._works = works
        self._limits = limits
        self._tasks = tasks
        self._live = os.path.dirname(works.scanner.index)
        self._watching = Watching(works, self._live)
        self._held = ExitStack()
        self._entering = threading.Lock()
        self._entered = False
        self._base: asyncio.Task[None] | None = None
        self._none = OFF if off else ""
        self._some = works.why_not_all()

    def coverage(self) -> Coverage:
        if self._none:
            return Coverage(extent="none", reason=self._none)
        if self._some:
            return Coverage(extent="announced", reason=self._some)
        return Coverage(extent="all")

    async def close(self) -> None:
        self._works.plumbing.stop()
        if self._base is not None:
            await asyncio.wait([self._base])
        if self._entered and self._watching.is_settled:
            await asyncio.to_thread(Disk().remove, self._live)
        self._held.close()

    # --- what is changed ---

    def begin(self) -> None:
        if self._base is None and not self._none and not self._some:
            self._base = self._tasks.create_task(self._first())

    async def _first(self) -> None:
        try:
            await asyncio.to_thread(self._enter)
            await asyncio.to_thread(self._works.first)
        except (GitError, OSError) as error:
            self._some = f"the files could not be looked through: {error}"

    def _enter(self) -> None:
        """Be known to be alive, before anything is left where others look for what the dead left."""
        with self._entering:
            if not self._entered:
                self._works.make()
                self._held.enter_context(locked(f"{self._live}/lock"))
                self._entered = True

    async def _blind(self) -> str:
        """Wait for the first look. Gives why all files cannot be seen, "" if they can."""
        self.begin()
        if self._base is not None and not self._base.done():
            await asyncio.wait([self._base], timeout=self._limits.wait_seconds)
            if not self._base.done():
                return SLOW
        return self._some

    @asynccontextmanager
    async def watch(self, session: SessionID, files: Sequence[str] | None = None) -> AsyncIterator[None]:
        window = await self._open(session, files)
        try:
            yield
        finally:
            if window is not None:
                await undivided(self._shut(window))

    async def _open(self, session: SessionID, files: Sequence[str] | None) -> Window | None:
        """None if nothing can be kept: that is no reason not to work."""
        if self._none:
            return None
        try:
            await asyncio.to_thread(self._enter)
            if files is not None:
                return await self._watching.open_some(session, files)
            return await self._watching.open_all(session, await self._blind())
        except OSError as error:
            self._none = f"snapshots cannot be written: {error}"
            return None

    async def _shut(self, window: Window) -> None:
        try:
            if window.any:
                await self._watching.close_all(window)
            else:
                await self._watching.close_some(window)
        except OSError as error:
            self._none = f"snapshots cannot be written: {error}"

    async def take(self, session: SessionID) -> tuple[Patch, ...]:
        return await undivided(self._watching.take(session))

    async def stored(self, session: SessionID) -> None:
        await self._watching.stored(session)

    async def track(self, session: SessionID) -> Tree | None:
        del session  # all see the same files
        if self._none or await self._blind() or await self._watching.look():
            return None
        return await asyncio.to_thread(self._works.tree)

    async def changes(self, since: Tree, until: Tree | None = None) -> Patch:
        if until is None:
            until = await self.track(SessionID("")) or since
        return await asyncio.to_thread(self._works.changes, since, until)

    # --- looking at it ---

    async def fold(self, patches: Sequence[Patch]) -> Patch:
        return await asyncio.to_thread(self._works.fold, patches)

    async def diff(
        self, before: Tree, after: Tree, files: Sequence[str] | None = None
    ) -> tuple[FileDiff, ...]:
        return await asyncio.to_thread(self._works.diffs.between, before, after, files)

    async def diff_text(self, before: Tree, after: Tree, files: Sequence[str] | None = None) -> str:
        return await asyncio.to_thread(self._works.diffs.text, before, after, files)

    # --- taking it back ---

    async def borrow(self, git_dir: str, snapshot: str, left: Mapping[str, str]) -> Patch:
        await asyncio.to_thread(self._works.make)
        return await asyncio.to_thread(self._works.borrow, git_dir, snapshot, left)

    async def preview(self, plan: Plan) -> Restoration:
        return await asyncio.to_thread(self._works.restorer.preview, plan)

    async def restore(self, plan: Plan) -> Restoration:
        async with self.restoring(plan) as restored:
            return restored

    @asynccontextmanager
    async def restoring(self, plan: Plan) -> AsyncIterator[Restoration]:
        await asyncio.to_thread(self._works.make)
        held = ExitStack()
        restoring = self._works.restorer.restoring(plan)
        restored = await undivided(asyncio.to_thread(held.enter_context, restoring))
        try:
            yield restored
        except BaseException as error:
            await undivided(asyncio.to_thread(held.__exit__, type(error), error, error.__traceback__))
            raise
        await undivided(asyncio.to_thread(held.close))

    async def recover(self, wanted: Callable[[SessionID, str], Awaitable[bool]]) -> Recovered:
        finished: list[Restoration] = []
        rolled_back: list[Restoration] = []
        begun = await asyncio.to_thread(self._works.restorer.interrupted)
        if begun is not None:
            finish = await wanted(*begun)
            restored = await asyncio.to_thread(self._works.restorer.recover, finish=finish)
            if restored is not None:
                (finished if finish else rolled_back).append(restored)
        patches = await undivided(self._rescue())
        return Recovered(finished=tuple(finished), rolled_back=tuple(rolled_back), patches=tuple(patches))

    async def is_unsettled(self, session: SessionID) -> bool:
        begun = await asyncio.to_thread(self._works.restorer.interrupted)
        return begun is not None and begun[0] == session

    async def _rescue(self) -> list[tuple[SessionID, Patch]]:
        patches: list[tuple[SessionID, Patch]] = []
        await asyncio.to_thread(sweep, self._works)
        for directory in await asyncio.to_thread(list_dead, self._works, os.path.basename(self._live)):
            held = ExitStack()
            await asyncio.to_thread(self._enter)
            found = await asyncio.to_thread(held.enter_context, rescuing(self._works, directory))
            for each in found:
                # Ours to tell from now on, before the notes of the dead are gone.
                await self._watching.adopt(each.session, each.patches)
                patches += [(each.session, patch) for patch in each.patches]
            await asyncio.to_thread(held.close)
        return patches

    # --- keeping it ---

    async def pin(self, session: SessionID, trees: Sequence[Tree]) -> None:
        await asyncio.to_thread(pin, self._works.place, session, trees)

    async def unpin(self, session: SessionID, trees: Sequence[Tree]) -> None:
        await asyncio.to_thread(unpin, self._works.place, session, trees)

    async def release(self, session: SessionID) -> None:
        await asyncio.to_thread(release, self._works.place, session)


def _name() -> str:
    return f"{os.getpid()}-{secrets.token_hex(4)}"
