"""Taking files into an index as they are now, and their contents into our store of objects. Calls block."""

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Final

from weft.errors import GitError
from weft.host.files import Disk, Stamp, stamp_of
from weft.host.git import Plumbing
from weft.snapshot.beneath import Beneath, Survey
from weft.snapshot.copying import take_copy
from weft.snapshot.entry import Entry
from weft.snapshot.listing import Listing
from weft.snapshot.objects import NoRoomError, Objects

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
