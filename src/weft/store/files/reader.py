"""Read the JSON tree without an event loop: the `StoreReader` of files."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.session import SessionInfo
from weft.model.session_query import SessionQuery, select_sessions
from weft.store.files.list_cache import list_cached_sessions
from weft.store.files.tree import Tree

if TYPE_CHECKING:  # a list of sessions reads no message
    from weft.model.message import MessageWithParts
    from weft.model.search import Figures, Hit
    from weft.model.session import TrashBundle
    from weft.store.files.creation_order import CreationOrder
    from weft.store.files.log import LogFiles
    from weft.store.files.search import SessionIndex
    from weft.store.search import IndexProgress, IndexWarning
    from weft.store.statistics import StatisticsQuery


class FileReader(Tree):
    """The tree with its messages, its trash, its leases and its index. Their modules are loaded when they are first needed.

    The index and other caches are below the directory `cache`. `warn` is called if the index cannot be used. With `writes`, the order
    of sessions is written into the tree.
    """

    def __init__(
        self,
        root: str,
        *,
        cache_bytes: int = 0,
        cache: str | None = None,
        warn: IndexWarning = lambda _: None,
        writes: bool = False,
    ) -> None:
        super().__init__(root, cache_bytes=cache_bytes)
        self._writes = writes
        self._cache = cache
        self._warn = warn

    @property
    def address(self) -> str:
        return self.layout.root

    def list_sessions(self, project: ProjectID | None = None, *, prefix: str = "") -> list[SessionInfo]:
        cached = None
        if project is not None and self._cache is not None and not prefix:
            cached = list_cached_sessions(self, self._cache, project)
        return super().list_sessions(project, prefix=prefix) if cached is None else cached

    def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        from weft.store.files.messages import MessageReader  # noqa: PLC0415  a list of sessions reads none

        return MessageReader(self).list_messages(session, last=last, before=before)

    def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        from weft.store.files.messages import MessageReader  # noqa: PLC0415  a list of sessions reads none

        return MessageReader(self).find_message(session, id)

    def list_trash(self) -> list[TrashBundle]:
        from weft.store.files.trash import Trash  # noqa: PLC0415  few commands need it

        return Trash(self).list_bundles()

    def list_running(self) -> set[SessionID]:
        from weft.store.files.lock import list_abandoned, list_leased  # noqa: PLC0415  few commands need it

        return list_leased(self.layout) - set(list_abandoned(self.layout))

    def query_sessions(self, query: SessionQuery) -> list[SessionInfo]:
        page = None
        if query.order == "created" or query.parent_id is not None:
            page = self._order.query(query)
        if page is not None:
            return page
        return select_sessions(self.list_sessions(query.project_id, prefix=query.id_prefix or ""), query)

    @cached_property
    def _order(self) -> CreationOrder:
        from weft.store.files.creation_order import CreationOrder  # noqa: PLC0415  few commands need it

        return CreationOrder(self, writes=self._writes)

    def read_log(self, log: tuple[str, ...]) -> list[bytes]:
        return self._logs().read(log)

    def list_logs(self, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        return self._logs().list_keys(prefix)

    def _logs(self) -> LogFiles:
        from weft.host.files import Disk  # noqa: PLC0415  few commands need it
        from weft.store.files.log import LogFiles  # noqa: PLC0415  few commands need it

        return LogFiles(self.layout, Disk())

    @cached_property
    def _index(self) -> SessionIndex:
        from weft.store.files.search import SessionIndex  # noqa: PLC0415  few commands need it

        return SessionIndex(self, self._cache, warn=self._warn)

    def search(
        self,
        words: str,
        *,
        limit: int,
        project: ProjectID | None = None,
        progress: IndexProgress = lambda _done, _total: None,
    ) -> list[Hit]:
        return self._index.search(words, limit=limit, project=project, progress=progress)

    def figures(
        self, query: StatisticsQuery, *, progress: IndexProgress = lambda _done, _total: None
    ) -> Figures:
        return self._index.figures(query, progress=progress)
