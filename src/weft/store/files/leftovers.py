"""Find and remove files that nothing refers to any more."""

import os
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from weft.host.files import read_file, try_lock
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.part import AnyPart
from weft.store.files.backup import MAINTENANCE_LOCK, BackupWriter
from weft.store.files.chain import list_chains
from weft.store.files.documents import LIMIT
from weft.store.files.growth import document_digest
from weft.store.files.inventory import DiskUsage, Inventory, is_id, list_names, measure_usage
from weft.store.files.layout import SESSION_LOCK_PREFIX, SUFFIX, TEMP_MARK, Layout, session_lock
from weft.store.files.lock import OWNER
from weft.store.files.tree import Tree
from weft.store.findings import GC_LABEL, Leftover, LeftoverFailure, LeftoverKind, RemovedLeftovers
from weft.store.opencode_database import list_session_ids

OLD_VALUE_LOCK_PREFIX = "kept."
BACKUP_RETENTION_MS: Final = 30 * 24 * 60 * 60 * 1000


class LeftoverFinder:
    """Finds the leftovers of one tree whose last change was before `before` (ms)."""

    def __init__(self, tree: Tree, inventory: Inventory, *, before: int) -> None:
        self._tree = tree
        self._layout: Layout = tree.layout
        self._inventory = inventory
        self._before = before

    def find(self) -> list[Leftover]:
        return [
            *self._find_lost_messages(),
            *self._find_lost_parts(),
            *self._find_lost_records("diff", self._inventory.diffs),
            *self._find_lost_records("todo", self._inventory.todos),
            *self._find_lost_records("chain", frozenset(filter(is_id, list_chains(self._layout)))),
            *self._find_growths(),
            *self._find_unfinished("temp", self._layout.temps),
            *self._find_unfinished("redo", self._layout.notes),
            *self._find_locks(),
            *self._find_leases(),
            *self._find_backups(),
        ]

    @cached_property
    def _database_sessions(self) -> frozenset[str] | None:
        """The sessions in the database of OpenCode 1.2 or later, whose diffs are in this tree; None if it is unreadable."""
        database = self._layout.database
        return list_session_ids(database) if os.path.isfile(database) else frozenset()

    def _exists(self, session: str) -> bool:
        """Return True if the session is in the tree or in the database next to it, or in a database we cannot read."""
        return self._inventory.is_there(session) or self._is_in_database(session)

    def _is_in_database(self, session: str) -> bool:
        return self._database_sessions is None or session in self._database_sessions

    # --- unreferenced documents ---

    def _find_lost_messages(self) -> Iterator[Leftover]:
        """Yield messages whose session has no document, together with their parts."""
        for session in sorted(self._inventory.messages):
            usage = self._measure(self._layout.messages(SessionID(session)))
            if usage is None or self._exists(session):
                continue
            reason = f"its session {session} is gone"
            yield Leftover(
                kind="message",
                where=self._layout.messages(SessionID(session)),
                reason=reason,
                bytes=usage.bytes,
                session=session,
                keeping=True,
            )
            for message in sorted(self._inventory.messages[session] & self._inventory.parts):
                if not self._inventory.is_reachable(message):
                    yield from self._find_parts(message, session, reason)

    def _find_lost_parts(self) -> Iterator[Leftover]:
        for message in sorted(self._inventory.parts - self._inventory.owners.keys()):
            session = self._find_named_session(message)
            if session and not self._is_in_database(session):
                reason = f"its message {message} is gone"
                for found in self._find_parts(message, session, reason):
                    yield replace(found, message=message)

    def _find_parts(self, message: str, session: str, reason: str) -> Iterator[Leftover]:
        path = self._layout.parts(MessageID(message))
        usage = self._measure(path)
        if usage is not None:
            yield Leftover(
                kind="part",
                where=path,
                reason=reason,
                bytes=usage.bytes,
                session=session,
                keeping=True,
            )

    def _find_named_session(self, message: str) -> str:
        """Return the session that all parts of a message name; "" if they are unreadable or disagree."""
        directory, named = self._layout.parts(MessageID(message)), set[str]()
        for name in self._tree.documents.list_names(directory):
            part: AnyPart | None = self._tree.documents.find(f"{directory}/{name}{SUFFIX}", AnyPart)
            named.add("" if part is None else part.session_id)
        session = named.pop() if len(named) == 1 else ""
        return session if is_id(session) else ""

    def _find_lost_records(self, kind: LeftoverKind, names: frozenset[str]) -> Iterator[Leftover]:
        layout = self._layout
        place = {"diff": layout.diff, "todo": layout.todo, "chain": layout.chain}[kind]
        for name in sorted(names):
            usage = self._measure(place(SessionID(name)))
            if usage is not None and not self._exists(name):
                yield Leftover(
                    kind=kind,
                    where=place(SessionID(name)),
                    reason=f"its session {name} is gone",
                    bytes=usage.bytes,
                    session=name,
                    keeping=True,
                )

    # --- our own files ---

    def _find_growths(self) -> Iterator[Leftover]:
        for message in list_names(self._layout.growths):
            for part in list_names(f"{self._layout.growths}/{message}"):
                path = f"{self._layout.growths}/{message}/{part}"
                usage = self._measure(path)
                if (
                    usage is not None
                    and is_id(message)
                    and is_id(part)
                    and is_stale_growth(self._layout, MessageID(message), PartID(part))
                ):
                    session = next(iter(self._inventory.owners.get(message, ())), "")
                    yield Leftover(
                        kind="growth",
                        where=path,
                        reason="the part it belongs to is gone or was written again",
                        bytes=usage.bytes,
                        session=session,
                    )

    def _find_unfinished(self, kind: LeftoverKind, directory: str) -> Iterator[Leftover]:
        """Yield the unfinished work of dead processes. Recovery finishes it or rolls it back."""
        for name in list_names(directory):
            usage = self._measure(f"{directory}/{name}", any_name=True)
            if usage is not None:
                yield Leftover(
                    kind=kind,
                    where=f"{directory}/{name}",
                    reason=f"a process ended while it wrote ({name.partition(TEMP_MARK)[0]})",
                    bytes=usage.bytes,
                )

    def _find_locks(self) -> Iterator[Leftover]:
        for name in list_names(self._layout.locks):
            session = name.removeprefix(SESSION_LOCK_PREFIX)
            usage = self._measure(self._layout.lock(name), any_name=True)
            if name != session and usage is not None and not self._is_used(session):
                yield Leftover(
                    kind="lock",
                    where=self._layout.lock(name),
                    reason=f"its session {session} is gone",
                    bytes=usage.bytes,
                )
            elif name.startswith(OLD_VALUE_LOCK_PREFIX) and usage is not None:
                yield Leftover(
                    kind="lock",
                    where=self._layout.lock(name),
                    reason="earlier versions locked each value on its own",
                    bytes=usage.bytes,
                )

    def _is_used(self, session: str) -> bool:
        return self._inventory.is_there(session) or session in self._inventory.messages

    def _find_leases(self) -> Iterator[Leftover]:
        for name in list_names(self._layout.leases):
            usage = self._measure(f"{self._layout.leases}/{name}", any_name=True)
            session = name.removesuffix(OWNER)
            if usage is not None and not self._is_used(session):
                yield Leftover(
                    kind="lease",
                    where=f"{self._layout.leases}/{name}",
                    reason=f"its session {session} is gone",
                    bytes=usage.bytes,
                )

    def _find_backups(self) -> Iterator[Leftover]:
        """Yield backups of earlier garbage collections that are old enough to go."""
        for name in list_names(self._layout.backups):
            path = f"{self._layout.backups}/{name}"
            label, _, at = name.partition("-")
            if label == GC_LABEL and at.isdecimal() and int(at) < self._before - BACKUP_RETENTION_MS:
                yield Leftover(
                    kind="backup",
                    where=path,
                    reason="collected more than a month ago",
                    bytes=measure_usage(path, any_name=True).bytes,
                )

    def _measure(self, path: str, *, any_name: bool = False) -> DiskUsage | None:
        """Measure a path. Return None if it contains unknown files or changed recently."""
        usage = measure_usage(path, any_name=any_name)
        return usage if usage.known and usage.changed < self._before else None


