"""Several files changed together: all of them, or they are put back as they were."""

import asyncio
import os
import secrets
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct

from weft.errors import ToolError
from weft.host.undivided import undivided
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
