"""The works: all that is done about one directory's files, in plain calls that block; `shadow` does them in threads."""

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from weft.errors import GitError
from weft.host.files import Stamp, share_locked, stamp_of
from weft.host.git import Git, Plumbing
from weft.host.machine import NETWORKED, file_system
from weft.model.diff import Patch, Tree, Uncovered
from weft.model.ids import ProjectID, SessionID
from weft.snapshot.contract import Limits
from weft.snapshot.diffs import Diffs
from weft.snapshot.directory import Beneath, TooLargeError
from weft.snapshot.entry import Entry, State, shown
from weft.snapshot.index import NO_ROOM, TOO_LARGE, UNREADABLE, Listing, Scanned, Scanner
from weft.snapshot.ledger import Link, group, join, to_states
from weft.snapshot.objects import NoRoomError, Objects, pin
from weft.snapshot.opencode import OpenCodeSnapshots
from weft.snapshot.place import Place, is_below, place_of
from weft.snapshot.restore import Restorer

OUTSIDE: Final = "it lies outside the project"
GONE: Final = "what it was like is not to be had any more"
NO_FILE: Final = "it is no file"
HOME: Final = "it holds your home directory, which is too much to look through"


class Site(Struct, frozen=True, kw_only=True):
    """A directory to cover, and whose it is. `base` is where snapshots lie, `avoid` what is ours and never looked at.

    `home` is the person's: a directory that holds it is not looked through.
    """

    root: str
    project: ProjectID
    base: str
    avoid: tuple[str, ...] = ()
    home: str = ""


class Refused(Struct, frozen=True, kw_only=True):
    """A file that is not kept, why, and how it stands, to see whether it changes."""

    reason: str
    stamp: Stamp | None = None


class Seen(Struct, frozen=True, kw_only=True):
    """How a file was found, and those of the directories it lies in that are there. `file` is the name it came by."""

    file: str
    path: bytes | None
    found: Entry | Refused | None
    dirs: frozenset[bytes] = frozenset()


