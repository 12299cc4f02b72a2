"""The trash: keep removed sessions with their layout, restore them, or delete them for good."""

import os
from collections.abc import Iterator
from contextlib import suppress

from weft.errors import ConflictError, InvalidIdError, NotFoundError, StoreError
from weft.model.ids import SessionID, check_file_names
from weft.model.session import TrashBundle
from weft.model.transfer import SessionExport
from weft.model.wire import encode_pretty
from weft.store.files.batch import WritePlan
from weft.store.files.messages import MessageReader
from weft.store.files.tree import Tree, list_part_owners

# The collections a bundle can contain, and the depth at which files or whole directories are moved.
COLLECTION_DEPTHS = {
    "session": 2,
    "message": 1,
    "part": 1,
    "session_diff": 1,
    "todo": 1,
    ".weft/growth": 1,
    ".weft/chain": 1,
}


class Trash:
    """Plans the moves into and out of the trash. The caller holds the locks of the sessions."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._layout = tree.layout

    def list_bundles(self) -> list[TrashBundle]:
        """Return all bundles, oldest first."""
        names = self._tree.documents.list_directories(self._layout.trash)
        found = [trashed for name in names if (trashed := self._find(name)) is not None]
        return sorted(found, key=lambda trashed: (trashed.time, trashed.id))

    def get(self, id: str) -> TrashBundle:
        trashed = self._find(id)
        if trashed is None:
            raise NotFoundError("bundle in the trash", id)
        return trashed

    def read(self, id: str) -> list[SessionExport]:
        """Return the sessions of a bundle with all that belongs to them."""
        tree = Tree(self._layout.trashed_tree(id))
        messages = MessageReader(tree)
        return [
            SessionExport(
                info=session,
                messages=tuple(messages.list_messages(session.id)),
                diff=tuple(tree.list_diff(session.id)),
                todos=tuple(tree.list_todos(session.id)),
            )
            for session in self.get(id).sessions
        ]

    def plan_discard(self, trashed: TrashBundle) -> WritePlan:
        if os.path.lexists(self._layout.bundle(trashed.id)):
            raise ConflictError("bundle in the trash", trashed.id, "exists")
        below = self._layout.trashed_tree(trashed.id)
        places = self._list_paths([session.id for session in trashed.sessions])
        return WritePlan(
            clears=[],
            moves={
                path: f"{below}/{self._layout.relative(path)}" for path in places if os.path.lexists(path)
            },
            puts={self._layout.label(trashed.id): encode_pretty(trashed)},
            drops=[],
            extension=None,
            tidy=[],
        )

    def plan_restore(self, trashed: TrashBundle) -> WritePlan:
        for session in trashed.sessions:
            if self._tree.projects_of(session.id):
                raise ConflictError("session", session.id, "exists again")
        below = self._layout.trashed_tree(trashed.id)
        moves = {path: self._layout.absolute(path[len(below) + 1 :]) for path in self._list_trashed(below)}
        for target in moves.values():
            with suppress(OSError):
                os.rmdir(target)  # an empty directory may be replaced
            if os.path.lexists(target):
                raise StoreError(f"{target} is in the way", hint="move it elsewhere, then restore again")
        return WritePlan(
            clears=[],
            moves=moves,
            puts={},
            drops=[self._layout.bundle(trashed.id)],
            extension=None,
            tidy=[],
        )

    def plan_purge(self, trashed: TrashBundle) -> WritePlan:
        return WritePlan(clears=[self._layout.bundle(trashed.id)], puts={}, drops=[], extension=None, tidy=[])

    def _find(self, id: str) -> TrashBundle | None:
        path = self._layout.label(id)
        found = self._tree.documents.find(path, TrashBundle)
        if found is not None and not (found.id == id and found.sessions and _has_safe_ids(found)):
            self._tree.documents.note_problem(path, "it does not describe this bundle")
            return None
        return found

    def _list_paths(self, sessions: list[SessionID]) -> Iterator[str]:
        """Yield every path that belongs to these sessions."""
        layout = self._layout
        for message in list_part_owners(self._tree, sessions):
            yield layout.parts(message)
            yield layout.growth_directory(message)
        for id in sessions:
            yield layout.messages(id)
            yield layout.diff(id)
            yield layout.todo(id)
            yield layout.chain(id)
            for project in self._tree.projects_of(id):
                yield layout.session(project, id)

    def _list_trashed(self, below: str) -> list[str]:
        found: list[str] = []
        for collection, depth in COLLECTION_DEPTHS.items():
            paths = [f"{below}/{collection}"]
            for _ in range(depth):
                paths = [f"{path}/{name}" for path in paths for name in _list_names(path)]
            found += paths
        return found


def _has_safe_ids(trashed: TrashBundle) -> bool:
    try:
        check_file_names("session", [session.id for session in trashed.sessions])
    except InvalidIdError:
        return False
    return True


def _list_names(directory: str) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(os.listdir(directory))
    return []
