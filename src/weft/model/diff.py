"""Changes of files: diffs, patches, restore results, and the limits on the size of diffs."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, Literal, NewType

from msgspec import field
from msgspec.structs import replace

from weft.model.wire import Wire, always

Tree = NewType("Tree", str)
"""The hash of a git tree in weft's own object store."""

EMPTY_TREE: Final = Tree("4b825dc642cb6eb9a060e54bf8d69288fbee4904")
"""The empty tree, which exists in every git repository."""

Fate = Literal["restored", "removed", "unchanged", "kept", "uncovered", "missing"]


class FileDiff(Wire, frozen=True, kw_only=True):
    """A file before and after a change, as whole texts. A binary file has empty texts and counts of 0."""

    file: str
    before: str = always("")
    after: str = always("")
    additions: int
    deletions: int


class Uncovered(Wire, frozen=True, kw_only=True):
    """A file that changed, or may have changed, and cannot be restored, and the reason. The path is absolute."""

    file: str
    reason: str


class Patch(Wire, frozen=True, kw_only=True):
    """The change of an agent: two trees of the changed files, before and after.

    Undo needs only the two trees, which are stored as `hash` and `until`. `files` are absolute paths for display; a byte of a
    name that is not UTF-8 is shown as `\\xNN`. A file that is in one tree only was created or removed.
    """

    before: Tree = field(name="hash")
    after: Tree = field(name="until")
    files: tuple[str, ...]
    uncovered: tuple[Uncovered, ...] = ()


class FileFate(Wire, frozen=True, kw_only=True):
    """What an undo did, or would do, with one file. `reason` says why, where the fate alone does not.

    * `restored`: the file is as it was before the agent's change. With a `reason`, it is as the person left it between two
      changes of the agent.
    * `removed`: the agent had created the file, and the undo removed it.
    * `unchanged`: the file already had the right contents.
    * `kept`: the person changed the file since, or something is in its way; it was not touched.
    * `uncovered`: the earlier contents were never recorded.
    * `missing`: the earlier contents cannot be read any more. Then no file at all is restored.
    """

    file: str
    fate: Fate
    reason: str = ""


MAX_FILE_BYTES: Final = 64 << 10
MAX_TOTAL_BYTES: Final = 256 << 10
MAX_FILES: Final = 500
CONTEXT_LINES: Final = 3

TRUNCATED: Final = "truncated"
MORE_FILES: Final = "and more files"


def cap_diffs(
    diffs: Sequence[FileDiff],
    *,
    per_file: int = MAX_FILE_BYTES,
    total: int = MAX_TOTAL_BYTES,
    files: int = MAX_FILES,
) -> tuple[FileDiff, ...]:
    """Limit the bytes of text per file and in total, and the number of files.

    `additions` and `deletions` stay those of the whole change. A shortened diff has `truncated` in
    `extra_`. Files over the limit become one entry with their sums. Diffs within the limits are returned unchanged.
    """
    listed, rest = (diffs, ()) if len(diffs) <= files else (diffs[: files - 1], diffs[files - 1 :])
    remaining = total
    capped: list[FileDiff] = []
    for diff in listed:
        shortened = cap_diff(diff, min(per_file, remaining))
        remaining -= count_bytes(shortened)
        capped.append(shortened)
    return (*capped, _sum_up(rest)) if rest else tuple(capped)


def is_capped(diffs: Sequence[FileDiff]) -> bool:
    """Return True if the diffs are within the limits, so that `cap_diffs` would not change them."""
    sizes = [count_bytes(diff) for diff in diffs]
    return (
        len(diffs) <= MAX_FILES and sum(sizes) <= MAX_TOTAL_BYTES and max(sizes, default=0) <= MAX_FILE_BYTES
    )


def count_bytes(diff: FileDiff) -> int:
    """Return the size of both texts in bytes."""
    return _count_text_bytes(diff.before) + _count_text_bytes(diff.after)


def cap_diff(diff: FileDiff, limit: int) -> FileDiff:
    """Shorten the texts of a diff to `limit` bytes."""
    if count_bytes(diff) <= limit:
        return diff
    before, after = trim_unchanged(diff.before, diff.after)
    if _count_text_bytes(before) + _count_text_bytes(after) > limit:
        before, after = _cut_lines(before, limit // 2), _cut_lines(after, limit // 2)
    return replace(diff, before=before, after=after, extra_={**_extra(diff), TRUNCATED: True})


def trim_unchanged(before: str, after: str) -> tuple[str, str]:
    """Remove equal lines at the beginning and end of both texts, except for a few lines of context."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    head = _count_shared(old, new)
    tail = _count_shared(old[head:][::-1], new[head:][::-1])
    start, end = max(0, head - CONTEXT_LINES), max(0, tail - CONTEXT_LINES)
    return "".join(old[start : len(old) - end]), "".join(new[start : len(new) - end])


def _count_shared(old: Sequence[str], new: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _cut_lines(text: str, limit: int) -> str:
    """Return as many whole lines from the beginning as fit into `limit` bytes."""
    if _count_text_bytes(text) <= limit:
        return text
    cut = text.encode(errors="replace")[:limit].decode(errors="ignore")
    return cut[: cut.rfind("\n") + 1]


def _count_text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _sum_up(diffs: Sequence[FileDiff]) -> FileDiff:
    return FileDiff(
        file=f"{len(diffs)} {MORE_FILES}",
        additions=sum(diff.additions for diff in diffs),
        deletions=sum(diff.deletions for diff in diffs),
        extra_={TRUNCATED: True},
    )


def _extra(diff: FileDiff) -> dict[str, object]:
    return diff.extra_ if isinstance(diff.extra_, dict) else {}
