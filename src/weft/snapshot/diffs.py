"""Diffs between two trees: one per file with both texts, or one unified diff. Every method blocks."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from weft.host.git import Plumbing
from weft.model.diff import FileDiff, Tree, cap_diffs
from weft.snapshot.entry import FileEntry, format_path
from weft.snapshot.objects import ObjectStore

GIT_SECONDS: Final = 60.0
MAX_PATH_ARGUMENTS: Final = 300
DIFF_FLAGS: Final = ("--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")


class TreeDiffs:
    """Compares trees. `files` arguments are absolute below `root`; results are relative."""

    def __init__(self, plumbing: Plumbing, objects: ObjectStore, root: bytes) -> None:
        self._plumbing = plumbing
        self._objects = objects
        self._root = root

    def list_diffs(
        self, before: Tree, after: Tree, files: Sequence[str] | None = None
    ) -> tuple[FileDiff, ...]:
        """Return the diff of each changed file, or of those in `files`, within the bounds of `model.diff`."""
        changed = {
            path: pair for path, pair in self.list_changed(before, after) if self._is_selected(path, files)
        }
        counts = self._count_lines(before, after, () if files is None else changed) if changed else {}
        texts = self._read_texts(entry for path in changed if counts.get(path) for entry in changed[path])
        return cap_diffs(
            [_make_diff(path, changed[path], counts.get(path), texts) for path in sorted(changed)]
        )

    def make_text(self, before: Tree, after: Tree) -> str:
        """Return the difference as one unified diff."""
        return self._run_git("diff-tree", "-r", "-p", *DIFF_FLAGS, before, after).decode(errors="replace")

    def list_changed(
        self, before: Tree, after: Tree
    ) -> Iterator[tuple[bytes, tuple[FileEntry | None, FileEntry | None]]]:
        """Yield the paths that differ, with the entries before and after."""
        fields = self._run_git(
            "diff-tree", "-r", "-z", "--raw", "--no-abbrev", *DIFF_FLAGS, before, after
        ).split(b"\0")
        for facts, path in zip(fields[:-1:2], fields[1::2], strict=True):
            old_mode, new_mode, old, new, _ = facts[1:].decode().split(" ")
            yield path, (_parse_entry(old_mode, old), _parse_entry(new_mode, new))

    def _count_lines(
        self, before: Tree, after: Tree, only: Collection[bytes]
    ) -> dict[bytes, tuple[int, int] | None]:
        """Return added and removed lines, of `only` these files if they are few; None for binary files."""
        counts: dict[bytes, tuple[int, int] | None] = {}
        arguments = ("--", *map(os.fsdecode, only)) if 0 < len(only) <= MAX_PATH_ARGUMENTS else ()
        output = self._run_git("diff-tree", "-r", "-z", "--numstat", *DIFF_FLAGS, before, after, *arguments)
        for line in output.split(b"\0")[:-1]:
            added, removed, path = line.split(b"\t", 2)
            counts[path] = None if added == b"-" else (int(added), int(removed))
        return counts

    def _read_texts(self, entries: Iterable[FileEntry | None]) -> dict[str, str]:
        """Return the texts by object name. One call reads all of them, so that git is started only once."""
        oids = {entry.oid for entry in entries if entry is not None}
        contents = dict(self._objects.read(oids))
        # A damaged object ends git, so the objects after it are missing. Read the rest one by one.
        single = ((oid, self._objects.find(oid)) for oid in oids - contents.keys())
        contents.update((oid, content) for oid, content in single if content is not None)
        return {oid: content.decode(errors="replace") for oid, content in contents.items()}

    def _is_selected(self, path: bytes, files: Sequence[str] | None) -> bool:
        return files is None or format_path(self._root.rstrip(b"/") + b"/" + path) in files

    def _run_git(self, *args: str) -> bytes:
        return self._plumbing.run(args, alternate=self._objects.alternate, seconds=GIT_SECONDS)


def _make_diff(
    path: bytes,
    pair: tuple[FileEntry | None, FileEntry | None],
    counts: tuple[int, int] | None,
    texts: Mapping[str, str],
) -> FileDiff:
    if counts is None:
        return FileDiff(file=format_path(path), additions=0, deletions=0)
    before, after = (texts.get(entry.oid, "") if entry is not None else "" for entry in pair)
    return FileDiff(
        file=format_path(path), before=before, after=after, additions=counts[0], deletions=counts[1]
    )


def _parse_entry(mode: str, oid: str) -> FileEntry | None:
    return None if int(mode, 8) == 0 else FileEntry(int(mode, 8), oid)
