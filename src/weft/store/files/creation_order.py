"""The order in which sessions were created, kept in the tree, so that a page of sessions reads few documents.

Neither weft nor OpenCode changes the creation time or the parent of a session once it exists. So the names of the documents tell
whether the order is complete, and only documents on the page are read. A writer of ours that does change one of the two, or
removes a document whose name may be used again, reports that with `note_changes`. Whoever finds that OpenCode removed a document
reports it, too.
"""

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from heapq import merge
from typing import Final

import msgspec
from msgspec import Struct

from weft.errors import InvalidIdError
from weft.host.files import (
    Stamp,
    has_final_stamp,
    hold_lock,
    make_directory,
    read_file,
    stamp_of,
    try_lock,
    write_atomic,
)
from weft.model.ids import ProjectID, SessionID, check_file_name
from weft.model.session import SessionInfo
from weft.model.session_query import SessionQuery, matches, parse_cursor, select_sessions
from weft.store.files.documents import LIMIT
from weft.store.files.layout import SUFFIX, Layout
from weft.store.files.tree import Tree

# Fewer documents are read about as fast as their order.
MIN_ORDERED: Final = 32
# With more unknown documents than this, and than one in fifty, the order is written again.
MAX_UNKNOWN: Final = 64
UNKNOWN_SHARE: Final = 50
# If few sessions match a query, reading all documents at once is faster than one by one.
MAX_SCANNED: Final = 200
LOCK: Final = "order"
ORDER: Final = "order.json"
CHANGES: Final = "changes"
NS_PER_MS: Final = 1_000_000


