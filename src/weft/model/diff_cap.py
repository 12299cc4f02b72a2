"""Diffs that stay small: what is stored of them has an upper bound, and the counts stay true.

OpenCode keeps every changed file twice, whole, in each prompt's message and once more for the session: a log file of
50 MB that changes at every step fills a disk. Here a long text is first reduced to the lines around the change, then
cut, then left out.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from weft.model.diff import FileDiff

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
