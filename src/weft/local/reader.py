"""Open stored sessions for commands that need no model: to read without an event loop, or to change."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

from msgspec import Struct

from weft.bus import Bus
from weft.config.store_address import storage_root, store_url
from weft.errors import DirectoryError, NotFoundError
from weft.host.clock import Clock, SystemClock
from weft.host.now import now
from weft.host.paths import paths_from
from weft.journal import Journal, open_journal
from weft.local.place import find_place
from weft.model.damage import Damage
from weft.model.ids import GLOBAL_PROJECT, Mint, ProjectID, SessionID, checked
from weft.model.project import Place, root_of
from weft.model.session import Session, without_secret
from weft.project.facts import Checkout, Known, Resolution, alias_from_plain, alias_key
from weft.project.look import look
from weft.project.resolve import find_settled
from weft.search.library import list_shelved
from weft.session.lifecycle import Maker
from weft.session.remove import Remover
from weft.share.contract import Afar
from weft.share.revoke import TakingBack
from weft.store.contract import Store
from weft.store.files.reader import Tree
from weft.store.url import open_store

UNNAMED: Final = "."  # what a person stands in who names no directory


class Reading:
    """A store of files, read from a directory."""

    def __init__(self, directory: str, env: Mapping[str, str], *, store: str | None = None) -> None:
        self._env = env
        self._directory = directory
        paths = paths_from(env)
        self._cache = paths.cache
        self.tree = Tree(storage_root(env, paths, store))
        if not self.tree.is_settled():
            self._keep_up()

    def _keep_up(self) -> None:
        from weft.store.files.upgrade import keep_up  # noqa: PLC0415
        from weft.store.url import ask_git  # noqa: PLC0415

        keep_up(self.tree, ask_git)

    def list_sessions(self, *, everywhere: bool = False) -> list[Session]:
        """Those of the directory's project, or all there are; oldest first."""
        return [without_secret(session) for session in self._list_sessions(everywhere)]

    def _list_sessions(self, everywhere: bool) -> list[Session]:
        if everywhere:
            return self.tree.list_sessions()
        found = self._place()
        project = found.place.project.id
        own = list_shelved(self.tree, self._cache, project)
        if own is None:
            own = self.tree.list_sessions(project)
        return own if found.adoption is None else sorted(own + self._strays(found), key=_by_age)

    def project(self) -> ProjectID:
        """That of the directory."""
        return self.place().project.id

    def place(self) -> Place:
        return self._place().place

    def get_session(self, given: str) -> Session:
        """The one that is meant: by its whole id without a look at the others, by the beginning of one, or as `last`."""
        from weft.session.tree import LAST, choose  # noqa: PLC0415

        if given == LAST:
            return self.get_last_session()
        with suppress(NotFoundError):
            found = self.tree.find_session(SessionID(checked("session", given)))
            if found is not None:
                return without_secret(found)
        return choose(given, self.list_sessions(), self.list_sessions(everywhere=True))

    def get_last_session(self) -> Session:
        """The one last worked on at this place. Raise `NotFoundError` if there is none."""
        from weft.local.place import list_here  # noqa: PLC0415
        from weft.session.tree import choose_last  # noqa: PLC0415

        place, sessions = self.place(), self.list_sessions()
        return choose_last(list_here(sessions, place), sessions, root_of(place))

    def find_home(self, session: Session) -> str:
        """Return the directory in which a session goes on: this one if it was named, else the session's own, or this one
        if that is gone from this repository.

        Raise `DirectoryError` if its directory is gone and it is no session of this repository.
        """
        if self._directory != UNNAMED:
            return self._directory
        if os.path.isdir(session.directory):
            return session.directory
        if session.project_id == self.project() != GLOBAL_PROJECT:
            return self._directory
        raise DirectoryError(
            session.directory,
            f"session {session.id} worked in it, and it is gone",
            hint="say where the session is to go on: --dir PATH",
        )

    def problems(self) -> list[Damage]:
        """What could not be read on the way."""
        return self.tree.problems()

    def _place(self) -> Resolution:
        at = look(self._directory, fake_vcs=self._env.get("OPENCODE_FAKE_VCS", ""))
        project = ProjectID(at.id or GLOBAL_PROJECT)
        alias = alias_from_plain(self.tree.kept(alias_key(project)))
        return find_settled(at, self.tree.find_project(project), alias) or self._look_closer(at)

    def _look_closer(self, at: Checkout) -> Resolution:
        from weft.host.git import Git  # noqa: PLC0415
        from weft.project.resolve import resolve  # noqa: PLC0415

        projects = {project.id: project for project in self.tree.list_projects()}
        kept = {id: alias_from_plain(self.tree.kept(alias_key(id))) for id in projects}
        known = Known(
            projects=projects, aliases={id: alias for id, alias in kept.items() if alias is not None}
        )
        return resolve(at, known, git=Git(self._env), now=now())

    def _strays(self, found: Resolution) -> list[Session]:
        """Sessions that belong here and are still recorded elsewhere: the next run moves them, a list only shows them."""
        from weft.project.resolve import adopted  # noqa: PLC0415

        if found.adoption is None:
            return []
        elsewhere = [
            session for source in found.adoption.sources for session in self.tree.list_sessions(source)
        ]
        return adopted(found.adoption, elsewhere)


def _by_age(session: Session) -> tuple[int, str]:
    return session.time.created, session.id


class Resting(Struct, frozen=True, kw_only=True):
    """What the verbs on sessions at rest need. `url` is the store's address if one was given."""

    store: Store
    journal: Journal
    clock: Clock
    directory: str
    env: Mapping[str, str]
    url: str | None = None

    async def maker(self) -> Maker:
        """To make sessions in the place that the directory is."""
        found = await find_place(self.store, self.directory, self.env, self.clock.now())
        mint = Mint(self.clock.now, os.urandom)
        return Maker(journal=self.journal, clock=self.clock, mint=mint, random=os.urandom, place=found.place)

    def remover(self) -> Remover:
        back = TakingBack(store=self.store, journal=self.journal, remote=Afar(self.clock))
        return Remover(
            store=self.store,
            journal=self.journal,
            clock=self.clock,
            owner=who_we_are(),
            stop=_nothing_runs,
            revoke=back.revoke,
        )


@asynccontextmanager
async def open_resting(
    directory: str, env: Mapping[str, str], *, store: str | None = None
) -> AsyncIterator[Resting]:
    clock = SystemClock()
    async with (
        open_store(store_url(env, paths_from(env), store)) as opened,
        open_journal(opened, Bus(), clock, directory=directory) as journal,
    ):
        yield Resting(store=opened, journal=journal, clock=clock, directory=directory, env=env, url=store)


def who_we_are() -> str:
    return f"process {os.getpid()} on {os.uname().nodename}"


async def _nothing_runs(_: SessionID) -> None:
    """Nothing does, in this process. What runs in another holds the session's lease, and removing is refused."""
