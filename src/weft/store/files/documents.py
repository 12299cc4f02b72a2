"""Read JSON documents, cache them until they change, and skip unreadable ones."""

import errno
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, TypeVar, overload

from weft.errors import DocumentError, InvalidIdError
from weft.host.files import (
    Stamp,
    find_final_stamp_time,
    has_final_stamp,
    read_bytes,
    read_file,
    stamp_of,
    wait_briefly,
)
from weft.model.damage import Damage
from weft.model.ids import check_file_name, check_file_names
from weft.model.wire import decode, decode_many
from weft.store.files.layout import SUFFIX

T = TypeVar("T")

LIMIT = 256 << 20
ATTEMPTS = 5
BYTES_PER_PASS = 1 << 20  # that are read before they are decoded

# Reasons why something among the documents is not one.
NOT_A_DOCUMENT = "not a document"
NOT_A_DIRECTORY = "not a directory"
NOT_AN_ID = "its name is not an id"

# These errors mean that the process is short of resources. Skipping the document would hide a sound one.
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class CachedDocument(NamedTuple):
    """A document as it was read.

    It has no stamp if the file changed so recently that another change could leave the same stamp.
    """

    stamp: Stamp | None
    value: Any
    size: int


class UndecodedDocument(NamedTuple):
    """A document that was read: its place in the list of results, and the stamp for its `CachedDocument`."""

    place: int
    path: str
    raw: bytes
    stamp: Stamp | None


