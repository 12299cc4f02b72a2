"""Diffs between two trees: file by file with whole texts, or as one unified text. Calls block."""

import os
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from weft.host.git import Plumbing
from weft.model.diff import FileDiff, Tree
from weft.model.diff_cap import cap_diffs
from weft.snapshot.entry import Entry, shown
from weft.snapshot.objects import Objects

SECONDS: Final = 60.0
NAMED_AT_MOST: Final = 300
PLAIN: Final = ("--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")


class Diffs:
    """`root` is what names in a question are relative to; in the answers they are so already."""

    def __init__(self, plumbing: Plumbing, objects: Objects, root: bytes) -> None:
        self._plumbing = plumbing
        self._objects = objects
        self._root = root

    def between(self, before: Tree, after: Tree, files: Sequence[str] | None = None) -> tuple[FileDiff, ...]:
        changed = {path: pair for path, pair in self.changed(before, after) if self._is_asked(path, files)}
        counts = self._counts(before, after, () if files is None else changed) if changed else {}
        return cap_diffs([self._diff(path, *changed[path], counts.get(path)) for path in sorted(changed)])

    def text(self, before: Tree, after: Tree, files: Sequence[str] | None = None) -> str:
        named = [path for path, _ in self.changed(before, after) if self._is_asked(path, files)]
        if not named:
            return ""
        wanted = () if files is None else ("--", *(path.decode(errors="surrogateescape") for path in named))
        return self._ask("diff-tree", "-r", "-p", *PLAIN, before, after, *wanted).decode(errors="replace")

    def changed(self, before: Tree, after: Tree) -> Iterator[tuple[bytes, tuple[Entry | None, Entry | None]]]:
        """The paths that differ, with what they were and are."""
        words = self._ask("diff-tree", "-r", "-z", "--raw", "--no-abbrev", *PLAIN, before, after).split(b"\0")
        for facts, path in zip(words[:-1:2], words[1::2], strict=True):
            old_mode, new_mode, old, new, _ = facts[1:].decode().split(" ")
            yield path, (_entry(old_mode, old), _entry(new_mode, new))

    def _counts(
        self, before: Tree, after: Tree, only: Collection[bytes]
    ) -> dict[bytes, tuple[int, int] | None]:
        """Lines added and removed, of `only` these files if they are a few; None for what is not text."""
        found: dict[bytes, tuple[int, int] | None] = {}
        named = ("--", *map(os.fsdecode, only)) if 0 < len(only) <= NAMED_AT_MOST else ()
        said = self._ask("diff-tree", "-r", "-z", "--numstat", *PLAIN, before, after, *named)
        for line in said.split(b"\0")[:-1]:
            added, removed, path = line.split(b"\t", 2)
            found[path] = None if added == b"-" else (int(added), int(removed))
        return found

    def _diff(
        self, path: bytes, old: Entry | None, new: Entry | None, counts: tuple[int, int] | None
    ) -> FileDiff:
        if counts is None:
            return FileDiff(file=shown(path), additions=0, deletions=0)
        return FileDiff(
            file=shown(path),
            before=self._text_of(old),
            after=self._text_of(new),
            additions=counts[0],
            deletions=counts[1],
        )

    def _text_of(self, entry: Entry | None) -> str:
        content = self._objects.find(entry.oid) if entry is not None else None
        return (content or b"").decode(errors="replace")

    def _is_asked(self, path: bytes, files: Sequence[str] | None) -> bool:
        return files is None or shown(self._root.rstrip(b"/") + b"/" + path) in files

    def _ask(self, *args: str) -> bytes:
        return self._plumbing.run(args, borrow=self._objects.borrow, seconds=SECONDS)


def _entry(mode: str, oid: str) -> Entry | None:
    return None if int(mode, 8) == 0 else Entry(int(mode, 8), oid)
