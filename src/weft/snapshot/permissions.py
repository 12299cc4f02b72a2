"""Permissions: an index says of a file only whether it may be executed; the rest is what was seen. Calls block."""

import os
import stat
from collections import Counter
from collections.abc import Mapping

from weft.snapshot.beneath import Beneath
from weft.snapshot.entry import EXECUTABLE, FILE, Entry


class Permissions:
    """What is remembered: the usual ones, and whose are others."""

    def __init__(self, beneath: Beneath) -> None:
        self._beneath = beneath
        self._usual = {False: 0o644, True: 0o755}
        self._others: dict[bytes, int] = {}

    def learn(self, entries: Mapping[bytes, Entry]) -> None:
        """See all files once: of one that is removed they could not be asked any more."""
        seen: dict[bytes, int] = {}
        for path, entry in entries.items():
            if not entry.is_link and (found := self._ask(path)) is not None:
                seen[path] = found
        for executable in (False, True):
            counted = Counter(each for each in seen.values() if bool(each & EXECUTABLE) == executable)
            for usual, _ in counted.most_common(1):
                self._usual[executable] = usual
        self._others = {
            path: each for path, each in seen.items() if each != self._usual[bool(each & EXECUTABLE)]
        }

    def put_in(self, path: bytes, old: Entry | None, new: Entry | None) -> tuple[Entry | None, Entry | None]:
        """Both entries with all nine bits: those of now, before as after, unless it is gone."""
        if old is not None and not old.is_link:
            executable = bool(old.mode & EXECUTABLE)
            known = self._others.get(path, self._usual[executable])
            old = Entry(FILE | known, old.oid) if bool(known & EXECUTABLE) == executable else old
        found = self._ask(path) if new is not None and not new.is_link else None
        if new is not None and found is not None:
            new = Entry(FILE | found, new.oid)
            self._others[path] = found
            if old is not None and not old.is_link and old.mode & EXECUTABLE == new.mode & EXECUTABLE:
                old = Entry(new.mode, old.oid)
        return old, new

    def _ask(self, path: bytes) -> int | None:
        try:
            found = os.lstat(self._beneath.absolute(path))
        except OSError:
            return None
        return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else None
