"""Where a path leads, and asking before it leaves the project."""

import asyncio
import os
from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct

from weft.errors import ToolError
from weft.tool.contract import ToolContext

_ACTING: Final = frozenset({".git", ".opencode", "opencode.json", "opencode.jsonc"})


class Place(Struct, frozen=True, kw_only=True):
    """A path as people know it, and the one behind all its links: the one that is judged and opened."""

    path: str
    real: str
    is_directory: bool = False
    is_file: bool = False
    is_link: bool = False


async def enter(given: str, ctx: ToolContext, kind: Literal["file", "directory"] = "file") -> Place:
    """Where a given path leads. Outside of the project that is asked about first."""
    try:
        place, inside = await asyncio.to_thread(locate, given, ctx.directory, ctx.worktree)
    except ValueError as error:  # a NUL in it, or half a character
        raise ToolError(f"{given!r} is not a path: {error}") from error
    if not inside:
        parent = place.real if kind == "directory" else os.path.dirname(place.real)
        pattern = os.path.join(parent, "*")
        metadata = {"filepath": place.real, "parentDir": parent}
        await ctx.ask("external_directory", pattern, always=(pattern,), metadata=metadata)
    return place


def locate(given: str, directory: str, worktree: str) -> tuple[Place, bool]:
    """The place, and whether it is inside the directory or the worktree."""
    joined = os.path.join(directory, os.path.expanduser(given))
    # OpenCode compares the texts of paths: a link in the project then leads anywhere, unasked.
    real = os.path.realpath(joined)
    plain = os.path.normpath(joined)
    place = Place(
        path=plain if os.path.realpath(plain) == real else real,
        real=real,
        is_directory=os.path.isdir(real),
        is_file=os.path.isfile(real),
        is_link=os.path.islink(plain),
    )
    roots = [directory, *([worktree] if worktree != "/" else [])]
    return place, any(_is_within(real, os.path.realpath(root)) for root in roots)


def _is_within(path: str, root: str) -> bool:
    return os.path.commonpath((path, root)) == root


def title_of(place: Place, ctx: ToolContext) -> str:
    """The path from the worktree, as people read it."""
    return os.path.relpath(place.path, ctx.worktree)


def patterns_of(place: Place, ctx: ToolContext) -> tuple[str, ...]:
    """What `edit` rules are held against."""
    return list_patterns((place.path, ctx.worktree), (place.real, os.path.realpath(ctx.worktree)))


def list_patterns(*ways: tuple[str, str]) -> tuple[str, ...]:
    """A path from the worktree, each given with it: as people know both, and as they really are.

    What runs by itself (hooks, settings of git's, what configures agents) counts wherever it lies as if it lay at the top:
    one rule covers it there, in a checkout within the checkout, and in any directory that agents are started in.
    """
    found = (os.path.relpath(path, worktree) for path, worktree in dict.fromkeys(ways))
    return tuple(dict.fromkeys(pattern for each in found for pattern in (each, *_at_top(each))))


def lasting_edit(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """What a lasting yes to a change covers: every change, as in OpenCode; of what runs by itself, this one alone."""
    acts = any(pattern.partition("/")[0] in _ACTING for pattern in patterns)
    return patterns if acts else ("*",)


def _at_top(path: str) -> Iterator[str]:
    parts = path.split("/")
    for place, part in enumerate(parts[1:], 1):
        if part in _ACTING:
            yield "/".join(parts[place:])
