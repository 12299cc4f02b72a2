"""The `grep` tool: find text in files."""

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import ToolError
from weft.host.private_files import open_temporary
from weft.host.processes import CapturedOutput
from weft.tool.contract import ToolContext, ToolResult
from weft.tool.file_listing import TRUNCATED_NOTE, find_ripgrep, list_files, matches_glob, run_search
from weft.tool.inputs import GrepInput
from weft.tool.paths import ToolPath, resolve_path

MAX_MATCHES: Final = 100
MAX_LINE_LENGTH: Final = 2000
MAX_BYTES: Final = 51200
MAX_FOUND_BYTES: Final = 16 << 20
INACCESSIBLE: Final = 2
MAX_WITHHELD: Final = 20
SKIPPED_NOTE: Final = "(Some paths were inaccessible and skipped)"

_SCAN_SCRIPT: Final = os.path.join(os.path.dirname(__file__), "scan.py")


class GrepMatch(Struct, frozen=True, kw_only=True):
    path: str
    line: int
    text: str


class GrepResult(Struct, frozen=True, kw_only=True):
    """The matches, those in the newest file first.

    `cut` means that there may be more, `skipped` that some files could not be read. `withheld` are files with matches
    that are not shown, because reading these files requires a question.
    """

    matches: list[GrepMatch]
    cut: bool = False
    skipped: bool = False
    withheld: tuple[str, ...] = ()


async def grep(wanted: GrepInput, ctx: ToolContext) -> ToolResult:
    metadata = {"pattern": wanted.pattern, "path": wanted.path, "include": wanted.include}
    await ctx.ask("grep", wanted.pattern, always=("*",), metadata=metadata)
    place = await resolve_path(wanted.path or ctx.directory, ctx, "directory")
    if not (place.is_file or place.is_directory):
        raise ToolError(f"There is no file or directory {place.path} to search.")
    if place.is_file:
        paths = tuple(dict.fromkeys((place.path, place.real)))
        await ctx.ask("read", *paths, always=("*",), metadata={})
        found = await _search_by_script(place, [os.path.basename(place.path)], wanted.pattern, ctx)
    elif ripgrep := find_ripgrep(ctx):
        found = await _search_by_ripgrep(ripgrep, place, wanted, ctx)
    else:
        files = await list_files(place.real, ctx)
        names = [file.name for file in files if not wanted.include or matches_glob(file.name, wanted.include)]
        found = await _search_by_script(place, names, wanted.pattern, ctx)
    return _format_result(wanted.pattern, found if place.is_file else _withhold_unreadable(found, place, ctx))


def _withhold_unreadable(found: GrepResult, place: ToolPath, ctx: ToolContext) -> GrepResult:
    """Remove the matches in files that may not be read without a question. OpenCode shows them."""

    def permits(path: str) -> bool:
        real = os.path.join(place.real, os.path.relpath(path, place.path))
        return all(ctx.permits("read", each) for each in dict.fromkeys((path, real)))

    withheld = {path for path in {match.path for match in found.matches} if not permits(path)}
    readable = [match for match in found.matches if match.path not in withheld]
    return replace(found, matches=readable, withheld=tuple(sorted(withheld)))


async def _search_by_ripgrep(
    ripgrep: str, place: ToolPath, wanted: GrepInput, ctx: ToolContext
) -> GrepResult:
    # A NUL ends each name. OpenCode separates by a bar, which may occur in names.
    options = ["-nH", "--hidden", "--no-messages", "--null", "--no-heading", "--color=never", "--glob=!.git"]
    if wanted.include and "/" not in wanted.include:
        # A type and not a glob: a glob would bring back ignored files.
        options += [f"--type-add=weft:{wanted.include}", "--type=weft"]
    options += [f"--max-count={MAX_MATCHES + 1}"]
    argv = (ripgrep, *options, "--regexp", wanted.pattern, "--", ".")
    captured = await run_search(place.real, argv, MAX_FOUND_BYTES, ctx)
    if (
        captured.code is not None
        and captured.code >= INACCESSIBLE
        and not captured.output
        and captured.errors.strip()
    ):
        raise ToolError(f"ripgrep failed: {captured.errors.strip()}")
    include, root = wanted.include or "**", place.path.rstrip("/") + "/"
    chosen = [
        each
        for each in _parse_matches(captured.output, place)
        if matches_glob(each.path.removeprefix(root), include)
    ]
    matches = await asyncio.to_thread(_sort_newest_first, chosen)
    return GrepResult(matches=matches, cut=captured.cut, skipped=captured.code == INACCESSIBLE)


