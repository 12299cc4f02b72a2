"""Where a path leads, and asking before it leaves the project."""

import asyncio
import os
from typing import Literal

from msgspec import Struct

from weft.errors import ToolError
from weft.tool.contract import ToolContext


class Place(Struct, frozen=True, kw_only=True):
    """A path as people know it, and the one behind all its links: the one that is judged and opened."""

    path: str
    real: str
    is_directory: bool = False
    is_file: bool = False


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
    )
    roots = [directory, *([worktree] if worktree != "/" else [])]
    return place, any(_is_within(real, os.path.realpath(root)) for root in roots)


def _is_within(path: str, root: str) -> bool:
    return os.path.commonpath((path, root)) == root


def title_of(place: Place, ctx: ToolContext) -> str:
    """The path from the worktree, as people read it."""
    return os.path.relpath(place.path, ctx.worktree)


def patterns_of(place: Place, ctx: ToolContext) -> tuple[str, ...]:
    """What `edit` rules are held against: the path from the worktree, and where it really leads if that differs."""
    real = os.path.relpath(place.real, os.path.realpath(ctx.worktree))
    return tuple(dict.fromkeys((title_of(place, ctx), real)))
