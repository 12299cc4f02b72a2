"""Keep a git index of a directory's files, and find what changed since the last look. Calls block."""

import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from weft.errors import GitError
from weft.host.files import Disk, Stamp, stamp_of
from weft.host.git import Plumbing
from weft.host.private_files import birth_of
from weft.model.diff import Tree
from weft.snapshot.directory import Beneath, Survey, lstat
from weft.snapshot.entry import Entry, is_same, parents
from weft.snapshot.objects import NoRoomError, Objects
from weft.snapshot.restore import Permissions


def take_copy(source: str, target: str) -> None:
    """Give a file a second name that nobody has yet. Missing is fine: then there is nothing to copy."""
    with suppress(FileNotFoundError):
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without second names
            shutil.copy2(source, target)


def publish(source: str, target: str) -> None:
    """Put a copy in the place of another file, at once."""
    temp = f"{target}.{os.path.basename(os.path.dirname(source))}~"
    Disk().remove(temp)
    take_copy(source, temp)
    with suppress(FileNotFoundError):
        os.replace(temp, target)


# Past this many, asking for all is cheaper than naming them.
NAMED_AT_MOST: Final = 300


class Differing(Struct, frozen=True, kw_only=True):
    """What differs from an index: files known to it, files new to it, and directories of which it knows nothing."""

    known: frozenset[bytes]
    new: frozenset[bytes]
    bare: frozenset[bytes]
    nested: frozenset[bytes]

    @property
    def files(self) -> list[bytes]:
        return sorted(self.known | self.new)


class Listing:
    """Asks git. `ignoring` says which rules of the person's own count besides the `.gitignore` files."""

    def __init__(self, plumbing: Plumbing, objects: Objects, seconds: float) -> None:
        self._plumbing = plumbing
        self._objects = objects
        self._seconds = seconds
        self.settings: tuple[str, ...] = ()
        self.ignoring: tuple[str, ...] = ()

    def differing(self, index: str, root: bytes) -> Differing:
        tagged = _split(self._files(index, "-t", "-m", "-d", "-o", "--directory", *self._standard()))
        known = frozenset(line[2:] for line in tagged if line[:1] in b"CR")
        others = [line[2:] for line in tagged if line[:1] == b"?"]
        # A directory where the index has a file is not told of: it has the name of something known.
        swapped = {path for path in known if _is_directory(os.path.join(root, path))}
        bare = frozenset(other[:-1] for other in others if other.endswith(b"/")) | swapped
        nested = {path for path in bare if os.path.lexists(os.path.join(root, path, b".git"))}
        deeper = self._in_bare(index, bare - nested)
        nested.update(path[:-1] for path in deeper if path.endswith(b"/"))
        new = {path for path in (*others, *deeper) if not path.endswith(b"/")}
        return Differing(known=known, new=frozenset(new), bare=bare - nested, nested=frozenset(nested))

    def entries(self, index: str, paths: Collection[bytes] | None = None) -> dict[bytes, Entry]:
        """What an index holds, or of these paths what it holds."""
        if not os.path.exists(index):
            return {}
        named = _named(paths) if paths is not None else None
        found = {}
        for line in _split(self._files(index, "-s", *(() if named is None else ("--", *named)))):
            facts, _, path = line.partition(b"\t")
            mode, oid, _ = facts.split(b" ")
            found[path] = Entry(int(mode, 8), oid.decode())
        if paths is None or named is not None:
            return found
        return {path: found[path] for path in paths if path in found}

    def _in_bare(self, index: str, bare: Collection[bytes]) -> list[bytes]:
        if not bare:
            return []
        named = _named(bare)
        return _split(self._files(index, "-o", *self._standard(), *(("--", *named) if named else ())))

    def _standard(self) -> tuple[str, ...]:
        return ("--exclude-standard", *self.ignoring)

    def _files(self, index: str, *args: str) -> bytes:
        asked = [*self.settings, "ls-files", "-z", *args]
        return self._plumbing.run(asked, index=index, borrow=self._objects.borrow, seconds=self._seconds)


def _named(paths: Collection[bytes]) -> Sequence[str] | None:
    """The paths as arguments; None if they are too many."""
    return [os.fsdecode(path) for path in paths] if len(paths) <= NAMED_AT_MOST else None


def _is_directory(path: bytes) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _split(said: bytes) -> list[bytes]:
    return said.split(b"\0")[:-1]


def directories_in(root: bytes, bare: Collection[bytes], *, at_most: int) -> Iterator[bytes]:
    """These directories and those in them, links not followed, up to a number."""
    todo = list(bare)
    while todo and at_most:
        path = todo.pop()
        at_most -= 1
        yield path
        try:
            with os.scandir(os.path.join(root, path)) as found:
                todo += [path + b"/" + each.name for each in found if each.is_dir(follow_symlinks=False)]
        except OSError:
            continue


