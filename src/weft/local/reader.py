"""Read the stored sessions of a directory without an event loop."""

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from weft.config.store_address import resolve_store_url
from weft.errors import DirectoryError, NotFoundError
from weft.host.now import now
from weft.host.paths import paths_from
from weft.model.damage import Damage
from weft.model.ids import GLOBAL_PROJECT, ProjectID, SessionID, check_id
from weft.model.project import Place, get_root
from weft.model.session import Session, hide_share_secret
from weft.project.checkout import find_checkout
from weft.project.facts import Checkout, KnownProjects, Resolution, alias_key, find_alias
from weft.project.resolve import find_settled
from weft.search.list_cache import list_cached_sessions
from weft.store.reader import open_reader

CURRENT_DIRECTORY: Final = "."  # the default of --dir


class SessionReader:
    """Reads the sessions of a store, for one directory."""

    def __init__(self, directory: str, env: Mapping[str, str], *, store: str | None = None) -> None:
        self._env = env
        self._directory = directory
        paths = paths_from(env)
        self._cache = paths.cache
        self.store = open_reader(resolve_store_url(env, paths, store))

    def list_sessions(self, *, everywhere: bool = False) -> list[Session]:
        """Return the sessions of the directory's project, or of all projects, oldest first."""
        return [hide_share_secret(session) for session in self._list_sessions(everywhere)]

    def _list_sessions(self, everywhere: bool) -> list[Session]:
        if everywhere:
            return self.store.list_sessions()
        found = self._place()
        project = found.place.project.id
        own = list_cached_sessions(self.store, self._cache, project)
        if own is None:
            own = self.store.list_sessions(project)
        return own if found.adoption is None else sorted(own + self._strays(found), key=_by_age)

    def project(self) -> ProjectID:
        """Return the id of the directory's project."""
        return self.place().project.id

    def place(self) -> Place:
        return self._place().place

    def get_session(self, given: str) -> Session:
        """Return a session by its id, the beginning of its id, or `last`. A full id is looked up without reading other sessions."""
        from weft.session.tree import LAST, choose_session  # noqa: PLC0415  listing sessions does not need it

        if given == LAST:
            return self.get_last_session()
        with suppress(NotFoundError):
            found = self.store.find_session(SessionID(check_id("session", given)))
            if found is not None:
                return hide_share_secret(found)
        return choose_session(given, self.list_sessions(), self.list_sessions(everywhere=True))

    def get_last_session(self) -> Session:
        """Return the session that was last used at this place. Raise `NotFoundError` if there is none."""
        from weft.local.place import list_sessions_here  # noqa: PLC0415  listing sessions does not need it
        from weft.session.tree import choose_last_session  # noqa: PLC0415  listing sessions does not need it

        place, sessions = self.place(), self.list_sessions()
        return choose_last_session(list_sessions_here(sessions, place), sessions, get_root(place))

    def find_home(self, session: Session) -> str:
        """Return the directory in which to continue a session.

        That is the directory that was named, else the session's own, else the current one if the session belongs to this
        repository. Raise `DirectoryError` if the session's directory is gone and it belongs to another repository.
        """
        if self._directory != CURRENT_DIRECTORY:
            return self._directory
        if os.path.isdir(session.directory):
            return session.directory
        if session.project_id == self.project() != GLOBAL_PROJECT:
            return self._directory
        raise DirectoryError(
            session.directory,
            f"session {session.id} worked in it, but it no longer exists",
            hint="name another directory to continue in: --dir PATH",
        )

    def problems(self) -> list[Damage]:
        """Return the documents that could not be read so far."""
        return self.store.problems()

    def _place(self) -> Resolution:
        at = find_checkout(self._directory, fake_vcs=self._env.get("OPENCODE_FAKE_VCS", ""))
        project = ProjectID(at.id or GLOBAL_PROJECT)
        alias = find_alias(self.store.find_value(alias_key(project)))
        return find_settled(at, self.store.find_project(project), alias) or self._look_closer(at)

    def _look_closer(self, at: Checkout) -> Resolution:
        from weft.host.git import Git  # noqa: PLC0415  listing sessions does not need it
        from weft.project.resolve import resolve  # noqa: PLC0415  listing sessions does not need it

        projects = {project.id: project for project in self.store.list_projects()}
        kept = {id: find_alias(self.store.find_value(alias_key(id))) for id in projects}
        known = KnownProjects(
            projects=projects, aliases={id: alias for id, alias in kept.items() if alias is not None}
        )
        return resolve(at, known, git=Git(self._env), now=now())

    def _strays(self, found: Resolution) -> list[Session]:
        """Return sessions that belong here but are stored under another project. The next run moves them."""
        from weft.project.resolve import adopt_sessions  # noqa: PLC0415  listing sessions does not need it

        if found.adoption is None:
            return []
        elsewhere = [
            session for source in found.adoption.sources for session in self.store.list_sessions(source)
        ]
        return adopt_sessions(found.adoption, elsewhere)


def _by_age(session: Session) -> tuple[int, str]:
    return session.time.created, session.id
