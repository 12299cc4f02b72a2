"""Read JSON documents, cache them while they do not change, and skip unreadable ones."""

import errno
import os
import threading
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, overload

from weft.errors import DocumentError, InvalidIdError
from weft.host.files import Stamp, is_settled, read_bytes, read_file, stamp_of, wait_a_moment
from weft.model.damage import Damage
from weft.model.ids import file_name
from weft.model.wire import decode

T = TypeVar("T")

LIMIT = 256 << 20
ATTEMPTS = 5
SUFFIX = ".json"

# These say that we are short of something, not that the document is bad: to skip it would hide a sound one.
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Seen(NamedTuple):
    """A document as it was read. Without a stamp it had changed just now, and may change again and look the same."""

    stamp: Stamp | None
    value: Any
    size: int


class Documents:
    """Reads documents. What is missing or cannot be read is None; `problems` names what cannot be read.

    Up to so many bytes of them are `remembered`, for who reads them again and again.
    """

    def __init__(self, *, remembered: int = 0) -> None:
        self._problems: dict[str, str] = {}
        self._told: set[Damage] = set()
        self._values: dict[str, tuple[Stamp, Any]] = {}
        self._remembers = remembered > 0
        self._room = remembered
        self._lock = threading.Lock()

    @overload
    def find(self, path: str, kind: type[T]) -> T | None: ...
    @overload
    def find(self, path: str, kind: object) -> Any: ...
    def find(self, path: str, kind: Any) -> Any:
        try:
            if not self._remembers or kind is Any:  # plain values can be changed by whoever is given them
                return self._read(path, kind)
            known = self._values.get(path)
            if known is not None and known[0] == stamp_of(os.stat(path)):
                return known[1]
            return self._read_and_remember(path, kind)
        except (OSError, DocumentError) as error:
            self._note(path, error)
        return None

    def see(self, path: str, kind: object, known: Seen | None) -> Seen | None:
        """The same for who remembers by itself: what is `known` of a document, if that still holds, else what it is
        now. A value that is as it was stays the same object."""
        try:
            if known is not None and known.stamp == stamp_of(os.stat(path)):
                return known
            raw, found = read_file(path, limit=LIMIT)
            value = self._decoded(path, kind, raw)
        except (OSError, DocumentError) as error:
            self._note(path, error)
            return None
        self._problems.pop(path, None)
        if known is not None and known.value == value:
            value = known.value
        return Seen(stamp_of(found) if is_settled(found) else None, value, found.st_size)

    def _note(self, path: str, error: OSError | DocumentError) -> None:
        """Keep what stood in the way of reading a document as a problem of it. That it is not there is none."""
        if isinstance(error, FileNotFoundError):
            self._problems.pop(path, None)
        elif isinstance(error, DocumentError):
            self._problems[path] = error.reason
        elif error.errno in SHORTAGES:
            raise error
        else:
            self._problems[path] = error.strerror or str(error)

    def names(self, directory: str) -> list[str]:
        """The names of the documents in a directory, without `.json`; anything else there is a problem."""
        return self.list_names(directory)[0]

    def list_names(self, directory: str) -> tuple[list[str], bool]:
        """The same, and whether there is anything else."""
        found: list[str] = []
        others = False
        for entry in self._entries(directory):
            name = entry.name.removesuffix(SUFFIX)
            if name != entry.name and entry.is_file() and self._is_id(name, entry.path):
                found.append(name)
            else:
                others = True
                if name == entry.name or entry.is_dir():
                    self._problems[entry.path] = "not a document"
        return found, others

    def directories(self, directory: str) -> list[str]:
        """The names of the directories in a directory; anything else there is a problem."""
        found: list[str] = []
        for entry in self._entries(directory):
            if not entry.is_dir():
                self._problems[entry.path] = "not a directory"
            elif self._is_id(entry.name, entry.path):
                found.append(entry.name)
        return found

    def take_news(self) -> list[Damage]:
        """The problems that were found since this was last asked, each once."""
        if not self._problems:
            return []
        news = [each for each in self.problems() if each not in self._told]
        self._told.update(news)
        return news

    def problems(self) -> list[Damage]:
        """What could not be read so far, and has not been read since."""
        found = sorted(self._problems.copy().items())
        return [Damage(where=path, reason=reason) for path, reason in found]

    def forget_problems(self) -> None:
        self._problems.clear()

    def note_problem(self, path: str, reason: str) -> None:
        self._problems[path] = reason

    def _entries(self, directory: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(directory) as entries:
                return [entry for entry in entries if not entry.name.startswith(".")]
        except FileNotFoundError:
            return []
        except OSError as error:
            if error.errno in SHORTAGES:
                raise
            self._problems[directory] = error.strerror or str(error)
            return []

    def _is_id(self, name: str, path: str) -> bool:
        try:
            file_name("document", name)
        except InvalidIdError:
            self._problems[path] = "its name is no id"
            return False
        return True

    def _read(self, path: str, kind: Any) -> Any:
        value = self._decoded(path, kind, read_bytes(path, limit=LIMIT))
        self._problems.pop(path, None)
        return value

    def _read_and_remember(self, path: str, kind: Any) -> Any:
        raw, found = read_file(path, limit=LIMIT)
        value = self._decoded(path, kind, raw)
        self._problems.pop(path, None)
        with self._lock:
            self._forget(path)
            if is_settled(found):
                self._values[path] = stamp_of(found), value
                self._room -= found.st_size
            while self._room < 0:
                self._forget(next(iter(self._values)))
        return value

    def _decoded(self, path: str, kind: Any, raw: bytes) -> Any:
        try:
            return decode(raw, kind, where=path)
        except DocumentError:
            if is_settled(os.stat(path)):
                raise
        # OpenCode empties a file before it fills it again: what was written just now may be half of it.
        for _ in range(ATTEMPTS):
            wait_a_moment()
            with suppress(DocumentError):
                return decode(read_bytes(path, limit=LIMIT), kind, where=path)
        return decode(read_bytes(path, limit=LIMIT), kind, where=path)

    def _forget(self, path: str) -> None:
        known = self._values.pop(path, None)
        if known is not None:
            self._room += known[0][1]
