"""Measure how many bytes a tree takes by kind, project and session."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from weft.store.files.inventory import Inventory
from weft.store.files.layout import SUFFIX, Layout

Told = Callable[[int], None]

SHELF_KINDS = {
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
TELL_EVERY = 1000


class Weight(Struct, frozen=True):
    bytes: int = 0
    files: int = 0


class Sizes(Struct, frozen=True, kw_only=True):
    """What everything weighs together, and by kind, project and session. What belongs to none is under ""."""

    total: Weight
    kinds: Mapping[str, Weight]
    projects: Mapping[str, Weight]
    sessions: Mapping[str, Weight]


class File(NamedTuple):
    """A file by its path below the place it was found in, and its size."""

    words: tuple[str, ...]
    size: int


class Scales:
    """Adds up files, and says now and then how many there were so far."""

    def __init__(self, inventory: Inventory, told: Told) -> None:
        self._inventory = inventory
        self._told = told
        self._seen = 0
        self._bytes: dict[str, Counter[str]] = {key: Counter() for key in ("kind", "project", "session")}
        self._files: dict[str, Counter[str]] = {key: Counter() for key in ("kind", "project", "session")}

    def put(self, file: File, *, kind: str, project: str = "", session: str = "") -> None:
        if session and not project:
            project = next(iter(self._inventory.sessions.get(session, ())), "")
        for key, name in (("kind", kind), ("project", project), ("session", session)):
            self._bytes[key][name] += file.size
            self._files[key][name] += 1
        self._seen += 1
        if self._seen % TELL_EVERY == 0:
            self._told(self._seen)

    def sizes(self) -> Sizes:
        kinds = self._weights("kind")
        total = Weight(sum(each.bytes for each in kinds.values()), sum(each.files for each in kinds.values()))
        return Sizes(
            total=total, kinds=kinds, projects=self._weights("project"), sessions=self._weights("session")
        )

    def _weights(self, key: str) -> dict[str, Weight]:
        return {name: Weight(size, self._files[key][name]) for name, size in self._bytes[key].items()}


def measure(
    layout: Layout, inventory: Inventory, places: Mapping[str, str], *, told: Told = lambda _: None
) -> Sizes:
    """Weigh a tree, and further `places` by kind: spilled outputs, snapshots, an index."""
    scales = Scales(inventory, told)
    for file in files_below(layout.root):
        shelf = file.words[0]
        if shelf == os.path.basename(layout.own) and len(file.words) > 1:
            _put_own(scales, file, inventory)
        else:
            session = session_of(file.words, inventory)
            kind = SHELF_KINDS.get(shelf, OTHER)
            scales.put(file, kind=kind, project=project_of(file.words), session=session)
    for kind, place in places.items():
        for file in files_below(place):
            scales.put(file, kind=kind, project=file.words[0] if kind == "snapshots" else "")
    return scales.sizes()


def _put_own(scales: Scales, file: File, inventory: Inventory) -> None:
    kind = OWN_KINDS.get(file.words[1], OTHER)
    match file.words:
        case (_, "growth", message, *_):
            scales.put(file, kind=kind, session=_owner(message, inventory))
        case _:
            scales.put(file, kind=kind)


def session_of(words: tuple[str, ...], inventory: Inventory) -> str:
    """The session a file in a tree belongs to, by where it lies; "" for none that is there."""
    match words:
        case ("session", _, name) | ("session_diff" | "todo" | "session_share" | "share", name):
            found = name.removesuffix(SUFFIX)
        case ("message", found, _):
            pass
        case ("part", message, *_):
            found = _owner(message, inventory)
        case _:
            return ""
    return found if found in inventory.sessions else ""


def _owner(message: str, inventory: Inventory) -> str:
    return next((each for each in inventory.owners.get(message, ()) if each in inventory.sessions), "")


def project_of(words: tuple[str, ...]) -> str:
    """The project that a file names by where it lies; "" for none."""
    match words:
        case ("session", project, _):
            return project
        case ("project" | "permission", name):
            return name.removesuffix(SUFFIX)
        case _:
            return ""


def files_below(top: str, words: tuple[str, ...] = ()) -> Iterator[File]:
    """Every file below a directory, links not followed. What vanishes or may not be seen meanwhile is passed over."""
    try:
        with os.scandir(top) as found:
            entries = list(found)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        yield File((*words, os.path.basename(top)), os.lstat(top).st_size)
        return
    except PermissionError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from files_below(entry.path, (*words, entry.name))
            continue
        try:
            yield File((*words, entry.name), entry.stat(follow_symlinks=False).st_size)
        except FileNotFoundError:
            continue
