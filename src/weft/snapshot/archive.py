"""Read files out of stored snapshots, without opening or changing anything. Every method blocks."""

import os
from collections.abc import Collection, Mapping

from weft.host.git import Plumbing
from weft.model.diff import Tree
from weft.model.ids import ProjectID
from weft.snapshot.entry import DIRECTORY, FileEntry, from_tree
from weft.snapshot.location import locate_snapshots
from weft.snapshot.objects import ObjectStore


class SnapshotArchive:
    """The stored snapshots of one checkout (`root`)."""

    def __init__(self, base: str, project: ProjectID, root: str, environ: Mapping[str, str]) -> None:
        place = locate_snapshots(base, project, root)
        # The checkout may be gone, for example a worktree that was merged.
        directory = place.root if os.path.isdir(place.root) else place.directory
        self._objects = ObjectStore(place, Plumbing(environ, place.git_dir, directory), 0)
        self._trees: dict[str, dict[bytes, FileEntry] | None] = {}

    def has_tree(self, tree: Tree) -> bool:
        return self._read_tree(tree) is not None

    def find_entry(self, tree: Tree, path: bytes) -> FileEntry | None:
        """Return the entry of a file in a tree, None if it is not there or the tree cannot be read."""
        directory: str = tree
        *parents, name = path.split(b"/")
        for parent in parents:
            entry = (self._read_tree(directory) or {}).get(parent)
            if entry is None or entry.mode != DIRECTORY:
                return None
            directory = entry.oid
        return (self._read_tree(directory) or {}).get(name)

    def read_contents(self, oids: Collection[str]) -> dict[str, bytes]:
        """Return the contents that exist and are not damaged, by their ids."""
        return dict(self._objects.read(oids))

    def _read_tree(self, oid: str) -> dict[bytes, FileEntry] | None:
        if oid not in self._trees:
            content = self._objects.find(oid)
            try:
                self._trees[oid] = None if content is None else dict(from_tree(content))
            except ValueError:
                self._trees[oid] = None
        return self._trees[oid]
