"""OpenCode's snapshot repository, read: what files were like before it took a session back. Calls block."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from weft.errors import GitError, SnapshotMissingError
from weft.host.git import Plumbing
from weft.model.diff import Patch
from weft.snapshot.entry import FILE, LINK, Entry, State, shown
from weft.snapshot.objects import Objects

SECONDS: Final = 60.0
AT_ONCE: Final = 200
MODES: Final = {b"100644": FILE | 0o644, b"100755": FILE | 0o755, b"120000": LINK}
_TREE: Final = re.compile(r"[0-9a-f]{40}")


class OpenCodeSnapshots:
    """The repository that OpenCode keeps for a project. It is read and never written."""

    def __init__(self, environ: Mapping[str, str], git_dir: str, root: str) -> None:
        self._git_dir = git_dir
        self._root = os.path.realpath(root)
        self._plumbing = Plumbing(environ, git_dir, self._root)

    def read_patch(self, objects: Objects, snapshot: str, left: Mapping[str, str]) -> Patch:
        """Return what OpenCode did to files when it took a session back, as a patch that leads back to `snapshot`.

        `left` names for each file (absolute) the tree that OpenCode brought it back to. Copy the contents into `objects`.
        Raise `SnapshotMissingError` if OpenCode has not kept what that takes.
        """
        files = {os.path.relpath(file, self._root): tree for file, tree in left.items() if self._has(file)}
        try:
            before = self._entries(snapshot, sorted(files))
            after: dict[bytes, Entry] = {}
            for tree in sorted(set(files.values())):
                after |= self._entries(tree, sorted(name for name, of in files.items() if of == tree))
            self._copy(objects, {entry.oid for entry in before.values()})
        except (GitError, OSError) as error:
            raise SnapshotMissingError(
                f"OpenCode took this back, and what it kept in {self._git_dir} cannot be read",
                files=sorted(left),
            ) from error
        return Patch(
            hash=objects.write_state(State(files=before)),
            until=objects.write_state(State(files=after)),
            files=tuple(
                shown(os.path.join(os.fsencode(self._root), name)) for name in sorted(before | after)
            ),
        )

    def _has(self, file: str) -> bool:
        return file.startswith(self._root.rstrip("/") + "/")

    def _entries(self, tree: str, names: Sequence[str]) -> dict[bytes, Entry]:
        """Return the files of a tree that have these names."""
        if _TREE.fullmatch(tree) is None:
            raise GitError(["ls-tree"], 128, f"{tree[:80]!r} is not the name of a tree")
        found: dict[bytes, Entry] = {}
        self._plumbing.run(["cat-file", "-e", f"{tree}^{{tree}}"], seconds=SECONDS)
        for some in _portions(names):
            said = self._plumbing.run(["ls-tree", "-z", "--full-tree", tree, "--", *some], seconds=SECONDS)
            for line in said.split(b"\0")[:-1]:
                about, _, name = line.partition(b"\t")
                mode, kind, oid = about.split(b" ")[:3]
                if kind == b"blob" and mode in MODES:
                    found[name] = Entry(MODES[mode], oid.decode())
        return found

    def _copy(self, objects: Objects, oids: Iterable[str]) -> None:
        for oid in sorted(oids):
            objects.write(self._plumbing.run(["cat-file", "blob", oid], seconds=SECONDS), always=True)


def _portions(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(names), AT_ONCE):
        yield names[at : at + AT_ONCE]
