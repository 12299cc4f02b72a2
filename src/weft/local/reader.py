"""Read the stored sessions of a directory without an event loop."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from weft.config.store_address import get_default_store_url, resolve_store_url
from weft.errors import DirectoryError, IndexFailedError, NotFoundError
from weft.host.now import now
from weft.host.paths import paths_from
from weft.model.damage import Damage
from weft.model.ids import GLOBAL_PROJECT, ProjectID, SessionID, check_id
from weft.model.project import Place, get_root
from weft.model.session import SessionInfo, hide_share_secret
from weft.model.session_query import SessionQuery, select_sessions, to_next_page
from weft.project.checkout import find_checkout
from weft.project.facts import Checkout, KnownProjects, Resolution, last_seen_key, parse_last_seen
from weft.project.resolve import find_stored
from weft.store.reader import open_reader
from weft.store.url import check_store_exists

CURRENT_DIRECTORY: Final = "."  # the default of --dir


def resolve_existing_store(env: Mapping[str, str], option: str | None = None) -> str:
    """Return the URL of the store for a command that does not create one. `option` is the flag `--store`.

    Raise `InvalidInputError` if a store is named that does not exist. The default store is empty until something is stored.
    """
    paths = paths_from(env)
    url = resolve_store_url(env, paths, option)
    if url != get_default_store_url(paths):
        check_store_exists(url)
    return url


def upgrade_existing_store(env: Mapping[str, str], option: str | None = None) -> str:
    """Return the URL of the store for a command that changes it but does not create one. An older store is upgraded first.

    Raise `InvalidInputError` or `StoreError` if there is no store: unlike `resolve_existing_store`, this asks a server at once.
    """
    from weft.store.maintenance import open_maintenance  # noqa: PLC0415  commands that only read must not load it

    url = resolve_existing_store(env, option)
    open_maintenance(url).upgrade()
    return url


class SessionReader:
    """Reads the sessions of a store, for one directory. `warn` is called if the search index cannot be used."""

    def __init__(
        self,
        directory: str,
        env: Mapping[str, str],
        *,
        store: str | None = None,
        must_exist: bool = False,
        warn: Callable[[IndexFailedError], None] = lambda _: None,
    ) -> None:
        """With `must_exist`, raise `InvalidInputError` if a store is named that does not exist. A server is asked when something is read."""
        self.env = env
        self._directory = directory
        paths = paths_from(env)
        self.url = resolve_existing_store(env, store) if must_exist else resolve_store_url(env, paths, store)
        self.store = open_reader(self.url, cache=paths.cache, warn=warn, must_exist=must_exist)

    def list_sessions(self, *, everywhere: bool = False) -> list[SessionInfo]:
        """Return the sessions of the directory's project, or of all projects, oldest first."""
        return [hide_share_secret(session) for session in self._list_sessions(everywhere)]

    def query_sessions(self, query: SessionQuery) -> list[SessionInfo]:
        """Return the sessions of the directory's project that match a query, newest first; or of all projects if it says so."""
        if query.everywhere:
            found = self.store.query_sessions(query)
        else:
            resolved = self._resolve_place()
            project = resolved.place.project.id
            if resolved.adoption is None:
                found = self.store.query_sessions(replace(query, project_id=project))
            else:
                found = select_sessions(self._list_sessions(everywhere=False), query)
        return [hide_share_secret(session) for session in found]

    def iterate_sessions(self, query: SessionQuery) -> Iterator[SessionInfo]:
        """Yield the sessions that match a query with a limit, page by page."""
        following: SessionQuery | None = query
        while following is not None:
            page = self.query_sessions(following)
            yield from page
            following = to_next_page(following, page)

    def list_descendants(self, root: SessionID) -> list[SessionInfo]:
        """Return all sessions below one, each after its parent."""
        from weft.session.selection import FamilySearch  # noqa: PLC0415  listing sessions does not need it

        search = FamilySearch(root)
        while (query := search.next_query()) is not None:
            search.add(self.store.query_sessions(query))
        return [hide_share_secret(session) for session in search.descendants]

    def _list_sessions(self, everywhere: bool) -> list[SessionInfo]:
        if everywhere:
            return self.store.list_sessions()
        found = self._resolve_place()
        own = self.store.list_sessions(found.place.project.id)
        return own if found.adoption is None else sorted(own + self._list_misfiled(found), key=_get_age)

    def project(self) -> ProjectID:
        """Return the id of the directory's project."""
        return self.place().project.id

    def place(self) -> Place:
        return self._resolve_place().place

    def get_session(self, given: str) -> SessionInfo:
        """Return a session by its id, the beginning of its id, or `last`. Only sessions whose id begins in this way are read."""
        from weft.session.selection import LAST, choose_session  # noqa: PLC0415  listing sessions does not need it

        if given == LAST:
            return self.get_last_session()
        with suppress(NotFoundError):
            found = self.store.find_session(SessionID(check_id("session", given)))
            if found is not None:
                return hide_share_secret(found)
        here = self._list_with_prefix(given, everywhere=False)
        everywhere = () if here else self._list_with_prefix(given, everywhere=True)
        if not here and not everywhere:
            # For suggestions: of an id that was typed wrongly, usually the beginning is right.
            everywhere = self._list_with_prefix(given[: len(given) // 2], everywhere=True)
        return choose_session(given, here, everywhere)

    def _list_with_prefix(self, typed: str, *, everywhere: bool) -> list[SessionInfo]:
        """Return the sessions whose id begins with what was typed, with or without the part that all ids begin with."""
        from weft.session.selection import ID_START  # noqa: PLC0415  listing sessions does not need it

        prefixes = (typed,) if typed.startswith(ID_START) else (typed, ID_START + typed)
        queries = [SessionQuery(id_prefix=prefix, everywhere=everywhere) for prefix in prefixes]
        return [session for query in queries for session in self.query_sessions(query)]

    def get_last_session(self) -> SessionInfo:
        """Return the session that was last used at this place. Raise `NotFoundError` if there is none."""
        from weft.session.selection import LAST_USED, to_no_last_session  # noqa: PLC0415  listing sessions does not need it

        found = self.find_last_session()
        if found is None:
            raise to_no_last_session(next(self.iterate_sessions(LAST_USED), None), get_root(self.place()))
        return found

    def find_last_session(self) -> SessionInfo | None:
        """Return the session that was last used at this place, None if there is none."""
        from weft.local.place import is_here  # noqa: PLC0415  listing sessions does not need it
        from weft.session.selection import LAST_USED  # noqa: PLC0415  listing sessions does not need it

        place = self.place()
        return next((each for each in self.iterate_sessions(LAST_USED) if is_here(each, place)), None)

    def choose_directory(self, session: SessionInfo) -> str:
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

    def _resolve_place(self) -> Resolution:
        """Find out which project the directory belongs to, as the next run would. Store nothing."""
        at = find_checkout(self._directory, fake_vcs=self.env.get("OPENCODE_FAKE_VCS", ""))
        project = ProjectID(at.id or GLOBAL_PROJECT)
        seen = parse_last_seen(self.store.find_value(last_seen_key(project)))
        return find_stored(at, self.store.find_project(project), seen) or self._resolve_with_git(at)

    def _resolve_with_git(self, at: Checkout) -> Resolution:
        from weft.host.git import Git  # noqa: PLC0415  listing sessions does not need it
        from weft.project.resolve import resolve  # noqa: PLC0415  listing sessions does not need it

        projects = {project.id: project for project in self.store.list_projects()}
        last_seen = {id: parse_last_seen(self.store.find_value(last_seen_key(id))) for id in projects}
        known = KnownProjects(
            projects=projects, last_seen={id: seen for id, seen in last_seen.items() if seen is not None}
        )
        return resolve(at, known, git=Git(self.env), now=now())

    def _list_misfiled(self, found: Resolution) -> list[SessionInfo]:
        """Return sessions that belong here but are stored under another project. The next run moves them."""
        from weft.project.resolve import adopt_sessions  # noqa: PLC0415  listing sessions does not need it

        if found.adoption is None:
            return []
        elsewhere = [
            session for source in found.adoption.sources for session in self.store.list_sessions(source)
        ]
        return adopt_sessions(found.adoption, elsewhere)


def _get_age(session: SessionInfo) -> tuple[int, str]:
    return session.time.created, session.id
