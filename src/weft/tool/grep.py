"""Find text in files."""

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from weft.errors import ToolError
from weft.host.private_files import open_scratch
from weft.host.processes import Captured
from weft.tool.contract import Tool, ToolContext, ToolResult
from weft.tool.description import about
from weft.tool.file_listing import TRUNCATED, capture_in, fits, list_files, ripgrep_of
from weft.tool.paths import Place, enter

LIMIT: Final = 100
LINE_LENGTH: Final = 2000
MAX_BYTES: Final = 51200
FOUND_BYTES: Final = 16 << 20
INACCESSIBLE: Final = 2
WITHHELD: Final = 20
SKIPPED: Final = "(Some paths were inaccessible and skipped)"

_SCAN: Final = os.path.join(os.path.dirname(__file__), "scan.py")


class GrepInput(Struct, frozen=True, kw_only=True):
    pattern: Annotated[str, Meta(description="The regular expression to look for, line by line.")]
    path: Annotated[
        str | None, Meta(description="The directory or file to search; the working directory if left out.")
    ] = None
    include: Annotated[
        str | None, Meta(description="A glob for the files to search, such as `*.{ts,tsx}`.")
    ] = None


class Match(Struct, frozen=True, kw_only=True):
    path: str
    line: int
    text: str


class Search(Struct, frozen=True, kw_only=True):
    """What was found, newest file first; whether that is not all; whether something could not be looked into.

    `withheld` are files of which nothing is shown: they may not be read unasked.
    """

    matches: list[Match]
    cut: bool = False
    skipped: bool = False
    withheld: tuple[str, ...] = ()


async def grep(wanted: GrepInput, ctx: ToolContext) -> ToolResult:
    metadata = {"pattern": wanted.pattern, "path": wanted.path, "include": wanted.include}
    await ctx.ask("grep", wanted.pattern, always=("*",), metadata=metadata)
    place = await enter(wanted.path or ctx.directory, ctx, "directory")
    if not (place.is_file or place.is_directory):
        raise ToolError(f"There is no file or directory {place.path} to search.")
    if place.is_file:
        paths = tuple(dict.fromkeys((place.path, place.real)))
        await ctx.ask("read", *paths, always=("*",), metadata={})
        found = await _scan(place, [os.path.basename(place.path)], wanted.pattern, ctx)
    elif ripgrep := ripgrep_of(ctx):
        found = await _by_ripgrep(ripgrep, place, wanted, ctx)
    else:
        files = await list_files(place.real, ctx)
        names = [file.name for file in files if not wanted.include or fits(file.name, wanted.include)]
        found = await _scan(place, names, wanted.pattern, ctx)
    return _told(wanted.pattern, found if place.is_file else _readable(found, place, ctx))


def _readable(found: Search, place: Place, ctx: ToolContext) -> Search:
    """Without the lines of files that may not be read unasked. OpenCode shows them: `grep` is not `read` there."""

    def permits(path: str) -> bool:
        real = os.path.join(place.real, os.path.relpath(path, place.path))
        return all(ctx.permits("read", each) for each in dict.fromkeys((path, real)))

    withheld = {path for path in {match.path for match in found.matches} if not permits(path)}
    kept = [match for match in found.matches if match.path not in withheld]
    return replace(found, matches=kept, withheld=tuple(sorted(withheld)))


