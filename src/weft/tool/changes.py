"""What the editing tools share: several files changed together or not at all, diffs, and which tools a model gets."""

import asyncio
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from msgspec import Struct

from weft.errors import ToolError
from weft.host.tasks import undivided
from weft.tool.contract import Audience
from weft.tool.description import about
from weft.tool.files import replace_text

Undo = Callable[[], None]


class Turn(Struct, frozen=True, kw_only=True):
    """A file by its real path, its text as it was and as it is to be; None is no file.

    A new file may be `like` another one, whose mode it takes.
    """

    path: str
    before: str | None
    after: str | None
    like: str | None = None


async def change_together(turns: Sequence[Turn]) -> None:
    """Make every change. Raises `ToolError`, saying what stands as it was and what does not, if one cannot be made."""
    # Undivided: cancelled half way, it would be neither done nor undone.
    await undivided(asyncio.to_thread(_change, turns))


def _change(turns: Sequence[Turn]) -> None:
    modes = {turn.path: _mode_of(turn.like) for turn in turns if turn.like}
    made: list[tuple[Turn, Undo]] = []
    aside: list[str] = []
    try:
        for turn in turns:
            made.append((turn, _make(turn, modes.get(turn.path), aside)))  # noqa: PERF401  what was made has to be known when the next one fails
    except (OSError, ToolError) as error:
        lost = [turn.path for turn, undo in reversed(made) if not _undone(undo)]
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise ToolError(f"{reason} {_standing(lost)}") from error
    for path in aside:
        os.unlink(path)


def _standing(lost: list[str]) -> str:
    if not lost:
        return "Nothing was changed: what had been written was put back."
    return f"These could not be put back, and stand changed: {', '.join(lost)}."


def _mode_of(path: str | None) -> int | None:
    with suppress(OSError):
        return stat.S_IMODE(os.stat(path).st_mode) if path else None
    return None


def _make(turn: Turn, mode: int | None, aside: list[str]) -> Undo:
    """Make one change, and give the way back."""
    path, before, after = turn.path, turn.before, turn.after
    if after is None:
        hidden = os.path.join(os.path.dirname(path), f".{secrets.token_hex(6)}.tmp")
        os.rename(path, hidden)
        aside.append(hidden)
        return lambda: os.rename(hidden, path)
    if before is None:
        missing = _missing(os.path.dirname(path))
        try:
            replace_text(path, after, mode=mode)
        except BaseException:
            _clear(missing)
            raise
        return lambda: _take_away(path, missing)
    replace_text(path, after)
    return lambda: _put_back(path, before)


def _missing(directory: str) -> list[str]:
    """The directories that would have to be made, the deepest first."""
    found = []
    while not os.path.lexists(directory):
        found.append(directory)
        directory = os.path.dirname(directory)
    return found


def _take_away(path: str, directories: list[str]) -> None:
    os.unlink(path)
    _clear(directories)


def _clear(directories: list[str]) -> None:
    for directory in directories:
        with suppress(OSError):  # not made, or somebody put something into it
            os.rmdir(directory)


def _put_back(path: str, text: str) -> None:
    replace_text(path, text)


def _undone(undo: Undo) -> bool:
    try:
        undo()
    except (OSError, ToolError):
        return False
    return True


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


def patches(api_id: str) -> bool:
    """Whether a model was brought up on patches: OpenAI's own, but not those before, nor those given away."""
    return "gpt-" in api_id and "oss" not in api_id and "gpt-4" not in api_id


def to_patchers(audience: Audience) -> str | None:
    return about("apply_patch") if patches(audience.api_id) else None


def edit_to_others(audience: Audience) -> str | None:
    return None if patches(audience.api_id) else about("edit")


def write_to_others(audience: Audience) -> str | None:
    return None if patches(audience.api_id) else about("write")
