"""Pins: which trees a session needs. A file for each, where git looks for refs, so that git keeps them too."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress

from weft.host.files import Disk, write_atomic
from weft.model.diff import Tree
from weft.model.ids import SessionID
from weft.snapshot.place import Place

_TREE = re.compile(r"[0-9a-f]{40}")
_SESSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,127}")


def pin(place: Place, session: SessionID, trees: Iterable[Tree]) -> None:
    for tree in trees:
        path = _path(place, session, tree)
        if path is not None and not os.path.exists(path):
            write_atomic(path, f"{tree}\n".encode(), temp=f"{place.pins}/{session}~{tree}")


def unpin(place: Place, session: SessionID, trees: Iterable[Tree]) -> None:
    for tree in trees:
        if (path := _path(place, session, tree)) is not None:
            Disk().remove(path)
            Disk().prune(os.path.dirname(path))


def release(place: Place, session: SessionID) -> None:
    unpin(place, session, list_pins(place, session))


def list_pins(place: Place, session: SessionID) -> list[Tree]:
    return [Tree(name) for name in _names(f"{place.pins}/{session}") if _TREE.fullmatch(name)]


def list_sessions(place: Place) -> list[SessionID]:
    """Those that have anything pinned."""
    return [SessionID(name) for name in _names(place.pins) if _SESSION.fullmatch(name)]


def _path(place: Place, session: SessionID, tree: Tree) -> str | None:
    """None for what is no name: it would lead elsewhere."""
    valid = _SESSION.fullmatch(session) and _TREE.fullmatch(tree)
    return f"{place.pins}/{session}/{tree}" if valid else None


def _names(directory: str) -> list[str]:
    with suppress(OSError):
        return sorted(os.listdir(directory))
    return []
