"""The trash: keep removed sessions as they lay in the tree, restore them or delete them."""

import os
from collections.abc import Iterator
from contextlib import suppress

from weft.errors import ConflictError, NotFoundError, StoreError
from weft.model.ids import SessionID
from weft.model.session import Trashed
from weft.model.wire import encode_pretty
from weft.store.files.batch import Plan
from weft.store.files.reader import Tree, list_part_owners

# What lies below the root, and how deep: a whole directory is moved as one where it belongs to one session.
SHELVES = {"session": 2, "message": 1, "part": 1, "session_diff": 1, "todo": 1, ".weft/growth": 1}


class Trash:
    """Works out what is to be moved. Whoever calls it holds the locks of the sessions."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._layout = tree.layout

    def list_bundles(self) -> list[Trashed]:
        """Oldest first."""
        names = self._tree.documents.directories(self._layout.trash)
        found = [trashed for name in names if (trashed := self._find(name)) is not None]
        return sorted(found, key=lambda trashed: (trashed.time, trashed.id))

    def get(self, id: str) -> Trashed:
        trashed = self._find(id)
        if trashed is None:
            raise NotFoundError("bundle in the trash", id)
        return trashed

    def plan_discard(self, trashed: Trashed) -> Plan:
        below = self._layout.thrown(trashed.id)
        places = self._places([session.id for session in trashed.sessions])
        return Plan(
            clears=[],
            moves={
                path: f"{below}/{self._layout.relative(path)}" for path in places if os.path.lexists(path)
            },
            puts={self._layout.label(trashed.id): encode_pretty(trashed)},
            drops=[],
            extension=None,
            tidy=[],
        )

    def plan_restore(self, trashed: Trashed) -> Plan:
        for session in trashed.sessions:
            if self._tree.projects_of(session.id):
                raise ConflictError("session", session.id, "is there again")
        below = self._layout.thrown(trashed.id)
        moves = {path: self._layout.absolute(path[len(below) + 1 :]) for path in self._thrown(below)}
        for target in moves.values():
            with suppress(OSError):
                os.rmdir(target)  # an empty directory is in nobody's way
            if os.path.lexists(target):
                raise StoreError(f"{target} is in the way", hint="move it elsewhere, then restore again")
        return Plan(
            clears=[],
            moves=moves,
            puts={},
            drops=[self._layout.bundle(trashed.id)],
            extension=None,
            tidy=[],
        )

    def plan_purge(self, trashed: Trashed) -> Plan:
        return Plan(clears=[self._layout.bundle(trashed.id)], puts={}, drops=[], extension=None, tidy=[])

    def _find(self, id: str) -> Trashed | None:
        return self._tree.documents.find(self._layout.label(id), Trashed)

    def _places(self, sessions: list[SessionID]) -> Iterator[str]:
        """All that is theirs, wherever it may lie."""
        layout = self._layout
        for message in list_part_owners(self._tree, sessions):
            yield layout.parts(message)
            yield layout.grown(message)
        for id in sessions:
            yield layout.messages(id)
            yield layout.diff(id)
            yield layout.todo(id)
            for project in self._tree.projects_of(id):
                yield layout.session(project, id)

    def _thrown(self, below: str) -> list[str]:
        found: list[str] = []
        for shelf, depth in SHELVES.items():
            paths = [f"{below}/{shelf}"]
            for _ in range(depth):
                paths = [f"{path}/{name}" for path in paths for name in _names(path)]
            found += paths
        return found


def _names(directory: str) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(os.listdir(directory))
    return []
