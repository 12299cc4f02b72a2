"""Sizes of what a store contains, added up by kind, project and session."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

ProgressCallback = Callable[[int], None]

REPORT_EVERY = 1000


class Size(Struct, frozen=True):
    """A number of bytes in a number of files. A database counts its rows as files."""

    bytes: int = 0
    files: int = 0


class StoreSizes(Struct, frozen=True, kw_only=True):
    """Sizes in total and by kind, project and session. What belongs to none is under ""."""

    total: Size
    kinds: Mapping[str, Size]
    projects: Mapping[str, Size]
    sessions: Mapping[str, Size]


class SizeCounter:
    """Adds up sizes and reports how many files it has counted."""

    def __init__(self, on_progress: ProgressCallback = lambda _: None) -> None:
        self._on_progress = on_progress
        self._seen = 0
        self._bytes: dict[str, Counter[str]] = {key: Counter() for key in ("kind", "project", "session")}
        self._files: dict[str, Counter[str]] = {key: Counter() for key in ("kind", "project", "session")}

    def add(self, bytes: int, *, kind: str, project: str = "", session: str = "", files: int = 1) -> None:
        """Count one file, or several with this size in total."""
        for key, name in (("kind", kind), ("project", project), ("session", session)):
            self._bytes[key][name] += bytes
            self._files[key][name] += files
        seen, self._seen = self._seen, self._seen + files
        if self._seen // REPORT_EVERY > seen // REPORT_EVERY:
            self._on_progress(self._seen)

    def sizes(self) -> StoreSizes:
        kinds = self._to_sizes("kind")
        total = Size(sum(each.bytes for each in kinds.values()), sum(each.files for each in kinds.values()))
        return StoreSizes(
            total=total, kinds=kinds, projects=self._to_sizes("project"), sessions=self._to_sizes("session")
        )

    def _to_sizes(self, key: str) -> dict[str, Size]:
        return {name: Size(size, self._files[key][name]) for name, size in self._bytes[key].items()}


class MeasuredFile(NamedTuple):
    """A file: its path as a tuple of names, relative to the measured directory, and its size."""

    words: tuple[str, ...]
    size: int


def walk_files(top: str, words: tuple[str, ...] = ()) -> Iterator[MeasuredFile]:
    """Yield every file below a directory without following links. Skip files that vanish or cannot be seen."""
    try:
        with os.scandir(top) as found:
            entries = list(found)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        yield MeasuredFile((*words, os.path.basename(top)), os.lstat(top).st_size)
        return
    except PermissionError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from walk_files(entry.path, (*words, entry.name))
            continue
        try:
            yield MeasuredFile((*words, entry.name), entry.stat(follow_symlinks=False).st_size)
        except FileNotFoundError:
            continue
