"""Find and remove files that nothing refers to any more."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.host.files import read_file, try_locked
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.part import AnyPart
from weft.store.files.documents import LIMIT
from weft.store.files.growth import digest
from weft.store.files.inventory import Heap, Inventory, is_id, list_names, weigh
from weft.store.files.layout import SUFFIX, TEMP_MARK, Layout, session_lock
from weft.store.files.reader import Tree
from weft.store.files.repair import Caretaker
from weft.store.opencode_database import list_session_ids

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


class Swept(Struct, frozen=True, kw_only=True):
    """What was taken away, what was laid aside and where to, and what could not be taken away, with the reason."""

    removed: tuple[Leftover, ...]
    backup: str
    failed: tuple[tuple[str, str], ...] = ()


def sweep(caretaker: Caretaker, leftovers: Iterable[Leftover], *, before: int) -> Swept:
    removed: list[Leftover] = []
    failed: list[tuple[str, str]] = []
    caretaker.recover()
    for each in leftovers:
        try:
            if _take(caretaker, each, before):
                removed.append(each)
        except OSError as error:
            failed.append((each.path, error.strerror or str(error)))
    backup = caretaker.backup if any(each.keeping for each in removed) else ""
    return Swept(removed=tuple(removed), backup=backup, failed=tuple(failed))


def _take(caretaker: Caretaker, leftover: Leftover, before: int) -> bool:
    match leftover.kind:
        case "temp" | "redo":
            return not os.path.lexists(leftover.path)  # seen to when the caretaker recovered
        case "lock" | "lease":
            return _take_lock(caretaker, leftover)
        case "tool-output" | "backup":
            caretaker.disk.remove(leftover.path)
            return True
        case _:
            return _take_document(caretaker, leftover, before)


def _take_lock(caretaker: Caretaker, leftover: Leftover) -> bool:
    with try_locked(leftover.path) as mine:
        if mine:
            caretaker.disk.remove(leftover.path)
        return mine


def _take_document(caretaker: Caretaker, leftover: Leftover, before: int) -> bool:
    locks = [session_lock(SessionID(leftover.session))] if leftover.session else ["care"]
    with caretaker.holding(*locks):
        if weigh(leftover.path).changed >= before or _is_wanted(caretaker, leftover):
            return False
        if leftover.keeping:
            taken = caretaker.lay_aside(leftover.path)
        else:
            caretaker.disk.remove(leftover.path)
            caretaker.disk.prune(os.path.dirname(leftover.path))
            taken = True
        if leftover.session and not caretaker.tree.projects_of(SessionID(leftover.session)):
            caretaker.disk.remove(
                caretaker.layout.lock(locks[0])
            )  # last of all: it was made to be held just now
        return taken


def _is_wanted(caretaker: Caretaker, leftover: Leftover) -> bool:
    """Whether what it belongs to has come back, as it does out of the trash, or was never gone."""
    layout, session = caretaker.layout, SessionID(leftover.session)
    if leftover.kind == "growth":
        message, part = leftover.path.split("/")[-2:]
        return not counts_for_nothing(layout, MessageID(message), PartID(part))
    if leftover.message:
        return os.path.lexists(layout.message(session, MessageID(leftover.message)))
    return bool(caretaker.tree.projects_of(session))


Told = Callable[[int], None]

_NAME = re.compile(r"tool_[0-9A-Za-z]{20,40}")
_NAMED = re.compile(_NAME.pattern.encode())
TELL_EVERY = 1000


def find_spills(
    layout: Layout, directory: str, *, before: int, told: Told = lambda _: None
) -> list[Leftover]:
    """Outputs older than `before` (ms) that no part names any more. Parts are read only if there are old outputs."""
    old = {name: heap.bytes for name in list_names(directory) if (heap := _old(directory, name, before))}
    if not old:
        return []
    try:
        named = _named_in_parts(layout, told)
    except OSError:
        return []
    return [
        Leftover(kind="tool-output", path=f"{directory}/{name}", reason="no part names it", bytes=size)
        for name, size in old.items()
        if name not in named
    ]


def _old(directory: str, name: str, before: int) -> Heap | None:
    heap = weigh(f"{directory}/{name}", any_name=True)
    is_output = _NAME.fullmatch(name) is not None and os.path.isfile(f"{directory}/{name}")
    return heap if is_output and heap.known and heap.changed < before else None


def _named_in_parts(layout: Layout, told: Told) -> set[str]:
    named: set[str] = set()
    for number, raw in enumerate(_parts(layout)):
        named.update(found.decode() for found in _NAMED.findall(raw))
        if number % TELL_EVERY == 0:
            told(number)
    return named


def _parts(layout: Layout) -> Iterator[bytes]:
    shelf = layout.shelf("part")
    for message in list_names(shelf):
        for name in list_names(f"{shelf}/{message}"):
            # A part that cannot be read may name any of them: the error ends the search, and nothing is removed.
            yield read_file(f"{shelf}/{message}/{name}", limit=LIMIT)[0]