class Works:
    def __init__(self, site: Site, environ: Mapping[str, str], limits: Limits, live: str) -> None:
        self.place: Place = place_of(site.base, site.project, site.root)
        self._site = site
        # What a worktree of ours holds is not ours, though it lies in our own data.
        real = map(os.path.realpath, site.avoid)
        self._avoid = tuple(each for each in real if is_below(each, self.place.root))
        self._git = Git(environ)
        self._environ = environ
        self._limits = limits
        self._made = False
        self._tree: tuple[Stamp | None, Tree] | None = None
        self.plumbing = Plumbing(environ, self.place.git_dir, self.place.root)
        self.beneath = Beneath(self.place.root)
        self.objects = Objects(self.place, self.plumbing, limits.max_bytes)
        self.listing = Listing(self.plumbing, self.objects, limits.wait_seconds)
        self.scanner = self.scanner_at(f"{self.place.live}/{live}/index")
        self.restorer = Restorer(self.place, self.beneath, self.objects, limits.max_file_bytes)
        self.diffs = Diffs(self.plumbing, self.objects, self.beneath.root)

    def scanner_at(self, index: str) -> Scanner:
        scanner = Scanner(self.beneath, self.objects, self.plumbing, self.listing)
        scanner.index, scanner.shared = index, self.place.index
        scanner.intake.max_file_bytes = self._limits.max_file_bytes
        scanner.is_remote = any(file_system(each) in NETWORKED for each in (self.place.root, index))
        return scanner

    def borrow(self, git_dir: str, snapshot: str, left: Mapping[str, str]) -> Patch:
        """What OpenCode did to files when it took a session back."""
        theirs = OpenCodeSnapshots(self._environ, git_dir, self.place.root)
        return theirs.read_patch(self.objects, snapshot, left)

    def make(self) -> None:
        """Have a place to keep things in. Nothing is made before there is something to keep."""
        if not self._made:
            self.place.make(self._avoid)
            self._made = True

    # --- all files ---

    def why_not_all(self) -> str:
        """Why this directory is not looked through; "" if it is."""
        home = os.path.realpath(self._site.home) if self._site.home else ""
        if self.place.root == "/" or (home and is_below(home, self.place.root)):
            return HOME
        return ""

    def first(self) -> None:
        """The first look at all files. GitError or OSError if it cannot be had."""
        self.make()
        self.ask_around()
        with share_locked(self.place.lock):
            self.scanner.first()

    def scan(self, sources: Collection[str] = (), scanner: Scanner | None = None) -> Scanned:
        """What changed since the last look. All that undoing it would take is ours then."""
        with share_locked(self.place.lock):
            scanned = (scanner or self.scanner).scan(sources)
            named = {each.oid for change in scanned.changes for each in (change.before, change.after) if each}
            lost = self.objects.own(named) if named else set()
        if not lost:
            return scanned
        bad = [
            change
            for change in scanned.changes
            if any(each is not None and each.oid in lost for each in (change.before, change.after))
        ]
        good = tuple(change for change in scanned.changes if change not in bad)
        return Scanned(changes=good, uncovered={**scanned.uncovered, **{each.path: GONE for each in bad}})

    def tree(self) -> Tree:
        """What the last look saw. Made anew only if it saw something new."""
        stamp = _stamp(self.scanner.index)
        if self._tree is None or self._tree[0] != stamp:
            with share_locked(self.place.lock):
                self._tree = (stamp, self.scanner.tree())
        return self._tree[1]

    def ask_around(self) -> None:
        """Learn what the person's repository lends, and what its owner has git ignore. Again is fine."""
        with suppress(GitError):
            common = self._git.common_dir(self.place.root)
            if self._git.object_format(self.place.root) == "sha1":
                self.objects.borrow = f"{common}/objects"
            if os.path.isfile(f"{common}/info/exclude"):
                self.listing.ignoring = (f"--exclude-from={common}/info/exclude",)
        with suppress(GitError):
            if ignored := self._git.find_setting(self.place.root, "core.excludesFile"):
                self.listing.settings = ("-c", f"core.excludesFile={ignored}")

    # --- some files ---

    def see(self, files: Iterable[str]) -> list[Seen]:
        """Keep these files as they are."""
        self.make()
        with share_locked(self.place.lock):
            return [self._see(file, self.beneath.locate(file)) for file in files]

    def see_again(self, seen: Iterable[Seen]) -> list[Seen]:
        with share_locked(self.place.lock):
            return [self._see(each.file, each.path) for each in seen]

    def _see(self, file: str, path: bytes | None) -> Seen:
        if path is None or self._is_avoided(path):
            return Seen(file=file, path=None, found=Refused(reason=OUTSIDE, stamp=_stamp(file)))
        return Seen(file=file, path=path, found=self.keep(path), dirs=self.beneath.existing(path))

    def keep(self, path: bytes) -> Entry | Refused | None:
        """Store a file as it is; None if there is none."""
        found = self.beneath.look(path)
        if found is None or stat.S_ISDIR(found.st_mode):
            return None
        if not stat.S_ISREG(found.st_mode) and not stat.S_ISLNK(found.st_mode):
            return Refused(reason=NO_FILE, stamp=stamp_of(found))
        try:
            entry, content, _ = self.beneath.read(path, limit=self._limits.max_file_bytes)
            self.objects.write(content)
        except TooLargeError:
            return Refused(reason=TOO_LARGE, stamp=stamp_of(found))
        except NoRoomError:
            return Refused(reason=NO_ROOM, stamp=stamp_of(found))
        except OSError:
            return Refused(reason=UNREADABLE, stamp=stamp_of(found))
        return entry

    def _is_avoided(self, path: bytes) -> bool:
        absolute = os.fsdecode(self.beneath.absolute(path))
        return any(is_below(absolute, each) for each in self._avoid)

    def scanned(self, paths: Collection[bytes]) -> list[bytes]:
        """Those that a look at all files takes in."""
        return list(self.listing.entries(self.scanner.index, paths)) if paths else []

    # --- patches ---

    def patches(
        self, session: SessionID, links: Iterable[Link], uncovered: Mapping[bytes, str]
    ) -> tuple[Patch, ...]:
        """Links in order as patches, pinned. What is not covered goes with the last."""
        groups = group(list(join(links)))
        told = tuple(
            Uncovered(file=self.shown(path), reason=reason) for path, reason in sorted(uncovered.items())
        )
        if not groups and told:
            groups = [[]]
        with share_locked(self.place.lock):
            found = [self.patch(each) for each in groups]
            pin(self.place, session, (tree for each in found for tree in (each.hash, each.until)))
        if found and told:
            last = found[-1]
            found[-1] = Patch(hash=last.hash, until=last.until, files=last.files, uncovered=told)
        return tuple(found)

    def patch(self, links: Collection[Link]) -> Patch:
        before, after = to_states(links)
        return Patch(
            hash=self.objects.write_state(before),
            until=self.objects.write_state(after),
            files=tuple(self.shown(link.path) for link in sorted(links, key=lambda each: each.path)),
        )

    def fold(self, patches: Sequence[Patch]) -> Patch:
        """One patch from the first state of each file to its last."""
        links: dict[bytes, Link] = {}
        for number, patch in enumerate(patches):
            before, after = self.objects.read_state(patch.hash), self.objects.read_state(patch.until)
            for link in _links(before, after, number):
                old = links.get(link.path, link)
                links[link.path] = Link(link.path, old.before, link.after, number, old.had, link.has)
        # Files that could not stand side by side in one tree come from different times; the first ones are shown.
        folded = self.patch(next(iter(group(list(join(links.values())))), []))
        told = tuple({each.file: each for patch in patches for each in patch.uncovered}.values())
        return Patch(hash=folded.hash, until=folded.until, files=folded.files, uncovered=told)

    def changes(self, since: Tree, until: Tree) -> Patch:
        links = [Link(path, old, new, 0) for path, (old, new) in self.diffs.changed(since, until)]
        self.objects.own({each.oid for link in links for each in (link.before, link.after) if each})
        return self.patch(links)

    def shown(self, path: bytes) -> str:
        return shown(self.beneath.absolute(path) if path else self.beneath.root)


def _links(before: State, after: State, at: int) -> Iterator[Link]:
    had, has = tuple(before.dirs), tuple(after.dirs)
    for path in {*before.files, *after.files}:
        yield Link(path, before.files.get(path), after.files.get(path), at, had, has)


def _stamp(file: str) -> Stamp | None:
    try:
        return stamp_of(os.lstat(file))
    except OSError:
        return None
