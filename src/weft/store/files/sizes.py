"""Measure how many bytes a tree takes by kind, project and session."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from weft.store.files.inventory import Inventory, ProgressCallback
from weft.store.files.layout import SUFFIX, Layout

COLLECTION_KINDS = {
    "project": "project",
    "session": "session",
    "message": "message",
    "part": "part",
    "session_diff": "diff",
    "todo": "todo",
    "session_share": "kept",
    "share": "kept",
    "permission": "kept",
    "migration": "housekeeping",
}
OWN_KINDS = {
    "growth": "growth",
    "trash": "trash",
    "backup": "backups",
    "kept": "kept",
    "index": "index",
    "lock": "housekeeping",
    "temp": "housekeeping",
    "redo": "housekeeping",
    "run": "housekeeping",
    "upgrade": "housekeeping",
}
OTHER = "other"
REPORT_EVERY = 1000


class Size(Struct, frozen=True):
    """A number of bytes in a number of files."""

    bytes: int = 0
    files: int = 0


class StoreSizes(Struct, frozen=True, kw_only=True):
    """Sizes in total and by kind, project and session. Files that belong to none are under ""."""

    total: Size
    kinds: Mapping[str, Size]
    projects: Mapping[str, Size]
    sessions: Mapping[str, Size]


class MeasuredFile(NamedTuple):
    """A file: its path as a tuple of names, relative to the measured directory, and its size."""

    words: tuple[str, ...]
    size: int


class SizeCounter:
    """Adds up files and reports progress."""

    def __init__(self, inventory: Inventory, on_progress: ProgressCallback) -> None:
        self._inventory = inventory
        self._on_progress = on_progress
        self._seen = 0
        self._bytes: dict[str, Counter[str]] = {key: Counter() for key in ("kind", "project", "session")}
        self._files: dict[str, Counter[str]] = {key: Counter() for key in ("kind", "project", "session")}

    def put(self, file: MeasuredFile, *, kind: str, project: str = "", session: str = "") -> None:
        if session and not project:
            project = next(iter(self._inventory.sessions.get(session, ())), "")
        for key, name in (("kind", kind), ("project", project), ("session", session)):
            self._bytes[key][name] += file.size
            self._files[key][name] += 1
        self._seen += 1
        if self._seen % REPORT_EVERY == 0:
            self._on_progress(self._seen)

    def sizes(self) -> StoreSizes:
        kinds = self._to_sizes("kind")
        total = Size(sum(each.bytes for each in kinds.values()), sum(each.files for each in kinds.values()))
        return StoreSizes(
            total=total, kinds=kinds, projects=self._to_sizes("project"), sessions=self._to_sizes("session")
        )

    def _to_sizes(self, key: str) -> dict[str, Size]:
        return {name: Size(size, self._files[key][name]) for name, size in self._bytes[key].items()}


def measure(
    layout: Layout,
    inventory: Inventory,
    places: Mapping[str, str],
    *,
    on_progress: ProgressCallback = lambda _: None,
) -> StoreSizes:
    """Measure a tree and further directories (`places`, by kind): tool outputs, snapshots, an index."""
    counter = SizeCounter(inventory, on_progress)
    for file in walk_files(layout.root):
        collection = file.words[0]
        if collection == os.path.basename(layout.own) and len(file.words) > 1:
            _add_own(counter, file, inventory)
        else:
            session = find_session(file.words, inventory)
            kind = COLLECTION_KINDS.get(collection, OTHER)
            counter.put(file, kind=kind, project=find_project(file.words), session=session)
    for kind, place in places.items():
        for file in walk_files(place):
            counter.put(file, kind=kind, project=file.words[0] if kind == "snapshots" else "")
    return counter.sizes()


def _add_own(counter: SizeCounter, file: MeasuredFile, inventory: Inventory) -> None:
    kind = OWN_KINDS.get(file.words[1], OTHER)
    match file.words:
        case (_, "growth", message, *_):
            counter.put(file, kind=kind, session=_find_owner(message, inventory))
        case _:
            counter.put(file, kind=kind)


def find_session(words: tuple[str, ...], inventory: Inventory) -> str:
    """Return the existing session that a file belongs to, judged by its path; "" for none."""
    match words:
        case ("session", _, name) | ("session_diff" | "todo" | "session_share" | "share", name):
            found = name.removesuffix(SUFFIX)
        case ("message", found, _):
            pass
        case ("part", message, *_):
            found = _find_owner(message, inventory)
        case _:
            return ""
    return found if found in inventory.sessions else ""


def _find_owner(message: str, inventory: Inventory) -> str:
    return next((each for each in inventory.owners.get(message, ()) if each in inventory.sessions), "")


def find_project(words: tuple[str, ...]) -> str:
    """Return the project that a path names; "" for none."""
    match words:
        case ("session", project, _):
            return project
        case ("project" | "permission", name):
            return name.removesuffix(SUFFIX)
        case _:
            return ""


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
