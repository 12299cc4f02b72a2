"""Search the sessions of a store through an index that is updated from the store."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from weft.errors import IndexFailedError
from weft.host.files import Stamp
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import MessageWithParts
from weft.model.search import Figures, Hit
from weft.search.database import (
    IndexDatabase,
    connect,
    create_tables,
    discard_index,
    index_path,
    open_for_reading,
    open_for_writing,
)
from weft.search.index import (
    UNKNOWN_STAMP,
    IndexFile,
    IndexProgress,
    SessionKey,
    StampedSession,
    drop_session,
    ignore_progress,
    list_documents,
    list_keys,
    list_messages,
    list_stale_caches,
    mark_cached,
    refresh_index,
    replace_sessions,
    to_entry,
    update_session,
)
from weft.search.list_cache import write_list_cache
from weft.store.reader import StoreReader

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.search.statistics import StatisticsQuery

T = TypeVar("T")

# Indexing this many messages takes no noticeable time.
MAX_UPDATED_MESSAGES = 100


def _ignore_error(_: IndexFailedError) -> None:
    pass


class ReaderSource:
    """Reads sessions and their stamps from a store, for the index."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._duplicates: set[SessionID] = set()

    def list_stamps(self) -> dict[SessionKey, Stamp]:
        stamps = self._reader.list_stamps()
        projects: dict[SessionID, ProjectID] = {}
        for project, id in stamps:
            if projects.setdefault(id, project) != project:
                self._duplicates.add(id)
        return stamps

    def read(self, key: SessionKey) -> StampedSession | None:
        return self._read(key, lambda: self._reader.list_messages(key[1]))

    def read_some(self, key: SessionKey, ids: Iterable[MessageID]) -> StampedSession | None:
        """Read a session with these messages only."""
        return self._read(
            key, lambda: [message for id in ids if (message := self._reader.find_message(key[1], id))]
        )

    def _read(self, key: SessionKey, messages: Callable[[], list[MessageWithParts]]) -> StampedSession | None:
        project, id = key
        # The stamp is taken before reading, so that a change meanwhile is noticed later.
        stamp = self._reader.find_sure_stamp(project, id) or UNKNOWN_STAMP
        session = self._reader.find_session_in(project, id)
        if session is None or (id in self._duplicates and self.find_project(id) != project):
            return None  # it is gone, or it is in two projects and the other document is newer
        return StampedSession(session, stamp, [to_entry(message) for message in messages()])

    def find_project(self, id: SessionID) -> ProjectID | None:
        session = self._reader.find_session(id)
        return None if session is None else session.project_id

    def list_ids(self, session: SessionID) -> set[MessageID]:
        return set(self._reader.list_message_ids(session))


class SessionLibrary:
    """Searches all sessions. `warn` is called with the reason if the index cannot be used."""

    def __init__(
        self, reader: StoreReader, cache: str, *, warn: Callable[[IndexFailedError], None] = _ignore_error
    ) -> None:
        self.file = IndexFile(index_path(cache, reader.address), reader.address)
        self._cache = cache
        self._source = ReaderSource(reader)
        self._warn = warn

    def search(
        self,
        words: str,
        *,
        limit: int,
        project: ProjectID | None = None,
        progress: IndexProgress = ignore_progress,
    ) -> list[Hit]:
        from weft.search.query import search_index  # noqa: PLC0415  a run updates the index, and searches nothing

        return self._query(
            lambda database: search_index(database, words, project=project, limit=limit), progress
        )

    def figures(self, wanted: StatisticsQuery, *, progress: IndexProgress = ignore_progress) -> Figures:
        from weft.search.statistics import compute_figures  # noqa: PLC0415  a run updates the index, and searches nothing

        return self._query(lambda database: compute_figures(database, wanted), progress)

    def refresh(self, progress: IndexProgress = ignore_progress) -> None:
        """Update the index, and the list caches if anything had changed."""
        if refresh_index(self.file, self._source, progress):
            with suppress(IndexFailedError):  # without a cache, lists read the files
                self.write_caches()

    def write_caches(self) -> None:
        """Write the list caches of projects in which many sessions changed."""
        with open_for_reading(*self.file) as database:
            stale = list_stale_caches(database)
            for project in stale:
                write_list_cache(self._cache, self.file.root, project, list_documents(database, project))
        if stale:
            with open_for_writing(*self.file) as database:
                mark_cached(database, stale)

    def update_messages(self, id: SessionID, messages: set[MessageID]) -> None:
        """Update these messages of a session in the index, and add others that are missing.

        If a long session is missing, add only some messages: this must be fast, and the next search indexes the rest.
        """
        project = self._source.find_project(id)
        with open_for_writing(*self.file) as database:
            for key in list_keys(database, id):
                if key[0] != project:
                    drop_session(database, key)
            if project is None:
                return
            stored, indexed = self._source.list_ids(id), list_messages(database, (project, id))
            selected = [*(stored & messages), *(stored - indexed - messages)]
            stamped = self._source.read_some((project, id), selected[:MAX_UPDATED_MESSAGES])
            if stamped is not None:
                stamp = stamped.stamp if len(selected) <= MAX_UPDATED_MESSAGES else UNKNOWN_STAMP
                update_session(database, stamped._replace(stamp=stamp), removed=indexed - stored)

    def _query(self, query: Callable[[IndexDatabase], T], progress: IndexProgress) -> T:
        try:
            return self._query_index(query, progress)
        except IndexFailedError as error:
            self._warn(error)
        with open_in_memory(self.file.root) as database:
            stamps = self._source.list_stamps()
            with database.open_transaction():
                for number, key in enumerate(stamps):
                    replace_sessions(database, [(key, self._source.read(key))])
                    progress(number + 1, len(stamps))
            return query(database)

    def _query_index(self, query: Callable[[IndexDatabase], T], progress: IndexProgress) -> T:
        try:
            self.refresh(progress)
            with open_for_reading(*self.file) as database:
                return query(database)
        except IndexFailedError as error:
            if not error.broken:
                raise
        # The index was found broken only by the query: rebuild it, once.
        discard_index(self.file.path)
        self.refresh(progress)
        with open_for_reading(*self.file) as database:
            return query(database)


@contextmanager
def open_in_memory(root: str) -> Generator[IndexDatabase]:
    """Open an index in memory. It is private and temporary."""
    database = connect(":memory:", writes=True)
    try:
        create_tables(database, root)
        yield database
    finally:
        database.close()
