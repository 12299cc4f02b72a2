"""Resolve paths that a tool is given, and ask before a path leads out of the project."""

import asyncio
import os
from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct

from weft.errors import ToolError
from weft.tool.contract import ToolContext

_SELF_ACTIVATING: Final = frozenset({".git", ".opencode", "opencode.json", "opencode.jsonc"})


class ToolPath(Struct, frozen=True, kw_only=True):
    """A path as people write it, and the real path behind its links.

    Rules are checked against both; the real one is opened.
    """

    path: str
    real: str
    is_directory: bool = False
    is_file: bool = False
    is_link: bool = False


async def resolve_path(given: str, ctx: ToolContext, kind: Literal["file", "directory"] = "file") -> ToolPath:
    """Resolve a path that a model gave. If it is outside of the project, ask for `external_directory` first.

    Raise `ToolError` if it is not a valid path.
    """
    try:
        place, inside = await asyncio.to_thread(locate_path, given, ctx.directory, ctx.worktree)
    except ValueError as error:  # it contains a NUL or a lone surrogate
        raise ToolError(f"{given!r} is not a path: {error}") from error
    if not inside:
        parent = place.real if kind == "directory" else os.path.dirname(place.real)
        pattern = os.path.join(parent, "*")
        metadata = {"filepath": place.real, "parentDir": parent}
        await ctx.ask("external_directory", pattern, always=(pattern,), metadata=metadata)
    return place


def locate_path(given: str, directory: str, worktree: str) -> tuple[ToolPath, bool]:
    """Return the resolved path, and whether it is inside the directory or the worktree."""
    joined = os.path.join(directory, os.path.expanduser(given))
    # OpenCode compares paths as text, so a link in the project leads anywhere without a question.
    real = os.path.realpath(joined)
    plain = os.path.normpath(joined)
    place = ToolPath(
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


def format_title(place: ToolPath, ctx: ToolContext) -> str:
    """Return the path relative to the worktree, for people."""
    return os.path.relpath(place.path, ctx.worktree)


def list_edit_patterns(place: ToolPath, ctx: ToolContext) -> tuple[str, ...]:
    """Return the patterns that `edit` rules are checked against."""
    return list_patterns((place.path, ctx.worktree), (place.real, os.path.realpath(ctx.worktree)))


def list_patterns(*pairs: tuple[str, str]) -> tuple[str, ...]:
    """Return a path relative to the worktree, once for each given pair of path and worktree.

    Pairs are the paths as people write them and the real ones. Files that act by themselves (git hooks and settings,
    agent configuration) are also listed as if they were at the top of the worktree. One rule then covers them there, in
    nested checkouts, and in every directory that an agent may be started in.
    """
    found = (os.path.relpath(path, worktree) for path, worktree in dict.fromkeys(pairs))
    return tuple(dict.fromkeys(pattern for each in found for pattern in (each, *_list_top_patterns(each))))


def list_lasting_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns that an "always" reply to an edit allows.

    That is every edit, as in OpenCode. For files that act by themselves it is only this one.
    """
    acts = any(pattern.partition("/")[0] in _SELF_ACTIVATING for pattern in patterns)
    return patterns if acts else ("*",)


def _list_top_patterns(path: str) -> Iterator[str]:
    parts = path.split("/")
    for place, part in enumerate(parts[1:], 1):
        if part in _SELF_ACTIVATING:
            yield "/".join(parts[place:])
