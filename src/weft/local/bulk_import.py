"""Import many sessions into a store, from exported files or from other programs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager

from msgspec import Struct

from weft.bus import Bus
from weft.config.store_address import resolve_store_url
from weft.errors import DocumentError, InvalidInputError, WeftError
from weft.host.clock import SystemClock
from weft.host.paths import paths_from
from weft.importers.claude import list_claude_sessions
from weft.importers.codex import list_codex_sessions
from weft.importers.export_file import open_export_file
from weft.importers.opencode_sqlite import OpenCodeSqlite
from weft.importers.opencode_tree import open_opencode_tree
from weft.importers.transcript import FoundSession, FoundSessions, ImportTrouble, SessionSource
from weft.journal import Journal, open_journal
from weft.local.place import find_place, make_git_lookup, record_place
from weft.model.event import ProjectUpdated
from weft.model.project import Place, Project
from weft.model.transfer import ExportCounts, ImportResult, add_counts
from weft.store.contract import Store
from weft.store.opencode_database import open_opencode_database
from weft.store.url import find_root_commit, open_store
from weft.transfer.rebind import Rebind
from weft.transfer.session_import import ImportOptions, ProjectLookup, SessionImporter

OnProgress = Callable[[int, int], None]


class ImportRequest(Struct, frozen=True, kw_only=True):
    """What to import. `kind` is the program that wrote it, or "" for an exported file."""

    path: str
    kind: str = ""
    rebinds: tuple[Rebind, ...] = ()
    dry_run: bool = False


class ImportReport(Struct, frozen=True, kw_only=True):
    """The result for each session, what could not be read, and the number of sessions that were refused."""

    received: tuple[ImportResult, ...]
    troubles: tuple[ImportTrouble, ...]
    refused: int

    @property
    def before(self) -> ExportCounts:
        return add_counts([each.before for each in self.received])

    @property
    def after(self) -> ExportCounts:
        return add_counts([each.after for each in self.received])


class BulkImporter:
    """Imports sessions into a store, for one directory."""

    def __init__(self, store: Store, journal: Journal, place: Place, lookup: ProjectLookup) -> None:
        self._store = store
        self._journal = journal
        self._place = place
        self._lookup = lookup

    async def run(self, request: ImportRequest, on_progress: OnProgress) -> ImportReport:
        """Import all sessions. Importing twice is safe.

        A session of another program that cannot be read is reported and does not stop the others. In an exported file it is an error.
        """
        # A single exported session is meant for this directory; of many sessions only some belong here.
        options = ImportOptions(
            find_project=self._lookup,
            rebinds=request.rebinds,
            adopt=not request.kind,
            dry_run=request.dry_run,
        )
        importer = SessionImporter(self._store, self._journal, self._place, options)
        with open_source(request) as source:
            found = await asyncio.to_thread(source.list_sessions)
            troubles = list(source.list_troubles())
            refused = len(troubles)
            projects = source.list_projects(troubles)
            if not request.dry_run:
                await self._record_projects(projects)
            received: list[ImportResult] = []
            for done, each in enumerate(found):
                on_progress(done, len(found))
                try:
                    received.append(await self._import_one(importer, each, troubles))
                except (DocumentError, InvalidInputError) as error:
                    if not request.kind:
                        raise
                    troubles.append(_to_trouble(each, error))
                    refused += 1
        return ImportReport(received=tuple(received), troubles=tuple(troubles), refused=refused)

    async def _import_one(
        self, importer: SessionImporter, found: FoundSession, troubles: list[ImportTrouble]
    ) -> ImportResult:
        read = await asyncio.to_thread(found.read)
        troubles += read.troubles
        return await importer.receive(read.export, counted=read.counted)

    async def _record_projects(self, projects: list[Project]) -> None:
        for project in projects:
            if await self._store.find_project(project.id) is None:
                await self._journal.commit(ProjectUpdated(info=project))


def _to_trouble(found: FoundSession, error: WeftError) -> ImportTrouble:
    return ImportTrouble(where=found.name, reason=str(error).removeprefix(f"{found.name}: "))


@contextmanager
def open_source(request: ImportRequest) -> Generator[SessionSource]:
    """Open the sessions of the program that wrote them."""
    match request.kind:
        case "opencode":
            with open_opencode_tree(request.path, find_root_commit) as tree:
                yield tree
        case "opencode-sqlite":
            with open_opencode_database(request.path) as database:
                yield OpenCodeSqlite(database)
        case "claude":
            yield FoundSessions(list_claude_sessions(request.path))
        case "codex":
            yield FoundSessions(list_codex_sessions(request.path))
        case _:
            with open_export_file(request.path) as exported:
                yield exported


@asynccontextmanager
async def open_importer(
    directory: str, env: Mapping[str, str], *, store: str | None = None, dry_run: bool = False
) -> AsyncIterator[BulkImporter]:
    """Open an importer for a directory. With `dry_run`, nothing is stored, not even the project of the directory."""
    clock = SystemClock()
    async with open_store(resolve_store_url(env, paths_from(env), store)) as opened:
        found = await find_place(opened, directory, env, clock.now())
        place = found.place
        async with open_journal(opened, Bus(), clock, directory=place.directory) as journal:
            if not dry_run:
                await record_place(opened, journal, found)
            lookup = make_git_lookup(opened, journal, env, clock=clock, dry_run=dry_run)
            yield BulkImporter(opened, journal, place, lookup)
