"""Sessions as data in this process: for commands, which read a store, and for an `Api`, which has one open."""

import asyncio

from weft.blame.history import BlameSource
from weft.blame.report import blame_file, locate_file, read_file_log
from weft.context.pieces import add_up, to_pieces
from weft.context.tokens import find_usable_tokens
from weft.dataset.database import (
    IN_MEMORY,
    Dataset,
    Progress,
    dataset_path,
    refresh_from_reader,
    refresh_from_store,
)
from weft.dataset.query import run_query
from weft.host.paths import paths_from
from weft.local.preview import make_preview_context, preview_request
from weft.local.reader import SessionReader
from weft.local.workspace_sources import WorkspaceSources
from weft.maintenance.proof import check_session
from weft.model.data import ContextReport, FileBlame, FileLog, QueryInput, QueryResult
from weft.model.ids import GLOBAL_PROJECT, ProjectID, SessionID, check_id
from weft.model.part import ModelRef
from weft.model.project import get_root
from weft.model.proof import SessionProof
from weft.model.transfer import SessionExport
from weft.run.briefing import list_briefing_keys
from weft.run.runtime import Runtime
from weft.session import lifecycle
from weft.session.revert_point import cut_at_revert
from weft.snapshot.archive import SnapshotArchive
from weft.snapshot.location import choose_base
from weft.transfer.atif import to_trajectory

ATTEMPTS = 5


class StoredData:
    """Sessions as data, read from a store without an event loop. Every method blocks."""

    def __init__(self, reader: SessionReader) -> None:
        self._reader = reader
        paths = paths_from(reader.env)
        self._snapshots = choose_base(paths, reader.url)
        self.dataset = Dataset(dataset_path(paths.cache, self._snapshots))

    def query(self, query: QueryInput, progress: Progress) -> QueryResult:
        project = None if query.everywhere else self._reader.project()
        refresh_from_reader(self.dataset, self._reader.store, project, progress)
        return run_query(self.dataset, query, project)

    def open_source(self, progress: Progress) -> BlameSource:
        """Return where the authors of lines are found, up to date."""
        project = self._reader.project()
        refresh_from_reader(self.dataset, self._reader.store, project, progress)
        env, base = self._reader.env, self._snapshots
        return BlameSource(
            dataset=self.dataset,
            project=project,
            root=get_root(self._reader.place()),
            open_archive=lambda root: SnapshotArchive(base, GLOBAL_PROJECT, root, env),
            environ=env,
        )


class LocalData:
    """The `Data` of an `Api`. The dataset is in a file that commands use too, or in memory if the store is not kept."""

    def __init__(self, runtime: Runtime, sources: WorkspaceSources) -> None:
        self._runtime = runtime
        self._environ = sources.env
        is_kept = sources.snapshots and sources.paths.cache
        self._dataset = Dataset(
            dataset_path(sources.paths.cache, sources.snapshots) if is_kept else IN_MEMORY
        )
        self._lock = asyncio.Lock()

    async def query(self, query: QueryInput) -> QueryResult:
        project = None if query.everywhere else self._runtime.place.project.id
        async with self._lock:
            await self._refresh(project)
            return await asyncio.to_thread(run_query, self._dataset, query, project)

    async def blame(self, path: str, *, lines: tuple[int, int] | None = None) -> FileBlame:
        relative = self._locate(path)
        async with self._lock:
            source = await self._open_source()
            return await asyncio.to_thread(blame_file, source, relative, lines)

    async def get_file_log(self, path: str) -> FileLog:
        relative = self._locate(path)
        async with self._lock:
            source = await self._open_source()
            return await asyncio.to_thread(read_file_log, source, relative)

    async def verify(self, session: SessionID) -> SessionProof:
        id = SessionID(check_id("session", session))
        await self._runtime.journal.flush()
        proof = await self._check(id)
        # A write in between may look like a fault. A real one is still there the next time.
        for _ in range(ATTEMPTS):
            before, proof = proof, await self._check(id) if proof.verdict == "faulty" else proof
            if proof == before:
                break
        return proof

    async def _check(self, id: SessionID) -> SessionProof:
        store = self._runtime.store
        chain = await store.read_chain(id)
        export = SessionExport(
            info=await store.get_session(id),
            messages=tuple(await store.list_messages(id)),
            diff=tuple(await store.list_diff(id)),
            todos=tuple(await store.list_todos(id)),
        )
        return await asyncio.to_thread(check_session, id, chain, export)

    async def get_trajectory(self, session: SessionID) -> dict[str, object]:
        store = self._runtime.store
        await self._runtime.journal.flush()
        root = await store.get_session(SessionID(check_id("session", session)))
        family = [root, *await lifecycle.list_descendants(store, root.id)]
        found = {
            each.id: (each, cut_at_revert(each.revert, await store.list_messages(each.id)).kept)
            for each in family
        }
        _, history = found.pop(root.id)
        return to_trajectory(root, history, found)

    async def get_context(self, session: SessionID) -> ContextReport:
        runtime = self._runtime
        await runtime.journal.flush()
        info = await runtime.store.get_session(SessionID(check_id("session", session)))
        history = await runtime.store.list_messages(info.id)
        stored = [await runtime.store.find_value(key) for key in list_briefing_keys(info)]
        found = await asyncio.to_thread(preview_request, make_preview_context(runtime), info, history, stored)
        request, parts = found.request, add_up(to_pieces(found.request))
        return ContextReport(
            agent=found.agent,
            model=ModelRef(provider_id=request.model.provider_id, model_id=request.model.id),
            tokens=sum(part.tokens for part in parts),
            limit=find_usable_tokens(request.model, request.parameters.max_output or 0),
            parts=parts,
            placeholder=found.placeholder,
            overflows=found.overflows,
        )

    async def _refresh(self, project: ProjectID | None) -> None:
        await self._runtime.journal.flush()
        now = self._runtime.clock.now()
        await refresh_from_store(self._dataset, self._runtime.store, project, now=now)

    def _locate(self, path: str) -> str:
        place = self._runtime.place
        return locate_file(get_root(place), place.directory, path)

    async def _open_source(self) -> BlameSource:
        runtime = self._runtime
        project = runtime.place.project.id
        await self._refresh(project)
        return BlameSource(
            dataset=self._dataset,
            project=project,
            root=get_root(runtime.place),
            open_archive=runtime.undo_context.snapshots.open_archive,
            environ=self._environ,
        )
