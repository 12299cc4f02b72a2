"""Read OpenCode's snapshot repository: the files before it reverted a session. Every function blocks."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from weft.errors import GitError, SnapshotMissingError
from weft.host.git import Plumbing
from weft.model.diff import Patch
from weft.snapshot.entry import FILE, LINK, FileEntry, TreeState, format_path
from weft.snapshot.objects import ObjectStore

GIT_SECONDS: Final = 60.0
BATCH_SIZE: Final = 200
MODES: Final = {b"100644": FILE | 0o644, b"100755": FILE | 0o755, b"120000": LINK}
_TREE: Final = re.compile(r"[0-9a-f]{40}")


class OpenCodeSnapshots:
    """The snapshot repository of OpenCode for a project. It is never written."""

    def __init__(self, environ: Mapping[str, str], git_dir: str, root: str) -> None:
        self._git_dir = git_dir
        self._root = os.path.realpath(root)
        self._plumbing = Plumbing(environ, git_dir, self._root)

    def read_patch(self, objects: ObjectStore, snapshot: str, trees: Mapping[str, str]) -> Patch:
        """Return what OpenCode changed when it reverted a session, as a patch that leads back to `snapshot`.

        `trees` maps each file (absolute) to the tree from which OpenCode restored it. Copy the contents into `objects`.
        Raise `SnapshotMissingError` if OpenCode has dropped an object that is needed.
        """
        files = {
            os.path.relpath(file, self._root): tree for file, tree in trees.items() if self._contains(file)
        }
        try:
            before = self._list_entries(snapshot, sorted(files))
            after: dict[bytes, FileEntry] = {}
            for tree in sorted(set(files.values())):
                after |= self._list_entries(
                    tree, sorted(name for name, source in files.items() if source == tree)
                )
            self._copy(objects, {entry.oid for entry in before.values()})
        except (GitError, OSError) as error:
            raise SnapshotMissingError(
                f"OpenCode reverted this session, and its snapshots in {self._git_dir} cannot be read",
                files=sorted(trees),
            ) from error
        return Patch(
            before=objects.write_state(TreeState(files=before)),
            after=objects.write_state(TreeState(files=after)),
            files=tuple(
                format_path(os.path.join(os.fsencode(self._root), name)) for name in sorted(before | after)
            ),
        )

    def _contains(self, file: str) -> bool:
        return file.startswith(self._root.rstrip("/") + "/")

    def _list_entries(self, tree: str, names: Sequence[str]) -> dict[bytes, FileEntry]:
        """Return the files of a tree that have these names."""
        if _TREE.fullmatch(tree) is None:
            raise GitError(["ls-tree"], 128, f"{tree[:80]!r} is not the name of a tree")
        entries: dict[bytes, FileEntry] = {}
        self._plumbing.run(["cat-file", "-e", f"{tree}^{{tree}}"], seconds=GIT_SECONDS)
        for batch in _split_batches(names):
            output = self._plumbing.run(
                ["ls-tree", "-z", "--full-tree", tree, "--", *batch], seconds=GIT_SECONDS
            )
            for line in output.split(b"\0")[:-1]:
                fields, _, name = line.partition(b"\t")
                mode, kind, oid = fields.split(b" ")[:3]
                if kind == b"blob" and mode in MODES:
                    entries[name] = FileEntry(MODES[mode], oid.decode())
        return entries

    def _copy(self, objects: ObjectStore, oids: Iterable[str]) -> None:
        for oid in sorted(oids):
            objects.write(self._plumbing.run(["cat-file", "blob", oid], seconds=GIT_SECONDS), always=True)


def _split_batches(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), BATCH_SIZE):
        yield names[start : start + BATCH_SIZE]
