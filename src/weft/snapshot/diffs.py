"""Diffs between two trees: file by file with whole texts, or as one unified text. Calls block."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from weft.host.git import Plumbing
from weft.model.diff import FileDiff, Tree, cap_diffs
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
        texts = self._texts(entry for path in changed if counts.get(path) for entry in changed[path])
        return cap_diffs([_diff(path, changed[path], counts.get(path), texts) for path in sorted(changed)])

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

    def _texts(self, entries: Iterable[Entry | None]) -> dict[str, str]:
        """By object. All at once: git is started for the lot of them, and not for each file."""
        wanted = {entry.oid for entry in entries if entry is not None}
        found = dict(self._objects.read(wanted))
        # One that is damaged ends git, and those behind it are not heard of.
        alone = ((oid, self._objects.find(oid)) for oid in wanted - found.keys())
        found.update((oid, content) for oid, content in alone if content is not None)
        return {oid: content.decode(errors="replace") for oid, content in found.items()}

    def _is_asked(self, path: bytes, files: Sequence[str] | None) -> bool:
        return files is None or shown(self._root.rstrip(b"/") + b"/" + path) in files

    def _ask(self, *args: str) -> bytes:
        return self._plumbing.run(args, borrow=self._objects.borrow, seconds=SECONDS)


def _diff(
    path: bytes,
    pair: tuple[Entry | None, Entry | None],
    counts: tuple[int, int] | None,
    texts: Mapping[str, str],
) -> FileDiff:
    if counts is None:
        return FileDiff(file=shown(path), additions=0, deletions=0)
    before, after = (texts.get(entry.oid, "") if entry is not None else "" for entry in pair)
    return FileDiff(file=shown(path), before=before, after=after, additions=counts[0], deletions=counts[1])


def _entry(mode: str, oid: str) -> Entry | None:
    return None if int(mode, 8) == 0 else Entry(int(mode, 8), oid)
