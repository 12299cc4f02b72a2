"""Take over sessions from other servers: receive a bundle, check it, and store its sessions and files, all or nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Generator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from weft.errors import (
    BundleError,
    ConflictError,
    DirectoryError,
    InvalidInputError,
    NotFoundError,
    StoreError,
    UnreadableError,
    UnsupportedError,
)
from weft.host.files import make_directory, read_bytes, try_lock, write_atomic
from weft.host.tasks import run_to_completion
from weft.local.move_departure import measure_file
from weft.local.undo import UndoSettings, open_undo_snapshots
from weft.local.workspace_sources import WorkspaceSources
from weft.model.diff import Tree
from weft.model.event import Durable
from weft.model.ids import SessionID, check_file_name, check_new_id
from weft.model.move import (
    MOVE_FORMAT,
    PIECE_BYTES,
    MoveOffer,
    MovePiece,
    MoveProgress,
    MoveResult,
    SessionArrival,
)
from weft.model.project import get_root
from weft.model.session import get_weft_data, with_weft_data
from weft.model.transfer import SessionExport
from weft.model.wire import decode, encode
from weft.run.briefing import list_briefing_keys
from weft.session.revert_point import get_patch_trees, list_patches
from weft.snapshot.contract import FileTrees, RestorePlan, SnapshotLimits
from weft.snapshot.pack import MAX_MOVED_FILE_BYTES
from weft.transfer.bundle import MAX_TOTAL_BYTES, Bundle, BundledWorkspace, open_bundle
from weft.transfer.rebind import Rebind, rebind_export
from weft.transfer.session_import import list_replacing_events, pack_session
from weft.undo.context import UndoContext
from weft.undo.recovery import recover_file_changes
from weft.worktree.git import WorktreeGit
from weft.worktree.scratch import list_names

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.run.runtime import Runtime

MAX_SESSIONS: Final = 10_000
MAX_OFFER_BYTES: Final = 4 << 20
# How long the bundle of a move that nobody finishes is kept.
MAX_STAGED_MS: Final = 7 * 24 * 60 * 60 * 1000
# Room for the bundle, for its objects, and for the files.
DISK_FACTOR: Final = 3
LOCK_WAIT_SECONDS: Final = 0.1
NOTHING_CHANGED: Final = "nothing was changed"


class LocalMoves:
    """The `Moves` of a directory."""

    def __init__(
        self, runtime: Runtime, sources: WorkspaceSources, list_running: Callable[[], Collection[SessionID]]
    ) -> None:
        self._runtime = runtime
        self._sources = sources
        self._list_running = list_running
        self._root = get_root(runtime.place)

    # --- receiving ---

    async def offer(self, offer: MoveOffer) -> MoveProgress:
        _check_offer(offer)
        if await self._has_arrived(offer.move, offer.session):
            return MoveProgress(state="arrived", received=offer.size, directory=self._root)
        async with self._lock(offer.move):
            async with self._open_undo():
                await self._check_target(offer)
            received = await asyncio.to_thread(self._stage, offer)
        return MoveProgress(state="receiving", received=received, directory=self._root)

    async def add_piece(self, move: str, piece: MovePiece) -> MoveProgress:
        if len(piece.data) > PIECE_BYTES or piece.offset < 0:
            raise InvalidInputError("piece", f"it has more than {PIECE_BYTES} bytes, or no valid offset")
        async with self._lock(move):
            received = await asyncio.to_thread(self._append, self._read_offer(move), piece)
        return MoveProgress(state="receiving", received=received, directory=self._root)

    def _directory(self, move: str) -> str:
        """Return where a bundle is received. Raise `DirectoryError` if nothing can be kept here."""
        if not self._sources.snapshots:
            raise DirectoryError(
                self._root,
                "its sessions are not kept",
                hint="start the server with a store that is not memory:",
            )
        return os.path.join(self._sources.paths.data, "weft", "move", check_file_name("move", move))

    def _bundle(self, move: str) -> str:
        return os.path.join(self._directory(move), "bundle.zip")

    @asynccontextmanager
    async def _lock(self, move: str) -> AsyncIterator[None]:
        """Hold a move. Wait until nobody else holds it: an earlier request may still be storing its sessions."""
        directory = f"{self._directory(move)}.lock"
        await asyncio.to_thread(make_directory, os.path.dirname(directory))
        while True:
            with try_lock(directory) as mine:
                if mine:
                    yield
                    return
            await self._runtime.clock.sleep(LOCK_WAIT_SECONDS)

    def _stage(self, offer: MoveOffer) -> int:
        """Return how many bytes of the bundle are here. Start anew if it is another bundle."""
        directory, bundle = self._directory(offer.move), self._bundle(offer.move)
        with _as_store_errors(directory):
            self._remove_old()
            if self._find_offer(offer.move) != offer:
                shutil.rmtree(directory, ignore_errors=True)
                make_directory(directory)
                if shutil.disk_usage(directory).free < DISK_FACTOR * offer.size:
                    raise StoreError(
                        f"there is not enough space for a bundle of {offer.size >> 20} MB; {NOTHING_CHANGED}",
                        hint="free some space on the machine of the server",
                    )
                path = os.path.join(directory, "offer.json")
                write_atomic(path, encode(offer), temp=f"{path}~")
            return os.path.getsize(bundle) if os.path.exists(bundle) else 0

    def _remove_old(self) -> None:
        base = os.path.dirname(self._directory("mov"))
        for name in os.listdir(base):
            path = os.path.join(base, name)
            if os.lstat(path).st_mtime * 1000 < self._runtime.clock.now() - MAX_STAGED_MS:
                if os.path.isdir(path):
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    os.unlink(path)

    def _find_offer(self, move: str) -> MoveOffer | None:
        try:
            raw = read_bytes(os.path.join(self._directory(move), "offer.json"), limit=MAX_OFFER_BYTES)
        except OSError:
            return None
        return decode(raw, MoveOffer, where="offer")

    def _read_offer(self, move: str) -> MoveOffer:
        offer = self._find_offer(move)
        if offer is None:
            raise NotFoundError("move", move, hint="offer it again: weft session move ID --to URL")
        return offer

    def _append(self, offer: MoveOffer, piece: MovePiece) -> int:
        path = self._bundle(offer.move)
        with _as_store_errors(path), open(path, "ab") as file:
            received = file.tell()
            end = piece.offset + len(piece.data)
            if end <= received:
                return received
            if piece.offset != received or end > offer.size:
                raise ConflictError(
                    "piece", str(piece.offset), f"does not follow the {received} bytes before"
                )
            try:
                file.write(piece.data)
                file.flush()
            except OSError:
                file.truncate(received)
                raise
            return end

    # --- accepting ---

    async def accept(self, move: str) -> MoveResult:
        return await run_to_completion(self._accept(move))

    async def _accept(self, move: str) -> MoveResult:
        async with self._lock(move):
            offer = self._read_offer(move)
            if await self._has_arrived(offer.move, offer.session):
                return await self._finish(offer, 0)
            path = self._bundle(move)
            with _as_store_errors(self._root), ExitStack() as stack:
                if await asyncio.to_thread(measure_file, path) != (offer.size, offer.sha256):
                    raise BundleError("bundle", "it is not complete")
                bundle = await asyncio.to_thread(stack.enter_context, open_bundle(path))
                workspace = _check_bundle(bundle, offer)
                async with self._open_undo() as undo_context:
                    await self._check_target(offer)
                    files = await self._take_over(undo_context, offer, bundle, workspace)
            return await self._finish(offer, files)

    async def _finish(self, offer: MoveOffer, files: int) -> MoveResult:
        session = await self._runtime.store.get_session(offer.session)
        await asyncio.to_thread(shutil.rmtree, self._directory(offer.move), ignore_errors=True)
        return MoveResult(
            session=offer.session, sessions=offer.sessions, directory=session.directory, files=files
        )

    async def _take_over(
        self, undo_context: UndoContext, offer: MoveOffer, bundle: Bundle, workspace: BundledWorkspace
    ) -> int:
        """Store files and sessions. The sessions come last, in one step: that is when they have arrived."""
        snapshots, note = undo_context.snapshots, f"move-{offer.move}"
        exports = await asyncio.to_thread(
            lambda: [self._localize(export, offer, note) for export in bundle.exports()]
        )
        present = [await self._find_present(each) for each in offer.sessions]
        events = [
            event
            for export, stored in zip(exports, present, strict=True)
            for event in list_replacing_events(export, stored)
        ]
        try:
            await snapshots.add_objects(bundle.read_objects(), "bundle")
            for export in exports:
                patches = (*list_patches(export.messages), *get_weft_data(export.info).undo)
                await snapshots.pin(export.info.id, sorted(get_patch_trees(patches)))
            trees = FileTrees(Tree(workspace.present), Tree(workspace.absent))
            await self._refuse_overwriting(undo_context, trees)
            patch = await snapshots.plan_overlay(trees)
            plan = RestorePlan(session=offer.session, patches=(patch,), note=note)
            async with AsyncExitStack() as stack:
                for stored in present:
                    if stored is not None:
                        lease = self._runtime.journal.lease(stored.info.id, self._runtime.owner)
                        await stack.enter_async_context(lease)
                restored = await stack.enter_async_context(snapshots.restoring(plan))
                for fate in restored.fates:
                    if fate.fate not in ("restored", "removed", "unchanged"):
                        raise ConflictError("file", fate.file, f"cannot be changed: {fate.reason}")
                await self._store(exports, workspace, events)
        except BaseException:
            for each, stored in zip(offer.sessions, present, strict=True):
                if stored is None:
                    await snapshots.release(each)
            raise
        return sum(fate.fate != "unchanged" for fate in restored.fates)

    async def _store(
        self, exports: Sequence[SessionExport], workspace: BundledWorkspace, events: Sequence[Durable]
    ) -> None:
        for export in exports:
            if (briefing := workspace.briefings.get(export.info.id)) is not None:
                await self._runtime.store.put_value(list_briefing_keys(export.info)[0], briefing)
        await self._runtime.journal.begin(exports[0].info, *events)

    def _localize(self, export: SessionExport, offer: MoveOffer, note: str) -> SessionExport:
        """Return a session as it is here: with the paths and the project of this checkout."""
        rebound = rebind_export(export, (Rebind(offer.directory, self._root),))
        is_root = export.info.id == offer.session
        arrived = SessionArrival(
            move=offer.move, host=offer.host, directory=offer.directory, time=self._runtime.clock.now()
        )
        data = get_weft_data(rebound.info)
        data = replace(
            data, owner="", departed=None, arrived=arrived, restored=note if is_root else data.restored
        )
        info = replace(rebound.info, project_id=self._runtime.place.project.id, share=None)
        return replace(rebound, info=with_weft_data(info, data))

    # --- checking ---

    async def _has_arrived(self, move: str, id: SessionID) -> bool:
        try:
            session = await self._runtime.store.get_session(id)
        except UnreadableError:
            raise  # it may have arrived, and must not be overwritten
        except NotFoundError:
            return False
        arrived = get_weft_data(session).arrived
        return arrived is not None and arrived.move == move

    async def _find_present(self, session: SessionID) -> SessionExport | None:
        """Return the state of a session that was moved away from here, None if there is none. Raise `ConflictError` if it is here."""
        try:
            found = await pack_session(self._runtime.store, session)
        except UnreadableError:
            raise  # it is here, and must not be overwritten
        except NotFoundError:
            return None
        departed = get_weft_data(found.info).departed
        if departed is None or not departed.done:
            raise ConflictError(
                "session", session, "is there already", hint="remove it there: weft session rm ID"
            )
        return found

    async def _check_target(self, offer: MoveOffer) -> None:
        """Raise an error if the sessions or files cannot be stored here: something is in their place, or something is missing."""
        for each in offer.sessions:
            await self._find_present(each)
        for each in self._list_running():
            raise ConflictError(
                "directory",
                self._root,
                f"is being worked in by session {each}",
                hint="wait until its run ends",
            )
        await asyncio.to_thread(self._check_checkout, offer.commit)

    def _check_checkout(self, commit: str) -> None:
        git = WorktreeGit(self._sources.env, self._root)
        short = commit[:12]
        if git.find_commit(commit) is None:
            raise ConflictError(
                "commit", short, f"is not in {self._root}", hint="push it from here, and fetch it there"
            )
        if git.find_commit() != commit:
            raise ConflictError(
                "directory",
                self._root,
                f"is at another commit than {short}",
                hint=f"on the machine of the server: git checkout {short}; or name another checkout with --into",
            )
        if changed := git.list_changed():
            raise ConflictError(
                "directory",
                self._root,
                f"has uncommitted changes: {list_names(changed)}",
                hint="commit or stash them on the machine of the server; or name another checkout with --into",
            )

    async def _refuse_overwriting(self, undo_context: UndoContext, trees: FileTrees) -> None:
        """Raise `ConflictError` if a file that git ignores here is in the place of one that comes along."""
        wanted = {os.fsdecode(path) for path in await undo_context.snapshots.list_files(trees.present)}
        for path in await asyncio.to_thread(self._list_in_the_way, wanted):
            raise ConflictError(
                "file", path, "is there already, and git ignores it", hint="move it away on that machine"
            )

    def _list_in_the_way(self, wanted: set[str]) -> list[str]:
        untracked = wanted - WorktreeGit(self._sources.env, self._root).list_tracked()
        return sorted(path for path in untracked if os.path.lexists(os.path.join(self._root, path)))

    @asynccontextmanager
    async def _open_undo(self) -> AsyncIterator[UndoContext]:
        """Open snapshots that also take large files. Settle what an interrupted attempt left."""
        if self._runtime.place.worktree == "/":
            raise DirectoryError(
                self._root,
                "it is not in a git repository",
                hint="--into names the checkout on the machine of the server",
            )
        settings = UndoSettings(
            base=self._sources.snapshots,
            avoid=(self._sources.paths.data,),
            user_home=self._sources.paths.os_home,
            environ=self._sources.env,
            limits=SnapshotLimits(max_file_bytes=MAX_MOVED_FILE_BYTES),
        )
        async with open_undo_snapshots(settings, self._runtime.place) as snapshots:
            undo_context = replace(self._runtime.undo_context, snapshots=snapshots)
            for error in await recover_file_changes(undo_context):
                raise error
            yield undo_context

    # --- cancelling ---

    async def cancel(self, move: str, session: SessionID) -> bool:
        async with self._lock(move):
            # The received bundle is deleted once it is accepted, so the session itself shows whether it has arrived.
            if await self._has_arrived(move, session):
                raise ConflictError("session", session, "has arrived", hint="finish the move: run it again")
            was_offered = self._find_offer(move) is not None
            await asyncio.to_thread(shutil.rmtree, self._directory(move), ignore_errors=True)
            return was_offered


def _check_offer(offer: MoveOffer) -> None:
    if offer.format > MOVE_FORMAT:
        raise UnsupportedError("a move from a newer version", hint="upgrade the server")
    if offer.session not in offer.sessions or len(offer.sessions) > MAX_SESSIONS:
        raise InvalidInputError("sessions", "they do not contain the session, or are too many")
    for each in offer.sessions:
        check_new_id("session", each)
    if not 0 < offer.size <= MAX_TOTAL_BYTES:
        raise InvalidInputError("size", f"{offer.size} bytes are not the size of a bundle")
    if not os.path.isabs(offer.directory) or not offer.commit.isalnum():
        raise InvalidInputError("directory", "it is not an absolute path, or the commit is not one")


def _check_bundle(bundle: Bundle, offer: MoveOffer) -> BundledWorkspace:
    """Return the workspace of a bundle. Raise `BundleError` if it is not the one that was offered."""
    workspace = bundle.manifest.workspace
    ids = tuple(session.id for session in bundle.manifest.sessions)
    if workspace is None or ids != offer.sessions or ids[0] != offer.session:
        raise BundleError("bundle", "it does not contain what was offered")
    if (workspace.commit, workspace.directory) != (offer.commit, offer.directory):
        raise BundleError("bundle", "its files belong to another commit")
    return workspace


@contextmanager
def _as_store_errors(path: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror or error}); {NOTHING_CHANGED}",
            hint="free some space on the machine of the server, or make it writable; then move the session again",
        ) from error