class OrderEntry(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """A session: the time of its creation, negated so that newer ones come first, its id, and its parent."""

    newness: int
    id: SessionID
    parent: SessionID | None


class ProjectOrder(Struct, frozen=True):
    """The sessions of a project, newest first.

    `file` is the stamp of the file that they were read from, and `changes` what had been reported since it was written. `listed` is
    the stamp of the directory of documents, None if the directory could change again without a new stamp.
    """

    entries: Sequence[OrderEntry]
    file: Stamp
    changes: bytes = b""
    listed: Stamp | None = None


Orders = Sequence[tuple[ProjectID, Sequence[OrderEntry]]]
_decoder = msgspec.json.Decoder(list[OrderEntry])


class CreationOrder:
    """Answers queries that are sorted by creation, or ask for the children of a session. Many threads may use it.

    With `writes`, the order of a project is written if it is missing or too old.
    """

    def __init__(self, tree: Tree, *, writes: bool) -> None:
        self._tree = tree
        self._layout = tree.layout
        self._writes = writes
        self._known: dict[ProjectID, ProjectOrder] = {}

    def query(self, query: SessionQuery) -> list[SessionInfo] | None:
        """Return the sessions that match a query; None if reading all documents is the better way."""
        if query.id_prefix is not None or query.pinned_first:
            return None  # file names find ids with a prefix, and pinned sessions first is another order
        if query.parent_id is None and (query.order != "created" or query.limit is None):
            return None
        projects = self._tree.list_session_projects() if query.project_id is None else [query.project_id]
        orders: list[tuple[ProjectID, Sequence[OrderEntry]]] = []
        for project in projects:
            entries = self._refresh(project)
            if entries is None:
                return None
            orders.append((project, entries))
        if len(orders) > 1 and _has_duplicates(orders):
            return None  # an interrupted move left a session in two projects
        return (
            self._read_page(orders, query) if query.parent_id is None else self._read_children(orders, query)
        )

    def _read_children(self, orders: Orders, query: SessionQuery) -> list[SessionInfo] | None:
        found: list[SessionInfo] = []
        for project, entries in orders:
            for entry in entries:
                if entry.parent == query.parent_id:
                    session = self._tree.find_session_in(project, entry.id)
                    if session is not None and _to_entry(session) != entry:
                        self._discard(project)
                        return None
                    found += [] if session is None else [session]
        return select_sessions(found, query)

    def _read_page(self, orders: Orders, query: SessionQuery) -> list[SessionInfo] | None:
        limit, found = query.limit or 0, list[SessionInfo]()
        candidates = merge(*(_iterate_page(project, entries, query) for project, entries in orders))
        for scanned, (entry, project) in enumerate(candidates):
            if len(found) >= limit:
                break
            if scanned > MAX_SCANNED + 2 * limit:
                return None
            session = self._tree.find_session_in(project, entry.id)
            if session is None:
                continue  # it was removed meanwhile, or is unreadable
            if _to_entry(session) != entry:
                self._discard(project)
                return None
            if matches(session, query):
                found.append(session)
        return found

    def _refresh(self, project: ProjectID) -> Sequence[OrderEntry] | None:
        """Return the sessions of a project, newest first; None if their order is not known."""
        directory = self._layout.order(project)
        # Changes are removed only after the order was replaced. Read before the order, they are at least those since then.
        changes = _read(f"{directory}/{CHANGES}")
        known, path = self._known.get(project), f"{directory}/{ORDER}"
        if known is None or known.file != _find_stamp(path) or not changes.startswith(known.changes):
            known = _load(path)
        if known is None:
            return self._begin(project)
        listed = _find_stamp(self._layout.sessions(project), only_final=True)
        reported = changes[len(known.changes) :]
        if not reported and listed is not None and listed == known.listed:
            return known.entries
        entries, unknown = self._merge(project, known.entries, reported)
        if self._writes and len(entries) - unknown < len(known.entries):
            self._note_removed(project, known.entries, entries, reported)
        self._known[project] = ProjectOrder(entries, known.file, changes, listed)
        if unknown > max(MAX_UNKNOWN, len(entries) // UNKNOWN_SHARE):
            self._write(project)
        return entries

    def _note_removed(
        self,
        project: ProjectID,
        before: Iterable[OrderEntry],
        after: Iterable[OrderEntry],
        reported: bytes,
    ) -> None:
        """Report documents that are gone. The order on the disk has them, and would know a namesake by the old time and parent."""
        found = {entry.id for entry in after}.union(_parse_changes(reported))
        removed = [entry.id for entry in before if entry.id not in found]
        note_changes(self._layout, (f"session/{project}/{id}{SUFFIX}" for id in removed))

    def _begin(self, project: ProjectID) -> Sequence[OrderEntry] | None:
        """Read a small project. Write the order of a large one, None if that is not possible."""
        self._known.pop(project, None)
        if len(self._list_names(project)) < MIN_ORDERED:
            return self._merge(project, (), b"")[0]
        return self._write(project)

    def _write(self, project: ProjectID) -> Sequence[OrderEntry] | None:
        """Write the order, and return it; None if that is not possible now. Failures are ignored."""
        if not self._writes:
            return None
        directory = self._layout.order(project)
        path = f"{directory}/{ORDER}"
        try:
            with try_lock(self._layout.lock(LOCK)) as mine:
                if not mine:
                    return None
                # Before the documents are read: from now on, writers report changes.
                make_directory(directory)
                changes, known = _read(f"{directory}/{CHANGES}"), _load(path)
                entries, _ = self._merge(project, known.entries if known else (), changes)
                write_atomic(path, msgspec.json.encode(entries), temp=f"{path}~", flush=True)
                if changes:
                    os.unlink(f"{directory}/{CHANGES}")
        except OSError:
            return None
        return entries

    def _merge(
        self, project: ProjectID, entries: Sequence[OrderEntry], reported: bytes
    ) -> tuple[Sequence[OrderEntry], int]:
        """Return the entries of the sessions that exist, including those that the order lacked, and how many it lacked."""
        names, stale = self._list_names(project), _parse_changes(reported)
        kept = [entry for entry in entries if entry.id in names and entry.id not in stale]
        others: list[OrderEntry] = []
        for name in names.difference(entry.id for entry in kept):
            with suppress(InvalidIdError):
                session = self._tree.find_session_in(project, SessionID(check_file_name("session", name)))
                others += [] if session is None else [_to_entry(session)]
        return (list(merge(kept, sorted(others))) if others else kept), len(others)

    def _list_names(self, project: ProjectID) -> set[str]:
        with suppress(FileNotFoundError, NotADirectoryError):
            names = os.listdir(self._layout.sessions(project))
            return {name[: -len(SUFFIX)] for name in names if name.endswith(SUFFIX) and name[0] != "."}
        return set()

    def _discard(self, project: ProjectID) -> None:
        """Remove an order that a document contradicts: somebody edited the document."""
        self._known.pop(project, None)
        with suppress(OSError), hold_lock(self._layout.lock(LOCK)):
            os.unlink(f"{self._layout.order(project)}/{ORDER}")


def note_changes(layout: Layout, paths: Iterable[str]) -> None:
    """Report changes that contradict the order. `paths` are relative to the root; those of other documents are ignored."""
    changed: dict[str, list[str]] = {}
    for path in paths:
        match path.split("/"):
            case ["session", project, name]:
                changed.setdefault(project, []).append(name.removesuffix(SUFFIX))
            case _:
                pass
    for project, ids in changed.items():
        directory = layout.order(ProjectID(project))
        # Without a directory, nobody has begun to read the documents for an order. Whoever reads them holds the lock.
        if os.path.isdir(directory):
            with suppress(OSError), hold_lock(layout.lock(LOCK)):
                _append(directory, "".join(f"{id}\n" for id in ids).encode())


def _append(directory: str, lines: bytes) -> None:
    if not os.path.exists(f"{directory}/{ORDER}"):
        return
    try:
        with open(f"{directory}/{CHANGES}", "ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        os.unlink(f"{directory}/{ORDER}")  # no order is better than a wrong one


def _parse_changes(lines: bytes) -> set[str]:
    return set(lines.decode(errors="replace").split())


class _HeadTime(msgspec.Struct, frozen=True):
    created: int


class _DocumentHead(msgspec.Struct, frozen=True):
    time: _HeadTime
    parent: str | None = msgspec.field(default=None, name="parentID")


def is_reordered(layout: Layout, path: str, raw: bytes) -> bool:
    """Return True if the order may know a session with another creation time or parent than in this document.

    A new document may have had a namesake that OpenCode removed, unless it is younger than the order.
    """
    head = _find_head(raw)
    try:
        return _find_head(read_file(path, limit=LIMIT)[0]) != head
    except FileNotFoundError:
        order = _find_stamp(f"{layout.order(ProjectID(path.split('/')[-2]))}/{ORDER}")
        return order is not None and (head is None or head.time.created * NS_PER_MS <= order[0])


def _find_head(raw: bytes) -> _DocumentHead | None:
    try:
        return msgspec.json.decode(raw, type=_DocumentHead)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _to_entry(session: SessionInfo) -> OrderEntry:
    return OrderEntry(-session.time.created, session.id, session.parent_id)


def _has_duplicates(orders: Orders) -> bool:
    ids = [entry.id for _, entries in orders for entry in entries]
    return len(set(ids)) < len(ids)


def _iterate_page(
    project: ProjectID, entries: Sequence[OrderEntry], query: SessionQuery
) -> Iterator[tuple[OrderEntry, ProjectID]]:
    """Yield the entries that a page may contain, from its cursor on."""
    start = 0
    if query.after is not None:
        cursor = parse_cursor(query.after)
        start = bisect_right(entries, (-cursor.time, cursor.id), key=lambda entry: (entry.newness, entry.id))
    for entry in entries[start:]:
        if not (query.roots and entry.parent):
            yield entry, project


def _load(path: str) -> ProjectOrder | None:
    try:
        raw, status = read_file(path, limit=LIMIT)
        return ProjectOrder(_decoder.decode(raw), stamp_of(status))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _read(path: str) -> bytes:
    with suppress(OSError):
        return read_file(path, limit=LIMIT)[0]
    return b""


def _find_stamp(path: str, *, only_final: bool = False) -> Stamp | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return None if only_final and not has_final_stamp(status) else stamp_of(status)
