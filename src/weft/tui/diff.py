"""Changes of files side by side (pure)."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Final, NamedTuple

from weft.model.diff import FileDiff
from weft.model.display import format_count, sanitize
from weft.tui.render import squash
from weft.tui.text import Fragment, Line, cut, measure, take

CONTEXT_LINES: Final = 3
# Below this width the old lines are shown above the new ones.
MIN_SIDE_WIDTH: Final = 76
MAX_ROWS: Final = 2000
# Comparing two texts takes the square of their lengths in the worst case.
MAX_COMPARED_LINES: Final = 5000
NUMBER_WIDTH: Final = 4
# A line of a generated file can be as long as the file.
MAX_LINE_ROWS: Final = 50


class SideBySideRow(NamedTuple):
    """A row of two columns. A number of 0 means that the side has no line here; both are 0 where lines are left out."""

    old: int
    before: str
    new: int
    after: str
    changed: bool


def compare(before: str, after: str) -> list[SideBySideRow]:
    """Return the rows that differ, with a few lines around them."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > MAX_COMPARED_LINES:
        return [
            SideBySideRow(0, f"{len(old)} lines", 0, f"{len(new)} lines, too many to compare", changed=False)
        ]
    rows: list[SideBySideRow] = []
    for number, group in enumerate(
        SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT_LINES)
    ):
        if number:
            rows.append(SideBySideRow(0, "", 0, "", changed=False))
        for tag, old_from, old_to, new_from, new_to in group:
            for at in range(max(old_to - old_from, new_to - new_from)):
                left, right = old_from + at, new_from + at
                has_left, has_right = left < old_to, right < new_to
                rows.append(
                    SideBySideRow(
                        left + 1 if has_left else 0,
                        old[left] if has_left else "",
                        right + 1 if has_right else 0,
                        new[right] if has_right else "",
                        changed=tag != "equal",
                    )
                )
    return rows


def render_diffs(diffs: Sequence[FileDiff], width: int) -> list[Line]:
    """Return the changes of several files, the old lines on the left and the new ones on the right."""
    if not diffs:
        return [[("dim", "no file has changed")]]
    lines: list[Line] = []
    for diff in diffs:
        head: Line = [
            ("bold", squash(diff.file)),
            ("ansigreen", f"  +{diff.additions}"),
            ("ansired", f" -{diff.deletions}"),
        ]
        lines += [*([[]] if lines else []), cut(head, width), [("dim", "─" * width)]]
        rows = compare(diff.before, diff.after)
        lines += _render_rows(rows[:MAX_ROWS], width)
        if len(rows) > MAX_ROWS:
            lines.append([("dim", f"… {format_count(len(rows) - MAX_ROWS, 'more line')}")])
        if not rows:
            lines.append(cut([("dim", "binary, or nothing but its mode changed")], width))
    return lines


def _render_rows(rows: Sequence[SideBySideRow], width: int) -> Iterator[Line]:
    is_split = width >= MIN_SIDE_WIDTH
    side = (width - 3) // 2 if is_split else width
    for row in rows:
        if not row.old and not row.new:
            yield cut([("dim", row.before or "⋯"), ("dim", f" → {row.after}" if row.after else "")], width)
            continue
        plain = "" if is_split else "dim"
        left = _render_side(row.old, row.before, side, style="ansired" if row.changed else plain, mark="-")
        right = _render_side(row.new, row.after, side, style="ansigreen" if row.changed else plain, mark="+")
        if is_split:
            for old, new in zip_longest(left, right, fillvalue=list[Fragment]()):
                space = " " * (side - sum(measure(text) for _, text in old))
                yield [*old, ("", space), ("dim", " │ "), *new]
        else:
            yield from (*(left if row.changed else []), *right)


def _render_side(number: int, text: str, width: int, *, style: str, mark: str) -> list[Line]:
    """Return one side of a row, with as many lines as its text needs."""
    if not number:
        return []
    head: Line = [("dim", f"{number:>{NUMBER_WIDTH}} "), (style, f"{mark if 'ansi' in style else ' '} ")]
    room, rest = max(width - NUMBER_WIDTH - 3, 1), _clean(text)
    lines: list[Line] = []
    while rest or not lines:
        piece = take(rest, room) or rest[:1]
        is_last = len(lines) == MAX_LINE_ROWS - 1
        lines.append([*head, *(cut([(style, rest)], room) if is_last else [(style, piece)])])
        head, rest = [("", " " * (NUMBER_WIDTH + 3))], "" if is_last else rest[len(piece) :]
    return lines


def _clean(text: str) -> str:
    return sanitize(text).replace("\t", "    ")
