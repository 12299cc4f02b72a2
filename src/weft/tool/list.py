"""List a directory as a tree. Not offered to models: it is how a directory is attached to a prompt."""

from collections.abc import Iterator
from typing import Annotated, Final

from msgspec import Meta, Struct

from weft.errors import ToolError
from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.description import about
from weft.tool.file_listing import fits, list_names
from weft.tool.paths import enter, title_of

LIMIT: Final = 100

# Made, not written. Below the top only what is never anything else: there is a `bin` in many a source tree.
_EVERYWHERE: Final = frozenset({"node_modules", "__pycache__", ".git", ".venv"})
_AT_TOP_NAMES = """
dist build target vendor bin obj .idea .vscode .zig-cache zig-out .coverage coverage tmp temp .cache cache logs
venv env
"""
_AT_TOP: Final = _EVERYWHERE | frozenset(_AT_TOP_NAMES.split())


class ListInput(Struct, frozen=True, kw_only=True):
    path: Annotated[str | None, Meta(description="The directory; the working directory if left out.")] = None
    ignore: Annotated[tuple[str, ...], Meta(description="Globs of what to leave out.")] = ()


async def list_directory(wanted: ListInput, ctx: ToolContext) -> ToolResult:
    place = await enter(wanted.path or ctx.directory, ctx, "directory")
    patterns = tuple(dict.fromkeys((place.path, place.real)))
    await ctx.ask("list", *patterns, always=("*",), metadata={"path": place.path})
    if not place.is_directory:
        raise ToolError(f"There is no directory {place.path}.")
    names = [name for name in await list_names(place.real, ctx) if not is_ignored(name, wanted.ignore)]
    shown = sorted(names)[:LIMIT]
    return ToolResult(
        title=title_of(place, ctx),
        output="\n".join([f"{place.path.rstrip('/')}/", *tree(shown)]) + "\n",
        metadata={"count": len(shown), "truncated": len(names) >= LIMIT},
    )


def is_ignored(name: str, globs: tuple[str, ...]) -> bool:
    parents = name.split("/")[:-1]
    if parents and (parents[0] in _AT_TOP or not _EVERYWHERE.isdisjoint(parents)):
        return True
    above = ["/".join(parents[: depth + 1]) for depth in range(len(parents))]
    return any(fits(each, glob) for glob in globs for each in [name, *above])


def tree(names: list[str], depth: int = 1) -> Iterator[str]:
    """Two blanks for each level, directories before files."""
    below: dict[str, list[str]] = {}
    files = []
    for name in names:
        head, slash, rest = name.partition("/")
        if slash:
            below.setdefault(head, []).append(rest)
        else:
            files.append(head)
    for directory in sorted(below):
        yield f"{'  ' * depth}{directory}/"
        yield from tree(below[directory], depth + 1)
    yield from (f"{'  ' * depth}{file}" for file in sorted(files))


LIST = Tool(name="list", about=about("list"), takes=ListInput, run=list_directory, announces=True)
