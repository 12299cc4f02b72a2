"""Import sessions for the command line, without a model or a run."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager

from msgspec import Struct

from weft.bus import Bus
from weft.config.store_address import store_url
from weft.errors import DocumentError, InvalidInputError, WeftError
from weft.host.clock import SystemClock
from weft.host.paths import paths_from
from weft.importers.claude import ClaudeTranscripts
from weft.importers.codex import CodexRollouts
from weft.importers.exported import open_exported
from weft.importers.opencode_sqlite import OpenCodeSqlite
from weft.importers.opencode_tree import open_opencode_tree
from weft.importers.transcript import Found, Origin, Trouble
from weft.journal import Journal, open_journal
from weft.local.place import find_place, git_home, settle_place
from weft.model.event import ProjectUpdated
from weft.model.parcel import Counts, Received, total
from weft.model.project import Place
from weft.store.contract import Store
from weft.store.opencode_database import open_opencode_database
from weft.store.url import ask_git, open_store
from weft.transfer.intake import Home, Intake, Terms
from weft.transfer.rebind import Rebind

Tell = Callable[[int, int], None]


class Wish(Struct, frozen=True, kw_only=True):
    """What is to be brought in, and how. `kind` is who wrote it; the empty one is an exported file."""

    path: str
    kind: str = ""
    rebinds: tuple[Rebind, ...] = ()
    dry_run: bool = False


class Report(Struct, frozen=True, kw_only=True):
    """What became of every session, and what could not be read; so many sessions were `refused` whole."""

    received: tuple[Received, ...]
    troubles: tuple[Trouble, ...]
    refused: int

    @property
    def before(self) -> Counts:
        return total([each.before for each in self.received])

    @property
    def after(self) -> Counts:
        return total([each.after for each in self.received])


class Mover:
    """A store with a door to write through, seen from a directory."""

    def __init__(self, store: Store, journal: Journal, place: Place, home: Home) -> None:
        self._store = store
        self._journal = journal
        self._place = place
        self._home = home

    async def bring(self, wish: Wish, tell: Tell) -> Report:
        """Bring in all there is. What cannot be read is named, and holds up nothing else; it may be done again."""
        # Of many sessions only some belong where we happen to stand; one that is handed over is meant to be here.
        terms = Terms(home=self._home, rebinds=wish.rebinds, adopt=not wish.kind, dry_run=wish.dry_run)
        intake = Intake(self._store, self._journal, self._place, terms)
        with open_origin(wish) as origin:
            found = await asyncio.to_thread(origin.found)
            if not wish.dry_run:
                await self._record_projects(origin)
            received: list[Received] = []
            troubles = list(origin.troubles())
            refused = len(troubles)
            for done, each in enumerate(found):
                tell(done, len(found))
                try:
                    received.append(await self._take(intake, each, troubles))
                except (DocumentError, InvalidInputError) as error:
                    if not wish.kind:
                        raise
                    troubles.append(_refusal(each, error))
                    refused += 1
        return Report(received=tuple(received), troubles=tuple(troubles), refused=refused)

    async def _take(self, intake: Intake, found: Found, troubles: list[Trouble]) -> Received:
        read = await asyncio.to_thread(found.read)
        troubles += read.troubles
        return await intake.receive(read.parcel, counted=read.counted)

    async def _record_projects(self, origin: Origin) -> None:
        for project in origin.projects():
            if await self._store.find_project(project.id) is None:
                await self._journal.commit(ProjectUpdated(info=project))


def _refusal(found: Found, error: WeftError) -> Trouble:
    return Trouble(where=found.name, reason=str(error).removeprefix(f"{found.name}: "))


@contextmanager
def open_origin(wish: Wish) -> Generator[Origin]:
    match wish.kind:
        case "opencode":
            with open_opencode_tree(wish.path, ask_git) as tree:
                yield tree
        case "opencode-sqlite":
            with open_opencode_database(wish.path) as database:
                yield OpenCodeSqlite(database)
        case "claude":
            yield ClaudeTranscripts(wish.path)
        case "codex":
            yield CodexRollouts(wish.path)
        case _:
            with open_exported(wish.path) as exported:
                yield exported


@asynccontextmanager
async def open_mover(
    directory: str, env: Mapping[str, str], *, store: str | None = None, dry_run: bool = False
) -> AsyncIterator[Mover]:
    clock = SystemClock()
    async with open_store(store_url(env, paths_from(env), store)) as opened:
        found = await find_place(opened, directory, env, clock.now())
        place = found.place
        async with open_journal(opened, Bus(), clock, directory=place.directory) as journal:
            if not dry_run:
                await settle_place(opened, journal, found)
            home = git_home(opened, journal, env, clock=clock, dry_run=dry_run)
            yield Mover(opened, journal, place, home)