async def _by_ripgrep(ripgrep: str, place: Place, wanted: GrepInput, ctx: ToolContext) -> Search:
    # The name ends with a NUL: OpenCode's bar may stand in a name.
    options = ["-nH", "--hidden", "--no-messages", "--null", "--no-heading", "--color=never", "--glob=!.git"]
    if wanted.include and "/" not in wanted.include:
        # Not as a glob: that would bring back what version control ignores.
        options += [f"--type-add=weft:{wanted.include}", "--type=weft"]
    options += [f"--max-count={LIMIT + 1}"]
    argv = (ripgrep, *options, "--regexp", wanted.pattern, "--", ".")
    said = await capture_in(place.real, argv, FOUND_BYTES, ctx)
    if said.code is not None and said.code >= INACCESSIBLE and not said.output and said.errors.strip():
        raise ToolError(f"ripgrep failed: {said.errors.strip()}")
    include, root = wanted.include or "**", place.path.rstrip("/") + "/"
    chosen = [each for each in _matches(said.output, place) if fits(each.path.removeprefix(root), include)]
    matches = await asyncio.to_thread(_newest_first, chosen)
    return Search(matches=matches, cut=said.cut, skipped=said.code == INACCESSIBLE)


async def _scan(place: Place, names: list[str], pattern: str, ctx: ToolContext) -> Search:
    """In a process of its own: a pattern that never comes to an end can be killed there, and holds up nobody."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ToolError(f"The pattern is no regular expression: {error}") from error
    root = place if place.is_directory else _parent(place)
    listed = b"\0".join(os.fsencode(name) for name in names)
    async with open_scratch("weft-grep-", listed) as path:
        argv = (sys.executable, "-I", "-S", _SCAN, str(LIMIT + 1), pattern, path)
        said = await capture_in(root.real, argv, FOUND_BYTES, ctx)
    return _scanned(said, root)


def _parent(place: Place) -> Place:
    return Place(path=os.path.dirname(place.path), real=os.path.dirname(place.real), is_directory=True)


def _scanned(said: Captured, root: Place) -> Search:
    if said.cut:
        raise ToolError("The search took too long and was ended. Use a simpler pattern, or a smaller path.")
    if said.code not in (0, INACCESSIBLE):
        raise ToolError(f"The search failed: {said.errors.strip()}")
    return Search(matches=list(_matches(said.output, root)), skipped=said.code == INACCESSIBLE)


def _matches(raw: bytes, root: Place) -> Iterator[Match]:
    """From lines of name, NUL, number, colon, text."""
    for line in raw.split(b"\n"):
        name, nul, rest = line.partition(b"\0")
        number, _, text = rest.partition(b":")
        if nul and number.isdigit():
            path = os.path.join(root.path, os.fsdecode(name).removeprefix("./"))
            yield Match(path=path, line=int(number), text=text.decode(errors="replace").removesuffix("\r"))


def _newest_first(matches: list[Match]) -> list[Match]:
    times: dict[str, float] = {}
    for path in {match.path for match in matches}:
        with suppress(OSError):
            times[path] = os.lstat(path).st_mtime_ns
    return sorted(matches, key=lambda match: (-times.get(match.path, 0), match.path, match.line))


def _told(pattern: str, found: Search) -> ToolResult:
    shown, lines, used = 0, [""], 0
    for shown, match in enumerate(found.matches[:LIMIT]):
        first = not shown or found.matches[shown - 1].path != match.path
        text = match.text if len(match.text) <= LINE_LENGTH else match.text[:LINE_LENGTH] + "..."
        block = [
            *([""] if shown and first else []),
            *([f"{match.path}:"] if first else []),
            f"  Line {match.line}: {text}",
        ]
        used += sum(len(line.encode(errors="replace")) + 1 for line in block)
        if used > MAX_BYTES:
            break
        lines += block
    else:
        shown = min(len(found.matches), LIMIT)
    truncated = found.cut or shown < len(found.matches)
    lines[0] = f"Found {shown} matches" if found.matches else "No files found"
    lines += ["", TRUNCATED] if truncated else []
    lines += ["", SKIPPED] if found.skipped and found.matches else []
    if found.withheld:
        names = ", ".join(found.withheld[:WITHHELD])
        lines += ["", f"(There are matches that may only be seen with the read tool, in: {names})"]
    return ToolResult(
        title=pattern, output="\n".join(lines), metadata={"matches": shown, "truncated": truncated}
    )


GREP = Tool(name="grep", about=about("grep"), takes=GrepInput, run=grep, announces=True)
