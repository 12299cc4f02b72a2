"""Scanning: which files changed since the last look, found by git's index, which knows how each file stood.

The index is this process's own, a copy of what the last one knew. Content goes into our store of objects, unless the
person's repository holds the very same bytes: then it is borrowed until it is needed. Calls block.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from msgspec import Struct

from weft.host.birth import birth_of
from weft.host.files import stamp_of
from weft.host.git import Plumbing
from weft.model.diff import Tree
from weft.snapshot.beneath import Beneath, Survey, lstat
from weft.snapshot.copying import publish, take_copy
from weft.snapshot.entry import Entry, is_same, parents
from weft.snapshot.intake import Intake, Refusals
from weft.snapshot.listing import Differing, Listing, directories_in
from weft.snapshot.objects import Objects
from weft.snapshot.permissions import Permissions

SECONDS: Final = 600.0
DIRECTORIES_AT_MOST: Final = 20_000
NESTED_AT_MOST: Final = 5_000

NESTED: Final = "it is a repository of its own"
MOVED: Final = "it was moved here from where nothing is kept"


class Change(Struct, frozen=True, kw_only=True):
    """One file before and after, and those of the directories it lies in that were there."""

    path: bytes
    before: Entry | None
    after: Entry | None
    had: frozenset[bytes] = frozenset()
    has: frozenset[bytes] = frozenset()


class Scanned(Struct, frozen=True, kw_only=True):
    """What changed since the last scan; and of what is not kept, what seems to have changed, with the reason."""

    changes: tuple[Change, ...]
    uncovered: Mapping[bytes, str]


class Known(Struct, frozen=True, kw_only=True):
    """What a look left besides the index: directories with nothing in them, and files that are not kept."""

    bare: frozenset[bytes] = frozenset()
    refused: Refusals = {}


class Scanner:
    """`shared` is the index that is left for the next process; `index` is ours alone."""

    def __init__(self, beneath: Beneath, objects: Objects, plumbing: Plumbing, listing: Listing) -> None:
        self._beneath = beneath
        self._plumbing = plumbing
        self._listing = listing
        self._permissions = Permissions(beneath)
        self._known = Known()
        self.intake = Intake(beneath, objects, plumbing, listing)
        self.index = ""
        self.shared = ""
        self.is_remote = False  # where the times of files are another machine's

    def first(self) -> None:
        """Begin with what the last process knew; make sure that its contents are still to be had."""
        take_copy(self.shared, self.index)
        begun = os.path.exists(self.index)
        self._look()
        entries = self._listing.entries(self.index)
        if begun:
            self.intake.store(self.index, {path: entry.oid for path, entry in entries.items()})
        self._permissions.learn(entries)
        self._note_time()

    def scan(self, sources: Collection[str] = ()) -> Scanned:
        """Compare with the last look, and remember. `sources` are contents that others look after."""
        known = self._known
        found, before, after = self._look()
        changes = tuple(self._changes(found, before, after, known))
        moved = set() if self.is_remote else self._moved(changes, sources)
        self._note_time()
        return Scanned(
            changes=tuple(change for change in changes if change.path not in moved),
            uncovered={**_differing(known.refused, self._known.refused), **dict.fromkeys(moved, MOVED)},
        )

    def tree(self) -> Tree:
        """All that the index holds. Its trees are ours; the files they name may be borrowed."""
        # Nothing is borrowed here: git would mark what it finds there as used, and that is writing.
        asked = ["write-tree", "--missing-ok"]
        return Tree(self._plumbing.run(asked, index=self.index, seconds=SECONDS).decode().strip())

    def _look(self) -> tuple[Differing, dict[bytes, Entry], dict[bytes, Entry]]:
        """Bring the index up to date. Gives what differed, as it was and as it is."""
        found = self._listing.differing(self.index, self._beneath.root)
        refused: Refusals = {path: (NESTED, self._stamp_nested(path)) for path in found.nested}
        before: dict[bytes, Entry] = {}
        after: dict[bytes, Entry] = {}
        if paths := found.files:
            before = self._listing.entries(self.index, paths)
            after, others = self.intake.update(self.index, paths, self._known.refused)
            refused |= others
            publish(self.index, self.shared)
        self._known = Known(bare=self._bare_in(found), refused=refused)
        return found, before, after

    # --- what changed ---

    def _changes(
        self, found: Differing, before: Mapping[bytes, Entry], after: Mapping[bytes, Entry], known: Known
    ) -> Iterator[Change]:
        survey = Survey(self._beneath)
        for path in found.files:
            old, new = self._permissions.put_in(path, before.get(path), after.get(path))
            # What was not kept, or is not, cannot be said to have been made or removed.
            if path in known.refused or path in self._known.refused or is_same(old, new):
                continue
            has = survey.existing(path)
            had = frozenset(
                each for each in parents(path) if each in known.bare or not _is_in(each, found.bare)
            )
            yield Change(path=path, before=old, after=new, had=had if old is None else had | has, has=has)

    def _moved(self, changes: Collection[Change], sources: Collection[str]) -> set[bytes]:
        """Files that were not made in this time but brought here, from where nobody looks: an ignored place, or
        elsewhere. Removing one to undo that would destroy it."""
        noted = lstat(os.fsencode(self._clock))
        since = 0 if noted is None else noted.st_mtime_ns
        kept = {*sources, *(change.before.oid for change in changes if change.before is not None)}
        return {
            change.path
            for change in changes
            if change.after is not None
            and change.after.oid not in kept
            and _is_older(self._beneath.absolute(change.path), since)
        }

    def _note_time(self) -> None:
        """Note when this was, by the clock that files are stamped with: ours may be ahead of it."""
        with open(self._clock, "ab"):
            os.utime(self._clock)

    @property
    def _clock(self) -> str:
        return f"{self.index}.seen"

    def _bare_in(self, found: Differing) -> frozenset[bytes]:
        taken = {each for path in found.new for each in parents(path)}
        walked = directories_in(self._beneath.root, found.bare, at_most=DIRECTORIES_AT_MOST)
        return frozenset(path for path in walked if path not in taken)

    def _stamp_nested(self, path: bytes) -> int | None:
        """One number for all the files of a repository within; None if they are too many to look at."""
        left, total = NESTED_AT_MOST, 0
        for where, dirs, names in os.walk(self._beneath.absolute(path)):
            dirs[:] = [each for each in dirs if each != b".git"]
            for name in names:
                left -= 1
                if not left:
                    return None
                if (found := lstat(os.path.join(where, name))) is not None:
                    total ^= hash((where, name, stamp_of(found)))
        return total


def _is_older(path: bytes, than: int) -> bool:
    """Whether neither its content nor itself was made since."""
    found = lstat(path)
    return found is not None and found.st_mtime_ns < than and (birth_of(path) or 0) < than


def _is_in(path: bytes, directories: frozenset[bytes]) -> bool:
    return path in directories or any(each in directories for each in parents(path))


def _differing(known: Refusals, found: Refusals) -> dict[bytes, str]:
    """What is refused now, or was, and does not stand as it stood."""
    paths = [path for path in {*known, *found} if known.get(path) != found.get(path)]
    return {path: (found.get(path) or known[path])[0] for path in paths}