def is_stale_growth(layout: Layout, message: MessageID, part: PartID) -> bool:
    """Return True if a growth file belongs to no document: the part is gone or was written again."""
    try:
        document, _ = read_file(layout.part(message, part), limit=LIMIT)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        with open(layout.growth(message, part), "rb") as file:
            return file.readline(64).rstrip(b"\n") != document_digest(document)
    except OSError:
        return False


def remove_leftovers(backup: BackupWriter, leftovers: Iterable[Leftover], *, before: int) -> RemovedLeftovers:
    removed: list[Leftover] = []
    failed: list[LeftoverFailure] = []
    backup.recover()
    for each in leftovers:
        try:
            if _remove(backup, each, before):
                removed.append(each)
        except OSError as error:
            failed.append(LeftoverFailure(where=each.where, reason=error.strerror or str(error)))
    directory = backup.directory if any(each.keeping for each in removed) else ""
    return RemovedLeftovers(removed=tuple(removed), backup=directory, failed=tuple(failed))


def _remove(backup: BackupWriter, leftover: Leftover, before: int) -> bool:
    """Remove a leftover. Return False if it is in use after all."""
    match leftover.kind:
        case "temp" | "redo":
            return not os.path.lexists(leftover.where)  # recovery already dealt with it
        case "lock" | "lease":
            return _remove_lock(backup, leftover)
        case "backup":
            backup.disk.remove(leftover.where)
            return True
        case "message" | "part" | "diff" | "todo" | "chain" | "growth":
            return _remove_document(backup, leftover, before)
        case "tool-output":
            return False  # it is not in the store


def _remove_lock(backup: BackupWriter, leftover: Leftover) -> bool:
    with try_lock(leftover.where) as mine:
        if mine:
            backup.disk.remove(leftover.where)
        return mine


def _remove_document(backup: BackupWriter, leftover: Leftover, before: int) -> bool:
    lock = session_lock(SessionID(leftover.session)) if leftover.session else MAINTENANCE_LOCK
    with backup.holding(lock):
        if measure_usage(leftover.where).changed >= before or _is_in_use(backup, leftover):
            return False
        if leftover.keeping:
            removed = backup.move_here(leftover.where)
        else:
            backup.disk.remove(leftover.where)
            backup.disk.prune(os.path.dirname(leftover.where))
            removed = True
        if leftover.session and not backup.tree.projects_of(SessionID(leftover.session)):
            # The lock file was only created to be held here. It goes last, because that lets other writers in.
            backup.disk.remove(backup.layout.lock(lock))
        return removed


def _is_in_use(backup: BackupWriter, leftover: Leftover) -> bool:
    """Return True if the owner of the leftover exists, for example because it was restored from the trash."""
    layout, session = backup.layout, SessionID(leftover.session)
    if leftover.kind == "growth":
        message, part = leftover.where.split("/")[-2:]
        return not is_stale_growth(layout, MessageID(message), PartID(part))
    if leftover.message:
        return os.path.lexists(layout.message(session, MessageID(leftover.message)))
    return bool(backup.tree.projects_of(session))
