"""Search the sessions of a tree through an index that is updated from the tree."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from weft.errors import IndexFailedError
from weft.host.files import Stamp
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import MessageWithParts
from weft.model.search import Figures, Hit
from weft.store.files.index import (
    UNKNOWN_STAMP,
    IndexFile,
    SessionKey,
    StampedSession,
    drop_session,
    list_keys,
    list_messages,
    refresh_index,
    replace_sessions,
    update_session,
)
from weft.store.files.index_database import (
    IndexDatabase,
    discard_index,
    index_path,
    open_for_reading,
    open_for_writing,
    open_in_memory,
)
from weft.store.files.messages import MessageReader
from weft.store.files.tree import Tree
from weft.store.search import IndexProgress, IndexWarning, to_entry

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.store.statistics import StatisticsQuery

T = TypeVar("T")

# Indexing this many messages takes no noticeable time.
MAX_UPDATED_MESSAGES = 100


class TreeSource:
    """Reads sessions and their stamps from a tree, for the index."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._messages = MessageReader(tree)
        self._duplicates: set[SessionID] = set()

    def list_stamps(self) -> dict[SessionKey, Stamp]:
        stamps = self._tree.list_stamps()
        projects: dict[SessionID, ProjectID] = {}
        for project, id in stamps:
            if projects.setdefault(id, project) != project:
                self._duplicates.add(id)
        return stamps

    def read(self, key: SessionKey) -> StampedSession | None:
        return self._read(key, lambda: self._messages.list_messages(key[1]))

    def read_some(self, key: SessionKey, ids: Iterable[MessageID]) -> StampedSession | None:
        """Read a session with these messages only."""
        return self._read(
            key, lambda: [message for id in ids if (message := self._messages.find_message(key[1], id))]
        )

    def _read(self, key: SessionKey, messages: Callable[[], list[MessageWithParts]]) -> StampedSession | None:
        project, id = key
        # The stamp is taken before reading, so that a change meanwhile is noticed later.
        stamp = self._tree.find_sure_stamp(project, id) or UNKNOWN_STAMP
        session = self._tree.find_session_in(project, id)
        if session is None or (id in self._duplicates and self.find_project(id) != project):
            return None  # it is gone, or it is in two projects and the other document is newer
        return StampedSession(session, stamp, [to_entry(message) for message in messages()])

    def find_project(self, id: SessionID) -> ProjectID | None:
        session = self._tree.find_session(id)
        return None if session is None else session.project_id

    def list_ids(self, session: SessionID) -> set[MessageID]:
        return set(self._tree.list_message_ids(session))


class SessionIndex:
    """Searches all sessions of a tree through an index below the directory `cache`, which it updates first.

    Without such a directory, or if the index there cannot be used, each query reads everything into an index in memory. In the
    latter case `warn` is called with the reason.
    """

    def __init__(self, tree: Tree, cache: str | None, *, warn: IndexWarning = lambda _: None) -> None:
        self._root = tree.layout.root
        self._cache = cache
        self._source = TreeSource(tree)
        self._warn = warn

    @property
    def file(self) -> IndexFile:
        """The file of the index. Raise `IndexFailedError` if there is no directory for it."""
        if self._cache is None:
            raise IndexFailedError("there is no directory for it")
        return IndexFile(index_path(self._cache, self._root), self._root)

    def search(
        self,
        words: str,
        *,
        limit: int,
        project: ProjectID | None = None,
        progress: IndexProgress = lambda _done, _total: None,
    ) -> list[Hit]:
        from weft.store.files.index_query import search_index  # noqa: PLC0415  a run updates the index, and searches nothing

        return self._query(
            lambda database: search_index(database, words, project=project, limit=limit), progress
        )

    def figures(
        self, wanted: StatisticsQuery, *, progress: IndexProgress = lambda _done, _total: None
    ) -> Figures:
        from weft.store.files.index_query import compute_figures  # noqa: PLC0415  a run updates the index, and searches nothing

        return self._query(lambda database: compute_figures(database, wanted), progress)

    def refresh(self, progress: IndexProgress = lambda _done, _total: None) -> None:
        """Update the index from the tree."""
        refresh_index(self.file, self._source, progress)

    def update(self, changed: Mapping[SessionID, Collection[MessageID]]) -> None:
        """Update these messages in the index. A change that cannot be added is noticed by its stamp at the next search."""
        with suppress(IndexFailedError), open_for_writing(*self.file) as database:
            for session, messages in changed.items():
                with suppress(OSError):
                    self._update(database, session, set(messages))

    def _update(self, database: IndexDatabase, id: SessionID, messages: set[MessageID]) -> None:
        """Update these messages of a session, and add others that are missing.

        If a long session is missing, add only some messages: this must be fast, and the next search indexes the rest.
        """
        project = self._source.find_project(id)
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
        failed: IndexFailedError | None = None
        if self._cache is not None:
            try:
                return self._query_index(query, progress)
            except IndexFailedError as error:
                failed = error
        stamps = self._source.list_stamps()
        if failed is not None and stamps:  # before the first session there is nothing to index
            self._warn(failed)
        with open_in_memory(self._root) as database:
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
