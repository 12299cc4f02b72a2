"""The `list` tool: list a directory as a tree. It is not offered to models; prompts use it to attach directories."""

from collections.abc import Iterator
from typing import Final

from weft.errors import ToolError
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.file_listing import list_names, matches_glob
from weft.tool.inputs import ListInput
from weft.tool.paths import format_title, resolve_path

MAX_FILES: Final = 100

# Generated directories. Below the top, only names that never mean anything else are ignored: many source trees have a
# `bin`.
_IGNORED_ANYWHERE: Final = frozenset({"node_modules", "__pycache__", ".git", ".venv"})
_IGNORED_AT_TOP_NAMES = """
dist build target vendor bin obj .idea .vscode .zig-cache zig-out .coverage coverage tmp temp .cache cache logs
venv env
"""
_IGNORED_AT_TOP: Final = _IGNORED_ANYWHERE | frozenset(_IGNORED_AT_TOP_NAMES.split())


async def list_directory(arguments: ListInput, ctx: ToolContext) -> ToolResult:
    place = await resolve_path(arguments.path or ctx.directory, ctx, "directory")
    patterns = tuple(dict.fromkeys((place.path, place.real)))
    await ctx.ask("list", *patterns, always=("*",), metadata={"path": place.path})
    if not place.is_directory:
        raise ToolError(f"There is no directory {place.path}.")
    names = [name for name in await list_names(place.real, ctx) if not is_ignored(name, arguments.ignore)]
    shown = sorted(names)[:MAX_FILES]
    return ToolResult(
        title=format_title(place, ctx),
        output="\n".join([f"{place.path.rstrip('/')}/", *format_tree(shown)]) + "\n",
        # As in OpenCode, a list of exactly so many files counts as truncated, too.
        metadata={"count": len(shown), "truncated": len(names) >= MAX_FILES},
    )


def is_ignored(name: str, globs: tuple[str, ...]) -> bool:
    """Return True if a file is below a generated directory, or if it or one of its directories matches a glob."""
    parents = name.split("/")[:-1]
    if parents and (parents[0] in _IGNORED_AT_TOP or not _IGNORED_ANYWHERE.isdisjoint(parents)):
        return True
    directories = ["/".join(parents[: depth + 1]) for depth in range(len(parents))]
    return any(matches_glob(path, glob) for glob in globs for path in [name, *directories])


def format_tree(names: list[str], depth: int = 1) -> Iterator[str]:
    """Yield the lines of a tree: two blanks per level, directories before files."""
    subdirectories: dict[str, list[str]] = {}
    files = []
    for name in names:
        first, slash, rest = name.partition("/")
        if slash:
            subdirectories.setdefault(first, []).append(rest)
        else:
            files.append(first)
    for directory in sorted(subdirectories):
        yield f"{'  ' * depth}{directory}/"
        yield from format_tree(subdirectories[directory], depth + 1)
    yield from (f"{'  ' * depth}{file}" for file in sorted(files))