SECONDS: Final = 600.0
ROUNDS: Final = 3
REFUSALS: Final = 50

TOO_LARGE: Final = "it is larger than what is kept of one file"
UNREADABLE: Final = "it cannot be read"
RESTLESS: Final = "it kept changing while it was read"
NO_ROOM: Final = "there is no room left for snapshots"

# Why files are not kept, and how they stand, to see whether they change.
Refusals = dict[bytes, tuple[str, Stamp | int | None]]


class Intake:
    def __init__(self, beneath: Beneath, objects: Objects, plumbing: Plumbing, listing: Listing) -> None:
        self._beneath = beneath
        self._objects = objects
        self._plumbing = plumbing
        self._listing = listing
        self.max_file_bytes = 0

    def update(self, index: str, paths: list[bytes], known: Refusals) -> tuple[dict[bytes, Entry], Refusals]:
        """Take these paths in. Gives what the index holds of them then, and what it does not hold, and why."""
        temp = f"{index}.new"
        for left in (temp, f"{temp}.lock"):
            Disk().remove(left)
        take_copy(index, temp)
        survey, refused = Survey(self._beneath), Refusals()
        take, drop = self._sort(paths, survey, known, refused)
        self._forget(temp, drop)
        reasons = dict.fromkeys(self._put(temp, take), UNREADABLE)
        after = self._listing.entries(temp, paths)
        reasons |= self.store(temp, {path: entry.oid for path, entry in after.items()})
        for path, reason in reasons.items():
            found = survey.look(path)
            refused[path] = (reason, None if found is None else stamp_of(found))
        after = self._listing.entries(temp, paths)
        os.replace(temp, index)
        return after, refused

    def store(self, index: str, wanted: Mapping[bytes, str]) -> dict[bytes, str]:
        """Have the content of each path under this name. What cannot be had leaves the index, for a reason."""
        for _ in range(ROUNDS):
            paths = self._lacking(wanted)
            if not paths:
                return {}
            try:
                self._objects.write_many(self._contents(paths), count=len(paths))
            except NoRoomError:
                self._forget(index, paths)
                return dict.fromkeys(paths, NO_ROOM)
            # What changed meanwhile has another name by now.
            self._put(index, paths)
            wanted = {path: entry.oid for path, entry in self._listing.entries(index, paths).items()}
        paths = self._lacking(wanted)
        self._forget(index, paths)
        return dict.fromkeys(paths, RESTLESS)

    def _lacking(self, wanted: Mapping[bytes, str]) -> list[bytes]:
        lacking = self._objects.missing(set(wanted.values()))
        return [path for path, oid in wanted.items() if oid in lacking]

    def _contents(self, paths: list[bytes]) -> Iterator[bytes]:
        for content in self._beneath.read_many(paths, limit=self.max_file_bytes):
            if self._plumbing.stopped:
                return
            yield content

    def _sort(
        self, paths: list[bytes], survey: Survey, known: Refusals, refused: Refusals
    ) -> tuple[list[bytes], list[bytes]]:
        """Those to be taken in as they are, and those to be forgotten."""
        take, drop = [], []
        for path in paths:
            found = survey.look(path)
            reason = "" if found is None else self._why_not(path, found, known)
            if found is None or stat.S_ISDIR(found.st_mode) or reason:
                drop.append(path)
            else:
                take.append(path)
            if found is not None and reason:
                refused[path] = (reason, stamp_of(found))
        return take, drop

    def _why_not(self, path: bytes, found: os.stat_result, known: Refusals) -> str:
        reason, stamp = known.get(path, ("", None))
        if stamp == stamp_of(found):
            return reason
        if not stat.S_ISREG(found.st_mode):
            return ""
        if found.st_size > self.max_file_bytes:
            return TOO_LARGE
        return "" if os.access(self._beneath.absolute(path), os.R_OK) else UNREADABLE

    def _forget(self, index: str, paths: list[bytes]) -> None:
        if paths:
            self._hand_over(index, paths, "--force-remove")

    def _put(self, index: str, paths: list[bytes]) -> list[bytes]:
        """Have git take paths in. One that it refuses would spoil all: it is looked for by halves, and given back."""
        refused: list[bytes] = []
        todo = [paths] if paths else []
        while todo:
            some = todo.pop()
            try:
                self._hand_over(index, some, "--info-only", "--add", "--remove", "--replace")
            except GitError:
                if self._plumbing.stopped or len(refused) >= REFUSALS:
                    raise
                half = len(some) // 2
                if half:
                    todo += [some[half:], some[:half]]
                else:
                    refused += some
        return refused

    def _hand_over(self, index: str, paths: list[bytes], *how: str) -> None:
        asked = ["update-index", *how, "-z", "--stdin"]
        self._plumbing.run(asked, input=b"\0".join(paths) + b"\0", index=index, seconds=SECONDS)


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
