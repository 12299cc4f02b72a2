"""Leftovers: what nothing leads to any more. Found by name and age; nothing is removed here.

A document counts as there even if it cannot be read, and a directory that holds anything we do not understand is left
alone, as is whatever changed a short while ago: it may be half of something that is still being written.
"""

import os
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.host.files import read_file
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.part import AnyPart
from weft.store.documents import LIMIT
from weft.store.files_care.heap import Heap, is_id, list_names, weigh
from weft.store.files_care.inventory import Inventory
from weft.store.growth import digest
from weft.store.layout import SUFFIX, TEMP_MARK, Layout, session_lock
from weft.store.opencode_database import list_session_ids
from weft.store.tree import Tree

LOCK_OF_SESSION = "session."
OWNER = ".owner"
GC_LABEL = "gc"
KEPT_MS: Final = 30 * 24 * 60 * 60 * 1000


class Leftover(Struct, frozen=True, kw_only=True):
    """A file or directory to be swept away. It is worth `keeping` for a while if somebody may miss it.

    `session` is whose lock has to be held, "" if nobody's. Should it be there again, or `message` in it where one is
    named, this is no leftover any more.
    """

    kind: str
    path: str
    reason: str
    bytes: int
    session: str = ""
    message: str = ""
    keeping: bool = False


