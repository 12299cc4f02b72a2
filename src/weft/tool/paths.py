"""Resolve the paths in tool arguments, and ask for permission if a path leads out of the project."""

import asyncio
import os
from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct

from weft.errors import ToolError
from weft.model.project import is_within
from weft.tool.contract import ToolContext

# git and agents act on these files without being told to.
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


async def resolve_path(path: str, ctx: ToolContext, kind: Literal["file", "directory"] = "file") -> ToolPath:
    """Resolve a path that a model gave. If it is outside of the project, ask for `external_directory` first.

    Raise `ToolError` if it is not a valid path.
    """
    try:
        place, inside = await asyncio.to_thread(locate_path, path, ctx.directory, ctx.worktree)
    except ValueError as error:  # it contains a NUL or a lone surrogate
        raise ToolError(f"{path!r} is not a path: {error}") from error
    if not inside:
        parent = place.real if kind == "directory" else os.path.dirname(place.real)
        pattern = os.path.join(parent, "*")
        metadata = {"filepath": place.real, "parentDir": parent}
        await ctx.ask("external_directory", pattern, always=(pattern,), metadata=metadata)
    return place


def locate_path(path: str, directory: str, worktree: str) -> tuple[ToolPath, bool]:
    """Return the resolved path, and whether it is inside the directory or the worktree."""
    joined = os.path.join(directory, os.path.expanduser(path))
    # OpenCode compares paths as text, so a link in the project leads anywhere without a question.
    real = os.path.realpath(joined)
    normal = os.path.normpath(joined)
    place = ToolPath(
        path=normal if os.path.realpath(normal) == real else real,
        real=real,
        is_directory=os.path.isdir(real),
        is_file=os.path.isfile(real),
        is_link=os.path.islink(normal),
    )
    roots = [directory, *([worktree] if worktree != "/" else [])]
    return place, any(is_within(real, os.path.realpath(root)) for root in roots)


def format_title(place: ToolPath, ctx: ToolContext) -> str:
    """Return the path relative to the checkout or, without one, to the directory, for people."""
    # Without a checkout, OpenCode shows a path from the root of the file system, without its first slash.
    return os.path.relpath(place.path, ctx.directory if ctx.worktree == "/" else ctx.worktree)


def list_edit_patterns(place: ToolPath, ctx: ToolContext) -> tuple[str, ...]:
    """Return the patterns that `edit` rules are checked against."""
    return list_patterns((place.path, ctx.worktree), (place.real, os.path.realpath(ctx.worktree)))


def list_patterns(*pairs: tuple[str, str]) -> tuple[str, ...]:
    """Return the relative path of each pair of a path and its worktree.

    The pairs are the path as written and the real one. Self-activating files (git hooks and settings, agent
    configuration) are also listed as if they were at the top of the worktree. One rule then covers them there, in
    nested checkouts, and in every directory that an agent may be started in.
    """
    relative_paths = (os.path.relpath(path, worktree) for path, worktree in dict.fromkeys(pairs))
    return tuple(
        dict.fromkeys(pattern for path in relative_paths for pattern in (path, *_list_top_patterns(path)))
    )


def list_always_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns that an "always" reply to an edit allows.

    That is every edit, as in OpenCode. For a self-activating file, it is only this one.
    """
    self_activating = any(pattern.partition("/")[0] in _SELF_ACTIVATING for pattern in patterns)
    return patterns if self_activating else ("*",)


def _list_top_patterns(path: str) -> Iterator[str]:
    parts = path.split("/")
    for index, part in enumerate(parts[1:], 1):
        if part in _SELF_ACTIVATING:
            yield "/".join(parts[index:])
