"""A tree for a process that lives long: lists of a large project stay in memory, and only documents that changed are looked at again.

OpenCode overwrites documents in place. Their stamps tell that, and so does the kernel, if the tree is on a local file system of Linux.
Where the kernel does not tell (`host/directory_watch.py`), every stamp is looked at.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from weft.errors import InvalidIdError
from weft.model.ids import ProjectID, check_file_name
from weft.model.session import SessionInfo
from weft.model.session_query import SORT_KEYS, Order, SessionQuery, select_page
from weft.store.files.layout import SUFFIX
from weft.store.files.tree import Tree

if TYPE_CHECKING:  # few processes watch
    from weft.host.directory_watch import DirectoryWatcher

# The stamps of fewer documents are looked at in less than a millisecond.
MIN_WATCHED: Final = 100
# The kernel does not report everything: not a write through a mapping of a file into memory, nor by another name of the file (a
# hard link), nor always one by an NFS client of this machine. So everything is looked at again after a while.
MAX_AGE_SECONDS: Final = 60.0
# Documents that have to be looked at for each list, because a second hard link could change them, or because they are unreadable.
MAX_DOUBTFUL: Final = 100

Orders = dict[Order, list[SessionInfo]]


class _ProjectList(Struct, eq=False):
    """What is known of a project: its sessions by id, and sorted; `orders` is None if it is not watched.

    Every document is looked at again at `expires` (s). The lists in `orders` are replaced, never changed, because other threads read
    them.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    is_asked: bool = False
    sessions: dict[str, SessionInfo] = field(default_factory=dict)
    orders: Orders | None = None
    doubtful: set[str] = field(default_factory=set)
    size: int = 0
    expires: float = 0.0


class _DocumentFacts(Struct, frozen=True):
    """Which documents exist, which of them have more than one hard link, and how many bytes they have together."""

    names: set[str]
    linked: set[str]
    size: int