class Leftovers:
    """Looks for them in one tree; `before` (ms) is how long ago the last change must be."""

    def __init__(self, tree: Tree, inventory: Inventory, *, before: int) -> None:
        self._tree = tree
        self._layout: Layout = tree.layout
        self._inventory = inventory
        self._before = before

    def find(self) -> list[Leftover]:
        return [
            *self._lost_messages(),
            *self._lost_parts(),
            *self._lost_records("diff", self._inventory.diffs),
            *self._lost_records("todo", self._inventory.todos),
            *self._growths(),
            *self._unfinished("temp", self._layout.temps),
            *self._unfinished("redo", self._layout.redos),
            *self._locks(),
            *self._leases(),
            *self._backups(),
        ]

    @cached_property
    def _elsewhere(self) -> frozenset[str] | None:
        """The sessions that OpenCode 1.2 or later keeps in its database; it leaves their diffs in the tree."""
        database = self._layout.database
        return list_session_ids(database) if os.path.isfile(database) else frozenset()

    def _is_there(self, session: str) -> bool:
        """Whether the session is in the tree or in the database beside it, or may be in one that cannot be read."""
        return self._inventory.is_there(session) or self._is_elsewhere(session)

    def _is_elsewhere(self, session: str) -> bool:
        return self._elsewhere is None or session in self._elsewhere

    # --- documents that nothing leads to ---

    def _lost_messages(self) -> Iterator[Leftover]:
        """Messages whose session has no document, and their parts with them."""
        for session in sorted(self._inventory.messages):
            heap = self._old(self._layout.messages(SessionID(session)))
            if heap is None or self._is_there(session):
                continue
            reason = f"its session {session} is gone"
            yield Leftover(
                kind="message",
                path=self._layout.messages(SessionID(session)),
                reason=reason,
                bytes=heap.bytes,
                session=session,
                keeping=True,
            )
            for message in sorted(self._inventory.messages[session] & self._inventory.parts):
                if not self._inventory.is_reachable(message):
                    yield from self._parts_of(message, session, reason)

    def _lost_parts(self) -> Iterator[Leftover]:
        for message in sorted(self._inventory.parts - self._inventory.owners.keys()):
            session = self._named_session(message)
            if session and not self._is_elsewhere(session):
                reason = f"its message {message} is gone"
                for found in self._parts_of(message, session, reason):
                    yield replace(found, message=message)

    def _parts_of(self, message: str, session: str, reason: str) -> Iterator[Leftover]:
        path = self._layout.parts(MessageID(message))
        heap = self._old(path)
        if heap is not None:
            yield Leftover(
                kind="part",
                path=path,
                reason=reason,
                bytes=heap.bytes,
                session=session,
                keeping=True,
            )

    def _named_session(self, message: str) -> str:
        """The session that all the parts of a message name; "" if they cannot be read, or do not agree."""
        directory, named = self._layout.parts(MessageID(message)), set[str]()
        for name in self._tree.documents.names(directory):
            part: AnyPart | None = self._tree.documents.find(f"{directory}/{name}{SUFFIX}", AnyPart)
            named.add("" if part is None else part.session_id)
        session = named.pop() if len(named) == 1 else ""
        return session if is_id(session) else ""

    def _lost_records(self, kind: str, names: frozenset[str]) -> Iterator[Leftover]:
        place = self._layout.diff if kind == "diff" else self._layout.todo
        for name in sorted(names):
            heap = self._old(place(SessionID(name)))
            if heap is not None and not self._is_there(name):
                yield Leftover(
                    kind=kind,
                    path=place(SessionID(name)),
                    reason=f"its session {name} is gone",
                    bytes=heap.bytes,
                    session=name,
                    keeping=True,
                )

    # --- our own ---

    def _growths(self) -> Iterator[Leftover]:
        for message in list_names(self._layout.growths):
            for part in list_names(f"{self._layout.growths}/{message}"):
                path = f"{self._layout.growths}/{message}/{part}"
                heap = self._old(path)
                if heap is not None and is_id(message) and is_id(part) and self._is_idle(message, part):
                    session = next(iter(self._inventory.owners.get(message, ())), "")
                    yield Leftover(
                        kind="growth",
                        path=path,
                        reason="the part it belongs to is gone or was written anew",
                        bytes=heap.bytes,
                        session=session,
                    )

    def _is_idle(self, message: str, part: str) -> bool:
        return counts_for_nothing(self._layout, MessageID(message), PartID(part))

    def _unfinished(self, kind: str, directory: str) -> Iterator[Leftover]:
        """What a dead process was about to do: finished, or taken back, by whoever comes next."""
        for name in list_names(directory):
            heap = self._old(f"{directory}/{name}", any_name=True)
            if heap is not None:
                yield Leftover(
                    kind=kind,
                    path=f"{directory}/{name}",
                    reason=f"a process ended while it wrote ({name.partition(TEMP_MARK)[0]})",
                    bytes=heap.bytes,
                )

    def _locks(self) -> Iterator[Leftover]:
        for name in list_names(self._layout.locks):
            session = name.removeprefix(LOCK_OF_SESSION)
            heap = self._old(self._layout.lock(name), any_name=True)
            if name != session and heap is not None and not self._is_used(session):
                yield Leftover(
                    kind="lock",
                    path=self._layout.lock(name),
                    reason=f"its session {session} is gone",
                    bytes=heap.bytes,
                )

    def _is_used(self, session: str) -> bool:
        return self._inventory.is_there(session) or session in self._inventory.messages

    def _leases(self) -> Iterator[Leftover]:
        for name in list_names(self._layout.runs):
            heap = self._old(f"{self._layout.runs}/{name}", any_name=True)
            session = name.removesuffix(OWNER)
            if heap is not None and not self._is_used(session):
                yield Leftover(
                    kind="lease",
                    path=f"{self._layout.runs}/{name}",
                    reason=f"its session {session} is gone",
                    bytes=heap.bytes,
                )

    def _backups(self) -> Iterator[Leftover]:
        """What an earlier sweep laid aside, and nobody has asked for since."""
        for name in list_names(self._layout.backups):
            path = f"{self._layout.backups}/{name}"
            label, _, at = name.partition("-")
            if label == GC_LABEL and at.isdigit() and int(at) < self._before - KEPT_MS:
                yield Leftover(
                    kind="backup",
                    path=path,
                    reason="swept away a month ago",
                    bytes=weigh(path, any_name=True).bytes,
                )

    def _old(self, path: str, *, any_name: bool = False) -> Heap | None:
        """What it comes to, if it is all known and nothing in it changed lately."""
        heap = weigh(path, any_name=any_name)
        return heap if heap.known and heap.changed < self._before else None


def counts_for_nothing(layout: Layout, message: MessageID, part: PartID) -> bool:
    """Whether a growth file is that of no document: there is none, or another than the one that grew."""
    try:
        document, _ = read_file(layout.part(message, part), limit=LIMIT)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        with open(layout.growth(message, part), "rb") as file:
            return file.readline(64).rstrip(b"\n") != digest(document)
    except OSError:
        return False


def lock_for(leftover: Leftover) -> tuple[str, ...]:
    return (session_lock(SessionID(leftover.session)),) if leftover.session else ()
