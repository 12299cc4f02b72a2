"""Maintenance of a JSON tree: `StoreMaintenance` and `StoreRepairer` of files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import cached_property

from weft.errors import IndexFailedError, StoreError
from weft.host.files import read_file
from weft.model.damage import Damage
from weft.model.event import SessionCreated, SessionUpdated
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
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
    take_inventory,
)
from weft.store.files.large_diffs import find_large, shrink_large
from weft.store.files.layout import SUFFIX, session_lock
from weft.store.files.leftovers import LeftoverFinder, remove_leftovers
from weft.store.files.lock import drop_abandoned, list_abandoned
from weft.store.files.reader import FileReader
from weft.store.files.sizes import measure_tree
from weft.store.files.tree import FORMAT, Tree, list_owners
from weft.store.files.upgrade import upgrade_tree
from weft.store.findings import AbandonedLease, Fault, LargeDocument, Leftover, RemovedLeftovers, SetAside
from weft.store.repair import rebuild_session
from weft.store.sizes import REPORT_EVERY, ProgressCallback, SizeCounter, walk_files

CACHE_BYTES = 64 << 20
# From here on, lists and searches in a database are several times faster than in a tree.
MANY_SESSIONS = 3_000
FOREIGN_REASONS = (NOT_A_DOCUMENT, NOT_A_DIRECTORY, NOT_AN_ID)


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
        if not self.reader.is_settled():
            upgrade_tree(self.reader, self._root_commit)

    def list_session_ids(self) -> list[SessionID]:
        return [SessionID(name) for name in sorted(self._inventory.sessions)]

    def has_session(self, id: str) -> bool:
        return self._inventory.is_there(id)

    def measure(self, counter: SizeCounter) -> None:
        measure_tree(self._layout, self._inventory, counter)
        if self._index is not None:
            for file in walk_files(self._index):
                counter.add(file.size, kind="index")

    def find_damage(self) -> list[Fault]:
        return [
            Fault(
                kind="foreign" if damage.reason in FOREIGN_REASONS else "unreadable",
                where=damage.where,
                reason=damage.reason,
            )
            for damage in find_damage(self.reader)
        ]

    def find_misplaced(self, session: SessionID) -> list[Fault]:
        return find_misplaced(self.reader, self._inventory, session)

    def find_orphans(self) -> list[Fault]:
        return find_orphans(self._inventory)

    def find_leftovers(self, *, before: int) -> list[Leftover]:
        return LeftoverFinder(self.reader, self._inventory, before=before).find()

    def find_large(self, *, on_progress: ProgressCallback = lambda _: None) -> list[LargeDocument]:
        return find_large(self.reader, self._inventory, on_progress)

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
            AbandonedLease(session=id, where=self._layout.run(id), is_orphan=self.reader.is_gone(id))
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
        return shrink_large(self._backup, take_inventory(self._layout), on_progress)

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
