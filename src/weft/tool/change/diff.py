"""Two texts as a unified diff, in the form that screens of OpenCode read."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from msgspec import Struct

CONTEXT: Final = 4
# Finding the least difference takes time in the square of the lines. Past this, all old lines go and all new ones come.
WORTH_COMPARING: Final = 4_000_000


class _Change(NamedTuple):
    """Old lines that went, and new ones that came in their place; either may be none."""

    old: range
    new: range


class Diff(Struct, frozen=True, kw_only=True):
    text: str
    additions: int
    deletions: int


def diff(path: str, before: str, after: str) -> Diff:
    """What changed, line endings left aside."""
    old, new = _lines(before), _lines(after)
    body = [line for hunk in _hunks(old, new) for line in _told(hunk, old, new)]
    head = [f"Index: {path}", "=" * 67, f"--- {path}", f"+++ {path}"]
    return Diff(
        text="\n".join([*head, *_dedented(body)]) + "\n",
        additions=sum(line.startswith("+") for line in body),
        deletions=sum(line.startswith("-") for line in body),
    )


def _lines(text: str) -> list[str]:
    """Lines with their newline, so that a missing one at the end is a difference."""
    lines = text.replace("\r\n", "\n").split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _hunks(old: list[str], new: list[str]) -> list[list[_Change]]:
    """The changes, those together that are too near one another to have their own surroundings."""
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    hunks: list[list[_Change]] = []
    for change in _compared(old[head : len(old) - tail], new[head : len(new) - tail], head):
        if hunks and change.old.start - hunks[-1][-1].old.stop <= 2 * CONTEXT:
            hunks[-1].append(change)
        else:
            hunks.append([change])
    return hunks


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))


def _compared(old: list[str], new: list[str], shift: int) -> Iterator[_Change]:
    if len(old) * len(new) > WORTH_COMPARING:
        yield _Change(range(shift, shift + len(old)), range(shift, shift + len(new)))
        return
    for tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            yield _Change(range(a + shift, b + shift), range(c + shift, d + shift))


def _told(hunk: list[_Change], old: list[str], new: list[str]) -> Iterator[str]:
    before = min(CONTEXT, hunk[0].old.start)
    after = min(CONTEXT, len(old) - hunk[-1].old.stop)
    a, b = hunk[0].old.start - before, hunk[-1].old.stop + after
    c, d = hunk[0].new.start - before, hunk[-1].new.stop + after
    yield f"@@ -{a + (b > a)},{b - a} +{c + (d > c)},{d - c} @@"
    at = a
    for change in hunk:
        yield from _marked(" ", old[at : change.old.start])
        yield from _marked("-", old[change.old.start : change.old.stop])
        yield from _marked("+", new[change.new.start : change.new.stop])
        at = change.old.stop
    yield from _marked(" ", old[at:b])


def _marked(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line.removesuffix("\n")
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _dedented(body: list[str]) -> list[str]:
    """The body less the indentation that all its lines share: it is read on narrow screens."""
    said = [line[1:] for line in body if line[0] in " +-" and line[1:].strip()]
    shared = min((len(line) - len(line.lstrip()) for line in said), default=0)
    return [line[0] + line[1 + shared :] if line[0] in " +-" else line for line in body]
