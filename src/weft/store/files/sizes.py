"""Measure how many bytes a tree takes by kind, project and session."""

from weft.store.files.inventory import Inventory
from weft.store.files.layout import SUFFIX, Layout
from weft.store.sizes import SizeCounter, walk_files

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
    "log": "kept",
    "lock": "housekeeping",
    "temp": "housekeeping",
    "redo": "housekeeping",
    "run": "housekeeping",
    "chain": "chain",
    "upgrade": "housekeeping",
}
OTHER = "other"


def measure_tree(layout: Layout, inventory: Inventory, counter: SizeCounter) -> None:
    for file in walk_files(layout.root):
        session = _find_session(file.words, inventory)
        project = _find_project(file.words) or next(iter(inventory.sessions.get(session, ())), "")
        counter.add(file.size, kind=_find_kind(file.words), project=project, session=session)


def _find_kind(words: tuple[str, ...]) -> str:
    match words:
        case (".weft", collection, *_):
            return OWN_KINDS.get(collection, OTHER)
        case (collection, *_):
            return COLLECTION_KINDS.get(collection, OTHER)
        case _:
            return OTHER


def _find_session(words: tuple[str, ...], inventory: Inventory) -> str:
    """Return the existing session that a file belongs to, judged by its path; "" for none."""
    match words:
        case ("session", _, name) | ("session_diff" | "todo" | "session_share" | "share", name):
            found = name.removesuffix(SUFFIX)
        case ("message", found, _):
            pass
        case ("part", message, *_) | (".weft", "growth", message, *_):
            found = _find_owner(message, inventory)
        case _:
            return ""
    return found if found in inventory.sessions else ""


def _find_owner(message: str, inventory: Inventory) -> str:
    return next((each for each in inventory.owners.get(message, ()) if each in inventory.sessions), "")


def _find_project(words: tuple[str, ...]) -> str:
    """Return the project that a path names; "" for none."""
    match words:
        case ("session", project, _):
            return project
        case ("project" | "permission", name):
            return name.removesuffix(SUFFIX)
        case _:
            return ""
