"""The ledger of one session: its changes that are not reported yet, saved to a file in case of a crash."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from weft.host.files import read_bytes, write_atomic
from weft.model.diff import Patch
from weft.model.ids import SessionID
from weft.snapshot.entry import FileEntry, TreeState, is_same, list_parents

MAX_LEDGER_BYTES: Final = 256 << 20


class RecordedChange(Struct, frozen=True, array_like=True):
    """One change of one file, and when it ended.

    `had` and `has` are its parent directories that existed before and after.
    """

    path: bytes
    before: FileEntry | None
    after: FileEntry | None
    at: int
    had: tuple[bytes, ...] = ()
    has: tuple[bytes, ...] = ()


class OpenCall(Struct, frozen=True, kw_only=True):
    """A call that has not ended: the announced files before it; None if it may change any file.

    `blind` says why the changes of such a call cannot be seen.
    """

    began: int
    files: tuple[RecordedChange, ...] | None
    blind: str = ""


class LedgerPage(Struct, frozen=True, kw_only=True):
    """The stored form of a ledger. `taken` are patches that were reported but may not be stored yet.

    `calls` are those whose changes it holds.
    """

    session: SessionID
    links: tuple[RecordedChange, ...] = ()
    opened: tuple[OpenCall, ...] = ()
    uncovered: tuple[tuple[bytes, str], ...] = ()
    taken: tuple[Patch, ...] = ()
    calls: tuple[str, ...] = ()


class ChangeLedger:
    """The changes (`links`) of a session in order, and its open calls. Call `save` after changing it."""

    def __init__(self, path: str, page: LedgerPage) -> None:
        self.path = path
        self.session = page.session
        self.links = list(page.links)
        self.opened = {each.began: each for each in page.opened}
        self.uncovered = dict(page.uncovered)
        self.taken = page.taken
        self.calls = set(page.calls)

    def add(self, change: RecordedChange, began: int) -> None:
        """Add a change that a call found, which began at `began`. Changes by other calls of the session stay separate."""
        during_call = [each for each in self.links if each.path == change.path and each.at > began]
        if not during_call:
            self.links.append(change)
            return
        # The call saw one change where there were several. Its own share is what came before the first and after the last.
        first, last = during_call[0], during_call[-1]
        early = RecordedChange(change.path, change.before, first.before, first.at, change.had, first.had)
        self.links.insert(self.links.index(first), early)
        self.links.append(
            RecordedChange(change.path, last.after, change.after, change.at, last.has, change.has)
        )

    def clear(self) -> None:
        self.links = []
        self.uncovered = {}

    @property
    def is_empty(self) -> bool:
        return not (self.links or self.opened or self.uncovered or self.taken)

    def save(self) -> None:
        page = LedgerPage(
            session=self.session,
            links=tuple(self.links),
            opened=tuple(self.opened.values()),
            uncovered=tuple(self.uncovered.items()),
            taken=self.taken,
            calls=tuple(sorted(self.calls)),
        )
        write_atomic(self.path, msgspec.json.encode(page), temp=f"{self.path}~")


def load_ledger(path: str) -> ChangeLedger | None:
    """Read the ledger of a process. Return None if there is none or it is unreadable."""
    with suppress(OSError, msgspec.DecodeError):
        return ChangeLedger(
            path, msgspec.json.decode(read_bytes(path, limit=MAX_LEDGER_BYTES), type=LedgerPage)
        )
    return None


def join_changes(changes: Iterable[RecordedChange]) -> Iterator[RecordedChange]:
    """Join consecutive changes of a file if nobody else changed it in between, and drop those without effect."""
    joined: list[RecordedChange] = []
    last: dict[bytes, int] = {}
    for change in changes:
        index = last.get(change.path)
        if index is not None and is_same(joined[index].after, change.before):
            old = joined[index]
            joined[index] = RecordedChange(
                change.path, old.before, change.after, change.at, old.had, change.has
            )
        else:
            last[change.path] = len(joined)
            joined.append(change)
    kept = [change for change in joined if not is_same(change.before, change.after)]
    yield from sorted(kept, key=lambda change: change.at)


def group_changes(changes: Sequence[RecordedChange]) -> list[list[RecordedChange]]:
    """Split changes, in order, into groups in which each file occurs once and all paths can exist in one tree."""
    groups: list[list[RecordedChange]] = []
    seen: set[bytes] = set()
    sides: tuple[set[bytes], set[bytes]] = (set(), set())
    for change in changes:
        present = (change.before is not None, change.after is not None)
        clash = change.path in seen or any(
            _clashes(change.path, side) for side, is_present in zip(sides, present, strict=True) if is_present
        )
        if clash or not groups:
            groups.append([])
            seen, sides = set(), (set(), set())
        groups[-1].append(change)
        seen.add(change.path)
        for side, is_present in zip(sides, present, strict=True):
            if is_present:
                side.update((change.path, *(each + b"/" for each in list_parents(change.path))))
    return groups


def _clashes(path: bytes, side: set[bytes]) -> bool:
    """Return True if a file would be in the place of a directory, or the other way round."""
    return path + b"/" in side or any(each in side for each in list_parents(path))


def to_states(changes: Iterable[RecordedChange]) -> tuple[TreeState, TreeState]:
    """Return the trees before and after a group of changes."""
    changes = list(changes)
    before = {change.path: change.before for change in changes if change.before is not None}
    after = {change.path: change.after for change in changes if change.after is not None}
    # A change that did not find a directory created it, even if a later change found it there.
    absent = {
        directory
        for change in changes
        for directory in list_parents(change.path)
        if directory not in change.had
    }
    had = {directory for change in changes for directory in change.had} - absent
    has: dict[bytes, bool] = {}
    for change in changes:
        has.update((directory, directory in change.has) for directory in list_parents(change.path))
    existing = {directory for directory, exists in has.items() if exists}
    return (
        TreeState(files=before, dirs=_list_directories(had, before)),
        TreeState(files=after, dirs=_list_directories(existing, after)),
    )


def _list_directories(directories: set[bytes], files: Mapping[bytes, FileEntry]) -> frozenset[bytes]:
    """Drop directories whose path is a file."""
    return frozenset(
        directory
        for directory in directories
        if directory not in files and not any(parent in files for parent in list_parents(directory))
    )
