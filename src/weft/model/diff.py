"""What became of files: diffs, patches, restore results, and diffs cut to a bounded size."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, Literal, NewType

from msgspec.structs import replace

from weft.model.wire import Wire, always

Tree = NewType("Tree", str)
"""The name of a git tree in our own store of objects."""

EMPTY_TREE: Final = Tree("4b825dc642cb6eb9a060e54bf8d69288fbee4904")
"""The tree without files, which every git repository has."""

Fate = Literal["restored", "removed", "unchanged", "kept", "uncovered", "missing"]


class FileDiff(Wire, frozen=True, kw_only=True):
    """One file before and after, as whole texts. A binary file has empty texts and no counts."""

    file: str
    before: str = always("")
    after: str = always("")
    additions: int
    deletions: int


class Uncovered(Wire, frozen=True, kw_only=True):
    """A file that changed, or may have, and cannot be taken back; and why. Absolute, as in `Patch.files`."""

    file: str
    reason: str


class Patch(Wire, frozen=True, kw_only=True):
    """What an agent changed: two trees of those files alone, as it found them and as it left them.

    The trees are all that undoing takes: store both names. `files` are absolute paths to be shown; a byte in a name
    that is no text stands there as `\\xNN`. A file in one tree alone was made, or removed.
    """

    hash: Tree
    until: Tree
    files: tuple[str, ...]
    uncovered: tuple[Uncovered, ...] = ()


class FileFate(Wire, frozen=True, kw_only=True):
    """What became, or would become, of one file, and why if it is not as it was before the agent.

    * `restored`: it is as before the agent; with a `reason`, as the person had left it between two of its changes;
    * `removed`: the agent had made it, and it is gone;
    * `unchanged`: it is as it should be already;
    * `kept`: the person changed it since, or something stands in its way: it is as it was found;
    * `uncovered`: nobody knows what it was like;
    * `missing`: what it was like cannot be read any more. Nothing is restored then, no file at all.
    """

    file: str
    fate: Fate
    reason: str = ""


PER_FILE: Final = 64 << 10
IN_ALL: Final = 256 << 10
FILES: Final = 500
CONTEXT: Final = 3

MARK: Final = "truncated"
REST: Final = "and more files"


def cap_diffs(
    diffs: Sequence[FileDiff], *, per_file: int = PER_FILE, in_all: int = IN_ALL, files: int = FILES
) -> tuple[FileDiff, ...]:
    """The diffs within bounds: bytes of text for each file and for all of them, and how many are listed.

    `additions` and `deletions` are those of the whole change. What was shortened says so (`truncated`); the files
    beyond the last that is listed are one entry with their sums. Within bounds nothing changes.
    """
    listed, rest = (diffs, ()) if len(diffs) <= files else (diffs[: files - 1], diffs[files - 1 :])
    room = in_all
    capped: list[FileDiff] = []
    for diff in listed:
        fitted = fit(diff, min(per_file, room))
        room -= weight(fitted)
        capped.append(fitted)
    return (*capped, _sum(rest)) if rest else tuple(capped)


def is_capped(diffs: Sequence[FileDiff]) -> bool:
    """Whether they are within bounds as they are."""
    weights = [weight(diff) for diff in diffs]
    return len(diffs) <= FILES and sum(weights) <= IN_ALL and max(weights, default=0) <= PER_FILE


def weight(diff: FileDiff) -> int:
    """The bytes of its texts."""
    return _size(diff.before) + _size(diff.after)


def fit(diff: FileDiff, limit: int) -> FileDiff:
    """A diff whose texts take no more than `limit` bytes."""
    if weight(diff) <= limit:
        return diff
    before, after = around_change(diff.before, diff.after)
    if _size(before) + _size(after) > limit:
        before, after = _head(before, limit // 2), _head(after, limit // 2)
    return replace(diff, before=before, after=after, extra_={**_extra(diff), MARK: True})


def around_change(before: str, after: str) -> tuple[str, str]:
    """Both texts without the lines that are the same at their beginning and end, but for a few."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    head = _shared(old, new)
    tail = _shared(old[head:][::-1], new[head:][::-1])
    start, end = max(0, head - CONTEXT), max(0, tail - CONTEXT)
    return "".join(old[start : len(old) - end]), "".join(new[start : len(new) - end])


def _shared(old: Sequence[str], new: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _head(text: str, limit: int) -> str:
    """As many whole lines from the beginning as fit."""
    if _size(text) <= limit:
        return text
    cut = text.encode(errors="replace")[:limit].decode(errors="ignore")
    return cut[: cut.rfind("\n") + 1]


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _sum(diffs: Sequence[FileDiff]) -> FileDiff:
    return FileDiff(
        file=f"{len(diffs)} {REST}",
        additions=sum(diff.additions for diff in diffs),
        deletions=sum(diff.deletions for diff in diffs),
        extra_={MARK: True},
    )


def _extra(diff: FileDiff) -> dict[str, object]:
    return diff.extra_ if isinstance(diff.extra_, dict) else {}