class WatchedTree(Tree):
    """The tree, which watches directories of sessions from the second list on. Many threads may use it.

    Documents of up to `cache_bytes` bytes are kept in lists, and as many in the cache of single documents, mostly the same ones.
    """

    def __init__(
        self,
        root: str,
        *,
        cache_bytes: int = 0,
        watcher: DirectoryWatcher | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(root, cache_bytes=cache_bytes)
        self._open_watcher = watcher  # made when the first directory is watched
        self._is_closed = False
        self._monotonic = monotonic
        self._max_bytes = cache_bytes
        self._lists: dict[ProjectID, _ProjectList] = {}

    def close(self) -> None:
        """Watch nothing any more. From now on, a list looks at every document."""
        self._is_closed = True
        if self._open_watcher is not None:
            self._open_watcher.close()

    @property
    def _watcher(self) -> DirectoryWatcher:
        if self._open_watcher is None:
            from weft.host.directory_watch import DirectoryWatcher  # noqa: PLC0415  few processes watch

            self._open_watcher = DirectoryWatcher()
        return self._open_watcher

    def find_page(self, query: SessionQuery) -> list[SessionInfo] | None:
        """Return the sessions that match a query; None if its project is not watched.

        None also for children and for the beginning of an id, which are found faster without a list, and for pinned sessions first.
        """
        if query.project_id is None or query.id_prefix or query.parent_id is not None or query.pinned_first:
            return None
        known = self._lists.get(query.project_id)
        if known is None:
            return None
        with known.lock:
            orders = self._update(query.project_id, known)
        return None if orders is None else select_page(orders[query.order], query)

    def _sessions_of(self, project: ProjectID, prefix: str = "") -> list[SessionInfo]:
        if prefix:
            return super()._sessions_of(project, prefix)
        orders = self._watch(project)
        return super()._sessions_of(project) if orders is None else orders["created"]

    def _watch(self, project: ProjectID) -> Orders | None:
        """Return the sessions of a project, None if it is not watched."""
        known = self._lists.setdefault(project, _ProjectList())
        if not known.is_asked:
            known.is_asked = True  # most processes list once, so watching does not pay yet
            return None
        with known.lock:
            orders = self._update(project, known)
            if orders is None and self._monotonic() >= known.expires:
                known.expires = self._monotonic() + MAX_AGE_SECONDS
                orders = known.orders = self._look(project, known)
        return orders

    def _look(self, project: ProjectID, known: _ProjectList) -> Orders | None:
        """Begin to watch, then look at every document. Return None if that does not pay, or if changes would not be reported."""
        directory = self.layout.sessions(project)
        if self._is_closed or len(self._scan_sessions(directory)[0]) < MIN_WATCHED:
            return None
        if not self._watcher.start(directory):
            return None
        names, others = self._scan_sessions(directory)
        facts = None if others else _examine(directory, names)
        if facts is None:
            return None
        known.size = 0  # the list that it had is replaced, and must not be counted with the new one
        if facts.size + sum(each.size for each in list(self._lists.values())) > self._max_bytes:
            return None
        sessions = self._read_sessions(project, list(facts.names))
        known.doubtful = _find_doubtful(facts, sessions)
        if len(known.doubtful) > MAX_DOUBTFUL or not self._watcher.is_watched(directory):
            return None
        known.size, known.sessions = facts.size, {session.id: session for session in sessions}
        return {order: sorted(sessions, key=SORT_KEYS[order]) for order in SORT_KEYS}

    def _update(self, project: ProjectID, known: _ProjectList) -> Orders | None:
        """Look at the documents that changed, and return all sessions; None if every document has to be looked at."""
        if known.orders is None:
            return None
        directory, orders, expires = self.layout.sessions(project), known.orders, known.expires
        # Until all of this has worked, the list is not known to be right.
        known.orders, known.expires = None, 0.0
        if self._monotonic() >= expires:
            return None
        changed = self._watcher.take_changes(directory)
        names = None if changed is None else _find_document_names(directory, changed)
        if names is None:
            return None
        names |= known.doubtful
        if names:
            facts = _examine(directory, names)
            if facts is None:
                return None
            # Missing ones are read too: then they are no longer reported as problems.
            sessions = self._read_sessions(project, list(names))
            known.doubtful = _find_doubtful(facts, sessions)
            if len(known.doubtful) > MAX_DOUBTFUL or not self._watcher.is_watched(directory):
                return None
            old = [session for name in names if (session := known.sessions.pop(name, None)) is not None]
            known.sessions.update((session.id, session) for session in sessions)
            orders = {order: _replace(listed, old, sessions, order) for order, listed in orders.items()}
        known.orders, known.expires = orders, expires
        return orders


def _find_document_names(directory: str, files: Iterable[str]) -> set[str] | None:
    """Return the names of documents among files that changed; None if there is something else in the directory now."""
    names: set[str] = set()
    for file in files:
        name = file.removesuffix(SUFFIX)
        if name != file and not file.startswith(".") and _is_id(name):
            names.add(name)
        elif not file.startswith(".") and os.path.lexists(f"{directory}/{file}"):
            return None
    return names


def _is_id(name: str) -> bool:
    try:
        check_file_name("document", name)
    except InvalidIdError:
        return False
    return True


def _examine(directory: str, names: Collection[str]) -> _DocumentFacts | None:
    """Return facts about the documents with these names; None if one is not a file, such as a link to one that is elsewhere."""
    found, linked, size = set[str](), set[str](), 0
    with ExitStack() as stack:
        try:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, fd)
            for name in names:
                with suppress(FileNotFoundError):
                    status = os.stat(name + SUFFIX, dir_fd=fd, follow_symlinks=False)
                    if not stat.S_ISREG(status.st_mode):
                        return None
                    found.add(name)
                    size += status.st_size
                    if status.st_nlink > 1:
                        linked.add(name)
        except OSError:
            return None
    return _DocumentFacts(found, linked, size)


def _find_doubtful(facts: _DocumentFacts, sessions: Iterable[SessionInfo]) -> set[str]:
    """Return the documents that have to be looked at for each list: the unreadable ones are problems, reported each time."""
    return facts.linked | facts.names.difference(session.id for session in sessions)


def _replace(
    listed: Sequence[SessionInfo], old: Iterable[SessionInfo], new: Iterable[SessionInfo], order: Order
) -> list[SessionInfo]:
    """Return a copy of a sorted list, with some sessions replaced."""
    found, key = list(listed), SORT_KEYS[order]
    for session in old:
        del found[bisect_left(found, key(session), key=key)]
    for session in new:
        insort(found, session, key=key)
    return found