class Documents:
    """Reads documents. Missing and unreadable ones are None; `problems` lists the unreadable ones.

    Up to `cache_bytes` bytes of documents are cached.
    """

    def __init__(self, *, cache_bytes: int = 0) -> None:
        self._problems: dict[str, str] = {}
        self._reported: set[Damage] = set()
        self._values: dict[str, tuple[Stamp, Any]] = {}
        self._has_cache = cache_bytes > 0
        self._cache_left = cache_bytes
        self._lock = threading.Lock()

    @overload
    def find(self, path: str, kind: type[T]) -> T | None: ...
    @overload
    def find(self, path: str, kind: object) -> Any: ...
    def find(self, path: str, kind: Any) -> Any:
        try:
            if not self._has_cache or kind is Any:  # plain values are mutable, so they must not be shared
                return self._read(path, kind)
            known = self._values.get(path)
            if known is not None and known[0] == stamp_of(os.stat(path)):
                return known[1]
            return self._read_and_cache(path, kind)
        except (OSError, DocumentError) as error:
            self._note(path, error)
        return None

    def find_all(self, directory: str, names: Sequence[str], kind: type[T]) -> Iterator[tuple[str, T]]:
        """Yield the documents with these names that exist in a directory and can be read, each with its name.

        This does the same as `find` for each name. The stamps of cached documents are read relative to the open directory, because
        with thousands of documents the system spends most of the time on resolving their whole paths.
        """
        with ExitStack() as stack:
            fd = self._open_directory(directory, stack) if self._has_cache else None
            for name in names:
                path = f"{directory}/{name}{SUFFIX}"
                known = None if fd is None else self._values.get(path)
                value = None if known is None or _find_stamp(name + SUFFIX, fd) != known[0] else known[1]
                if value is None:
                    value = self.find(path, kind)
                if value is not None:
                    yield name, value

    def _open_directory(self, directory: str, stack: ExitStack) -> int | None:
        """Open a directory until the stack is closed. Return None if that fails."""
        try:
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        stack.callback(os.close, fd)
        return fd

    def find_again(
        self, paths: Sequence[str], kind: object, known: Sequence[CachedDocument | None]
    ) -> list[CachedDocument | None]:
        """Like `find` for each path, for callers with a cache of their own: return what is known of a file that has not changed.

        A value that is equal to the known one stays the same object. Documents are decoded many at a time.
        """
        found = list(known)
        unread: list[UndecodedDocument] = []
        size, final = 0, find_final_stamp_time()
        for index, path in enumerate(paths):
            cached = found[index]
            try:
                if cached is not None and cached.stamp == stamp_of(os.stat(path)):
                    continue
                raw, status = read_file(path, limit=LIMIT)
            except OSError as error:
                self._note(path, error)
                found[index] = None
                continue
            stamp = stamp_of(status)
            unread.append(UndecodedDocument(index, path, raw, stamp if stamp[0] < final else None))
            size += len(raw)
            if size > BYTES_PER_PASS:
                self._decode_into(found, unread, kind)
                unread, size = [], 0
        self._decode_into(found, unread, kind)
        return found

    def _decode_into(
        self, found: list[CachedDocument | None], unread: Sequence[UndecodedDocument], kind: object
    ) -> None:
        """Replace the places of these documents in a list."""
        values = decode_many([each.raw for each in unread], kind)
        for (place, path, raw, stamp), decoded in zip(unread, values, strict=True):
            value, known = decoded, found[place]
            if type(value) is DocumentError:  # `isinstance` takes longer if the answer is no
                try:
                    value = self._decode(path, kind, raw)
                except (OSError, DocumentError) as error:
                    self._note(path, error)
                    found[place] = None
                    continue
            if self._problems:
                self._problems.pop(path, None)
            if known is not None and known.value == value:
                value = known.value
            found[place] = CachedDocument(stamp, value, len(raw))

    def _note(self, path: str, error: OSError | DocumentError) -> None:
        """Record an error as a problem of the document. A missing document is not a problem."""
        if isinstance(error, FileNotFoundError):
            self._problems.pop(path, None)
        elif isinstance(error, DocumentError):
            self._problems[path] = error.reason
        elif error.errno in SHORTAGES:
            raise error
        else:
            self._problems[path] = error.strerror or str(error)

    def note_problem(self, path: str, reason: str) -> None:
        """Record a problem of a document that can be read, and does not fit what it describes."""
        self._problems[path] = reason

    def list_names(self, directory: str) -> list[str]:
        """Return the names of the documents in a directory without `.json`. Report everything else as a problem."""
        return self.scan(directory)[0]

    def scan(self, directory: str) -> tuple[list[str], bool]:
        """Like `list_names`, and return also whether the directory contains anything else."""
        entries = self._entries(directory)
        # Mostly everything is a document, and checking them all at once takes half the time.
        with suppress(InvalidIdError, OSError):
            found = [
                entry.name[: -len(SUFFIX)]
                for entry in entries
                if entry.name.endswith(SUFFIX) and entry.is_file()
            ]
            check_file_names("document", found)
            if len(found) == len(entries):
                return found, False
        found, others = [], False
        for entry in entries:
            name = entry.name.removesuffix(SUFFIX)
            if name != entry.name and _is_file(entry) and self._is_id(name, entry.path):
                found.append(name)
            else:
                others = True
                if name == entry.name or _is_directory(entry):
                    self._problems[entry.path] = NOT_A_DOCUMENT
        return found, others

    def list_directories(self, directory: str) -> list[str]:
        """Return the names of the directories in a directory. Report everything else as a problem."""
        found: list[str] = []
        for entry in self._entries(directory):
            if not _is_directory(entry):
                self._problems[entry.path] = NOT_A_DIRECTORY
            elif self._is_id(entry.name, entry.path):
                found.append(entry.name)
        return found

    def take_new_problems(self) -> list[Damage]:
        """Return the problems found since the last call, each only once."""
        if not self._problems:
            return []
        new = [each for each in self.problems() if each not in self._reported]
        self._reported.update(new)
        return new

    def problems(self) -> list[Damage]:
        """Return the documents that could not be read and have not been read since."""
        found = sorted(self._problems.copy().items())
        return [Damage(where=path, reason=reason) for path, reason in found]

    def forget_problems(self) -> None:
        self._problems.clear()

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
            check_file_name("document", name)
        except InvalidIdError:
            self._problems[path] = NOT_AN_ID
            return False
        return True

    def _read(self, path: str, kind: Any) -> Any:
        value = self._decode(path, kind, read_bytes(path, limit=LIMIT))
        self._problems.pop(path, None)
        return value

    def _read_and_cache(self, path: str, kind: Any) -> Any:
        raw, found = read_file(path, limit=LIMIT)
        value = self._decode(path, kind, raw)
        self._problems.pop(path, None)
        with self._lock:
            self._forget(path)
            if has_final_stamp(found):
                self._values[path] = stamp_of(found), value
                self._cache_left -= found.st_size
            while self._cache_left < 0:
                self._forget(next(iter(self._values)))
        return value

    def _decode(self, path: str, kind: Any, raw: bytes) -> Any:
        try:
            return decode(raw, kind, where=path)
        except DocumentError:
            if has_final_stamp(os.stat(path)):
                raise
        # OpenCode truncates a file before it writes it again: a document that was just written may be incomplete.
        for _ in range(ATTEMPTS):
            wait_briefly()
            with suppress(DocumentError):
                return decode(read_bytes(path, limit=LIMIT), kind, where=path)
        return decode(read_bytes(path, limit=LIMIT), kind, where=path)

    def forget(self, paths: Iterable[str]) -> None:
        """Drop from the cache what is no longer at these paths: documents, or directories with all documents in them."""
        gone = set(paths)
        directories = {path for path in gone if not path.endswith(SUFFIX)}
        with self._lock:
            if directories:
                gone |= {path for path in self._values if os.path.dirname(path) in directories}
            for path in gone:
                self._forget(path)

    def _forget(self, path: str) -> None:
        known = self._values.pop(path, None)
        if known is not None:
            self._cache_left += known[0][1]


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False  # a link to itself, or into a directory that we may not enter


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _find_stamp(name: str, directory: int | None) -> Stamp | None:
    """Return the stamp of a file in an open directory, None if there is none."""
    try:
        return stamp_of(os.stat(name, dir_fd=directory))
    except OSError:
        return None