async def _search_by_script(place: ToolPath, names: list[str], pattern: str, ctx: ToolContext) -> GrepResult:
    """Search in a separate process, which can be killed if the pattern takes forever."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ToolError(f"The pattern is not a regular expression: {error}") from error
    root = place if place.is_directory else _parent(place)
    listed = b"\0".join(os.fsencode(name) for name in names)
    async with open_temporary("weft-grep-", listed) as path:
        argv = (sys.executable, "-I", "-S", _SCAN_SCRIPT, str(MAX_MATCHES + 1), pattern, path)
        captured = await run_search(root.real, argv, MAX_FOUND_BYTES, ctx)
    return _read_scan(captured, root)


def _parent(place: ToolPath) -> ToolPath:
    return ToolPath(path=os.path.dirname(place.path), real=os.path.dirname(place.real), is_directory=True)


def _read_scan(captured: CapturedOutput, root: ToolPath) -> GrepResult:
    if captured.cut:
        raise ToolError("The search took too long and was ended. Use a simpler pattern, or a smaller path.")
    if captured.code not in (0, INACCESSIBLE):
        raise ToolError(f"The search failed: {captured.errors.strip()}")
    return GrepResult(
        matches=list(_parse_matches(captured.output, root)), skipped=captured.code == INACCESSIBLE
    )


def _parse_matches(raw: bytes, root: ToolPath) -> Iterator[GrepMatch]:
    """Parse lines of name, NUL, line number, colon, text."""
    for line in raw.split(b"\n"):
        name, nul, rest = line.partition(b"\0")
        number, _, text = rest.partition(b":")
        if nul and number.isdigit():
            path = os.path.join(root.path, os.fsdecode(name).removeprefix("./"))
            yield GrepMatch(
                path=path, line=int(number), text=text.decode(errors="replace").removesuffix("\r")
            )


def _sort_newest_first(matches: list[GrepMatch]) -> list[GrepMatch]:
    times: dict[str, float] = {}
    for path in {match.path for match in matches}:
        with suppress(OSError):
            times[path] = os.lstat(path).st_mtime_ns
    return sorted(matches, key=lambda match: (-times.get(match.path, 0), match.path, match.line))


def _format_result(pattern: str, found: GrepResult) -> ToolResult:
    shown, lines, used = 0, [""], 0
    for shown, match in enumerate(found.matches[:MAX_MATCHES]):
        first = not shown or found.matches[shown - 1].path != match.path
        text = match.text if len(match.text) <= MAX_LINE_LENGTH else match.text[:MAX_LINE_LENGTH] + "..."
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
        shown = min(len(found.matches), MAX_MATCHES)
    truncated = found.cut or shown < len(found.matches)
    lines[0] = f"Found {shown} matches" if found.matches else "No files found"
    lines += ["", TRUNCATED_NOTE] if truncated else []
    lines += ["", SKIPPED_NOTE] if found.skipped and found.matches else []
    if found.withheld:
        names = ", ".join(found.withheld[:MAX_WITHHELD])
        lines += ["", f"(There are matches that may only be seen with the read tool, in: {names})"]
    return ToolResult(
        title=pattern, output="\n".join(lines), metadata={"matches": shown, "truncated": truncated}
    )
