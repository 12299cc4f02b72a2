"""Maintenance of a JSON tree: `StoreMaintenance` and `StoreRepairer` of files.

Sizes are counted by kind, project and session, as the paths of the files say. Diffs that contain whole files are found and shrunk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import IndexFailedError, StoreError
from weft.host.files import read_file
from weft.model.damage import Damage
from weft.model.diff import cap_diffs, is_capped
from weft.model.event import Durable, MessageUpdated, SessionCreated, SessionDiffed, SessionUpdated
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.message import AnyMessage
from weft.model.session import SessionInfo
from weft.store.chain import DIFF_KEY, TODO_KEY, ChainLines, message_key, part_key
from weft.store.contract import RootCommit, SessionEditor
from weft.store.files.backup import MAINTENANCE_LOCK, BackupWriter
from weft.store.files.chain import list_chains, read_chain_lines
from weft.store.files.documents import LIMIT, NOT_A_DIRECTORY, NOT_A_DOCUMENT, NOT_AN_ID
from weft.store.files.index_database import discard_index, index_path, open_for_reading
from weft.store.files.inventory import (
    Inventory,
    find_damage,
    find_misplaced,
    find_orphans,
    list_names,
    measure_usage,
    take_inventory,
)
from weft.store.files.layout import SUFFIX, Layout, session_lock
from weft.store.files.leftovers import LeftoverFinder, remove_leftovers
from weft.store.files.lock import drop_abandoned, list_abandoned
from weft.store.files.reader import FileReader
from weft.store.files.tree import FORMAT, Tree, list_owners
from weft.store.files.upgrade import prepare_tree
from weft.store.findings import (
    AbandonedLease,
    DocumentFault,
    LargeDocument,
    Leftover,
    RemovedLeftovers,
    SetAside,
)
from weft.store.repair_documents import rebuild_session, shrink_message
from weft.store.sizes import REPORT_EVERY, ProgressCallback, SizeCounter, walk_files

CACHE_BYTES = 64 << 20
# From here on, lists and searches in a database are several times faster than in a tree.
MANY_SESSIONS = 3_000
FOREIGN_REASONS = (NOT_A_DOCUMENT, NOT_A_DIRECTORY, NOT_AN_ID)
# A smaller document cannot contain a diff that exceeds the bounds.
SUSPECT_BYTES = 64 << 10

# What files count as, by the name of their collection: at the top of the tree, and below `.weft`.
COLLECTION_KINDS = {
    "project": "project",
    "session": "session",
    "message": "message",
    "part": "part",
    "session_diff": "diff",
    "todo": "todo",
    "session_share": "kept",
    "share": "kept",
    "permission": "kept",
    "migration": "housekeeping",
}
OWN_KINDS = {
    "growth": "growth",
    "trash": "trash",
    "backup": "backups",
    "kept": "kept",
    "index": "index",
    "log": "kept",
    "lock": "housekeeping",
    "temp": "housekeeping",
    "redo": "housekeeping",
    "run": "housekeeping",
    "chain": "chain",
    "upgrade": "housekeeping",
}
OTHER_KIND = "other"


class FileMaintenance:
    """Inspects one tree."""

    def __init__(self, root: str, root_commit: RootCommit, *, cache: str | None = None) -> None:
        self.reader = FileReader(root, cache_bytes=CACHE_BYTES, cache=cache)
        self._layout = self.reader.layout
        self._index = None if cache is None else index_path(cache, self._layout.root)
        self.url = f"file:{self._layout.root}"
        self._root_commit = root_commit

    @cached_property
    def _inventory(self) -> Inventory:
        return take_inventory(self._layout)

    def check_format(self) -> None:
        self.reader.format()

    def is_outdated(self) -> bool:
        return self.reader.format() < FORMAT

    def upgrade(self) -> None:
        if not self.reader.is_ready():
            prepare_tree(self.reader, self._root_commit)

    def list_session_ids(self) -> list[SessionID]:
        return [SessionID(name) for name in sorted(self._inventory.sessions)]

    def has_session(self, id: str) -> bool:
        return self._inventory.is_there(id)

    def measure(self, counter: SizeCounter) -> None:
        _measure_tree(self._layout, self._inventory, counter)
        if self._index is not None:
            for file in walk_files(self._index):
                counter.add(file.size, kind="index")

    def find_damage(self) -> list[DocumentFault]:
        return [
            DocumentFault(
                kind="foreign" if damage.reason in FOREIGN_REASONS else "unreadable",
                where=damage.where,
                reason=damage.reason,
            )
            for damage in find_damage(self.reader)
        ]

    def find_misplaced(self, session: SessionID) -> list[DocumentFault]:
        return find_misplaced(self.reader, self._inventory, session)

    def find_orphans(self) -> list[DocumentFault]:
        return find_orphans(self._inventory)

    def find_leftovers(self, *, before: int) -> list[Leftover]:
        return LeftoverFinder(self.reader, self._inventory, before=before).find()

    def find_large(self, *, on_progress: ProgressCallback = lambda _: None) -> list[LargeDocument]:
        return _find_large(self.reader, self._inventory, on_progress)

    def find_in_parts(self, pattern: str, *, on_progress: ProgressCallback = lambda _: None) -> set[str]:
        found: set[str] = set()
        matcher, collection = re.compile(pattern.encode()), self._layout.collection("part")
        paths = (
            f"{collection}/{message}/{name}"
            for message in list_names(collection)
            for name in list_names(f"{collection}/{message}")
        )
        for number, path in enumerate(paths):
            try:
                raw, _ = read_file(path, limit=LIMIT)
            except OSError as error:
                raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
            found.update(match.group().decode() for match in matcher.finditer(raw))
            if number % REPORT_EVERY == 0:
                on_progress(number)
        return found

    def list_abandoned(self) -> list[AbandonedLease]:
        return [
            AbandonedLease(session=id, where=self._layout.lease(id), is_orphan=self.reader.is_gone(id))
            for id in list_abandoned(self._layout)
        ]

    def list_broken_bundles(self) -> list[str]:
        known = {bundle.id for bundle in self.reader.list_trash()}
        names = [name for name in list_names(self._layout.trash) if name not in known]
        return [f"{self._layout.trash}/{name}" for name in names]

    def list_chains(self) -> list[SessionID]:
        return list_chains(self._layout)

    def read_chain(self, session: SessionID) -> ChainLines:
        return read_chain_lines(self._layout, session)

    def check_index(self) -> Damage | None:
        if self._index is None or not os.path.exists(self._index):
            return None
        try:
            with open_for_reading(self._index, self._layout.root):
                return None
        except IndexFailedError as error:
            return Damage(where=self._index, reason=str(error))

    def find_better_store(self) -> str:
        if len(self.list_session_ids()) < MANY_SESSIONS:
            return ""
        return f"sqlite:{os.path.dirname(self._layout.root)}/sessions.db"

    def make_repairer(self, label: str, *, now: int) -> FileRepairer:
        return FileRepairer(Tree(self._layout.root), label, now, index=self._index)


class FileRepairer:
    """Repairs one tree. Originals go below `.weft/backup` first."""

    def __init__(self, tree: Tree, label: str, now: int, *, index: str | None) -> None:
        self._tree = tree
        self._index = index
        self._layout = tree.layout
        self._backup = BackupWriter(tree, label, now)

    @property
    def backup(self) -> str:
        return self._backup.directory if os.path.isdir(self._backup.directory) else ""

    def remove_leftovers(self, leftovers: Iterable[Leftover], *, before: int) -> RemovedLeftovers:
        return remove_leftovers(self._backup, leftovers, before=before)

    def shrink_large(self, *, on_progress: ProgressCallback = lambda _: None) -> list[LargeDocument]:
        return _shrink_large(self._backup, take_inventory(self._layout), on_progress)

    def finish_write(self, where: str) -> bool:
        self._backup.recover()
        return not os.path.lexists(where)

    def set_aside(self, where: str) -> SetAside | None:
        backup = self._backup
        match self._layout.relative(where).removesuffix(SUFFIX).split("/"):
            case ["session", project, id]:
                return self._set_session_aside(SessionID(id), ProjectID(project), where)
            case ["message", session, id]:
                with backup.holding(session_lock(SessionID(session))):
                    backup.move_here(self._layout.parts(MessageID(id)))
                    is_moved = backup.move_here(where)
                    if is_moved:
                        backup.record_removal(SessionID(session), message_key(MessageID(id)))
                    return SetAside(with_parts=True) if is_moved else None
            case ["part", message, id]:
                owner = list_owners(self._tree, [MessageID(message)]).get(MessageID(message))
                return self._set_detail_aside(where, owner, part_key(MessageID(message), PartID(id)))
            case ["session_diff" | "todo" as kind, session]:
                return self._set_detail_aside(
                    where, SessionID(session), DIFF_KEY if kind != "todo" else TODO_KEY
                )
            case ["project", _]:
                return self._set_detail_aside(where, None, "")
            case _:
                return None

    def _set_detail_aside(self, where: str, session: SessionID | None, key: str) -> SetAside | None:
        with self._backup.holding(MAINTENANCE_LOCK if session is None else session_lock(session)):
            if not self._backup.move_here(where):
                return None
            if session is not None:
                self._backup.record_removal(session, key)
            return SetAside()

    def _set_session_aside(self, id: SessionID, project: ProjectID, path: str) -> SetAside:
        """Move a document of a session to the backup. If the session has no other one, make it again from the messages."""
        with self._backup.holding(session_lock(id)) as held:
            self._backup.move_here(path)
            if self._tree.find_session(id) is not None:
                return SetAside(is_intact=True)
            return SetAside(rebuilt_from=self._rebuild(id, held, project))

    def rebuild_session(self, id: SessionID) -> int | None:
        with self._backup.holding(session_lock(id)) as held:
            return None if self._tree.projects_of(id) else self._rebuild(id, held)

    def _rebuild(self, id: SessionID, held: tuple[str, ...], project: ProjectID | None = None) -> int:
        messages = self._backup.messages.list_messages(id)
        session = rebuild_session(id, messages, self._tree.list_projects(), project=project)
        if session is not None:
            self._backup.write(held, SessionCreated(info=session))
        return len(messages)

    def edit_session(self, id: SessionID, editor: SessionEditor) -> SessionInfo | None:
        with self._backup.holding(session_lock(id)) as held:
            session = self._tree.find_session(id)
            if session is None:
                return None
            edited = editor(session)
            self._backup.write(held, SessionUpdated(info=edited))
            return edited

    def drop_index(self) -> None:
        if self._index is not None:
            discard_index(self._index)

    def drop_lease(self, session: SessionID) -> bool:
        return drop_abandoned(self._layout, self._backup.disk, session)


# --- sizes ---


def _measure_tree(layout: Layout, inventory: Inventory, counter: SizeCounter) -> None:
    for file in walk_files(layout.root):
        session = _find_session(file.words, inventory)
        project = _find_project(file.words) or next(iter(inventory.sessions.get(session, ())), "")
        counter.add(file.size, kind=_find_kind(file.words), project=project, session=session)


def _find_kind(words: tuple[str, ...]) -> str:
    match words:
        case (".weft", collection, *_):
            return OWN_KINDS.get(collection, OTHER_KIND)
        case (collection, *_):
            return COLLECTION_KINDS.get(collection, OTHER_KIND)
        case _:
            return OTHER_KIND


def _find_session(words: tuple[str, ...], inventory: Inventory) -> str:
    """Return the existing session that a file belongs to, judged by its path; "" for none."""
    match words:
        case ("session", _, name) | ("session_diff" | "todo" | "session_share" | "share", name):
            found = name.removesuffix(SUFFIX)
        case ("message", found, _):
            pass
        case ("part", message, *_) | (".weft", "growth", message, *_):
            found = _find_owning_session(message, inventory)
        case _:
            return ""
    return found if found in inventory.sessions else ""


def _find_owning_session(message: str, inventory: Inventory) -> str:
    return next((each for each in inventory.owners.get(message, ()) if each in inventory.sessions), "")


def _find_project(words: tuple[str, ...]) -> str:
    """Return the project that a path names; "" for none."""
    match words:
        case ("session", project, _):
            return project
        case ("project" | "permission", name):
            return name.removesuffix(SUFFIX)
        case _:
            return ""


# --- diffs that contain whole files ---


class _Suspect(Struct, frozen=True, kw_only=True):
    path: str
    session: SessionID
    message: MessageID | None = None


def _find_large(tree: Tree, inventory: Inventory, on_progress: ProgressCallback) -> list[LargeDocument]:
    """Return the documents whose diffs exceed the bounds."""
    return [
        LargeDocument(where=found.path, bytes=measure_usage(found.path).bytes)
        for found in _list_suspects(tree, inventory, on_progress)
        if _cap_diffs(tree, found) is not None
    ]


def _shrink_large(
    backup: BackupWriter, inventory: Inventory, on_progress: ProgressCallback
) -> list[LargeDocument]:
    """Cap the diffs that exceed the bounds, each under the lock of its session."""
    shrunk: list[LargeDocument] = []
    for found in _list_suspects(backup.tree, inventory, on_progress):
        with suppress(FileNotFoundError), backup.holding(session_lock(found.session)) as held:
            event = _cap_diffs(backup.tree, found)
            if event is not None:
                before = measure_usage(found.path).bytes
                backup.write(held, event)
                after = measure_usage(found.path).bytes
                shrunk.append(LargeDocument(where=found.path, bytes=before, after=after))
    return shrunk


def _list_suspects(tree: Tree, inventory: Inventory, on_progress: ProgressCallback) -> Iterator[_Suspect]:
    for number, session in enumerate(sorted(inventory.sessions)):
        on_progress(number)
        id = SessionID(session)
        if session in inventory.diffs and measure_usage(tree.layout.diff(id)).bytes > SUSPECT_BYTES:
            yield _Suspect(path=tree.layout.diff(id), session=id)
        for name in sorted(inventory.messages.get(session, ())):
            path = tree.layout.message(id, MessageID(name))
            if measure_usage(path).bytes > SUSPECT_BYTES:
                yield _Suspect(path=path, session=id, message=MessageID(name))


def _cap_diffs(tree: Tree, found: _Suspect) -> Durable | None:
    """Return the event that caps a document, None if it is small enough or unreadable."""
    if found.message is None:
        diffs = tree.list_diff(found.session)
        return None if is_capped(diffs) else SessionDiffed(session_id=found.session, diff=cap_diffs(diffs))
    info: AnyMessage | None = tree.documents.find(found.path, AnyMessage)
    small = None if info is None else shrink_message(info)
    if small is None:
        return None
    return MessageUpdated(info=replace(small, id=found.message, session_id=found.session))
