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
from weft.tool.truncate import MAX_BYTES

MAX_MATCHES: Final = 100
MAX_LINE_LENGTH: Final = 2000
MAX_SEARCH_OUTPUT_BYTES: Final = 16 << 20
# The exit code of ripgrep and of the script if a file could not be read.
INACCESSIBLE_CODE: Final = 2
MAX_WITHHELD_NAMES: Final = 20
SKIPPED_NOTE: Final = "(Some paths were inaccessible and skipped)"

_SCAN_SCRIPT: Final = os.path.join(os.path.dirname(__file__), "grep_scan.py")


class GrepMatch(Struct, frozen=True, kw_only=True):
    path: str
    line: int
    text: str


class GrepResult(Struct, frozen=True, kw_only=True):
    """The matches, those in the newest file first.

    `truncated` means that there may be more matches, `skipped` that some files could not be read. `withheld` are files
    whose matches are not shown, because reading these files requires a question.
    """

    matches: list[GrepMatch]
    truncated: bool = False
    skipped: bool = False
    withheld: tuple[str, ...] = ()


async def grep(arguments: GrepInput, ctx: ToolContext) -> ToolResult:
    metadata = {"pattern": arguments.pattern, "path": arguments.path, "include": arguments.include}
    await ctx.ask("grep", arguments.pattern, always=("*",), metadata=metadata)
    place = await resolve_path(arguments.path or ctx.directory, ctx, "directory")
    if not (place.is_file or place.is_directory):
        raise ToolError(f"There is no file or directory {place.path} to search.")
    if place.is_file:
        paths = tuple(dict.fromkeys((place.path, place.real)))
        await ctx.ask("read", *paths, always=("*",), metadata={})
        result = await _search_by_script(place, [os.path.basename(place.path)], arguments.pattern, ctx)
    elif ripgrep := find_ripgrep(ctx):
        result = await _search_by_ripgrep(ripgrep, place, arguments, ctx)
    else:
        files = await list_files(place.real, ctx)
        names = [
            file.name for file in files if not arguments.include or matches_glob(file.name, arguments.include)
        ]
        result = await _search_by_script(place, names, arguments.pattern, ctx)
    return _format_result(
        arguments.pattern, result if place.is_file else _withhold_unreadable(result, place, ctx)
    )


def _withhold_unreadable(result: GrepResult, place: ToolPath, ctx: ToolContext) -> GrepResult:
    """Remove the matches in files that may not be read without a question. OpenCode shows them."""

    def permits(path: str) -> bool:
        real = os.path.join(place.real, os.path.relpath(path, place.path))
        return all(ctx.permits("read", name) for name in dict.fromkeys((path, real)))

    withheld = {path for path in {match.path for match in result.matches} if not permits(path)}
    readable = [match for match in result.matches if match.path not in withheld]
    return replace(result, matches=readable, withheld=tuple(sorted(withheld)))


async def _search_by_ripgrep(
    ripgrep: str, place: ToolPath, arguments: GrepInput, ctx: ToolContext
) -> GrepResult:
    # With `--null`, a NUL ends each name. OpenCode separates by a bar, which may occur in names.
    options = ["-nH", "--hidden", "--no-messages", "--null", "--no-heading", "--color=never", "--glob=!.git"]
    if arguments.include and "/" not in arguments.include:
        # A type and not a glob: a glob would bring back ignored files.
        options += [f"--type-add=weft:{arguments.include}", "--type=weft"]
    options += [f"--max-count={MAX_MATCHES + 1}"]
    argv = (ripgrep, *options, "--regexp", arguments.pattern, "--", ".")
    captured = await run_search(place.real, argv, MAX_SEARCH_OUTPUT_BYTES, ctx)
    if (
        captured.code is not None
        and captured.code >= INACCESSIBLE_CODE
        and not captured.output
        and captured.errors.strip()
    ):
        raise ToolError(f"ripgrep failed: {captured.errors.strip()}")
    include, root = arguments.include or "**", place.path.rstrip("/") + "/"
    matches_unsorted = [
        match
        for match in _parse_matches(captured.output, place)
        if matches_glob(match.path.removeprefix(root), include)
    ]
    matches = await asyncio.to_thread(_sort_newest_first, matches_unsorted)
    return GrepResult(matches=matches, truncated=captured.cut, skipped=captured.code == INACCESSIBLE_CODE)


async def _search_by_script(place: ToolPath, names: list[str], pattern: str, ctx: ToolContext) -> GrepResult:
    """Search in a separate process, which can be killed if the pattern takes forever."""
    try:
        re.compile(pattern)
    except (
        re.error,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:  # also a number or a nesting too large
        raise ToolError(f"The pattern is not a regular expression: {error}") from error
    root = place if place.is_directory else _get_parent(place)
    name_list = b"\0".join(os.fsencode(name) for name in names)
    async with open_temporary("weft-grep-", name_list) as path:
        argv = (sys.executable, "-I", "-S", _SCAN_SCRIPT, str(MAX_MATCHES + 1), pattern, path)
        captured = await run_search(root.real, argv, MAX_SEARCH_OUTPUT_BYTES, ctx)
    return _parse_scan_output(captured, root)


def _get_parent(place: ToolPath) -> ToolPath:
    return ToolPath(path=os.path.dirname(place.path), real=os.path.dirname(place.real), is_directory=True)


def _parse_scan_output(captured: CapturedOutput, root: ToolPath) -> GrepResult:
    if captured.cut:
        raise ToolError("The search took too long and was ended. Use a simpler pattern, or a smaller path.")
    if captured.code not in (0, INACCESSIBLE_CODE):
        raise ToolError(f"The search failed: {captured.errors.strip()}")
    return GrepResult(
        matches=list(_parse_matches(captured.output, root)), skipped=captured.code == INACCESSIBLE_CODE
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


def _format_result(pattern: str, result: GrepResult) -> ToolResult:
    shown, lines, used = 0, [""], 0
    for shown, match in enumerate(result.matches[:MAX_MATCHES]):
        is_new_file = not shown or result.matches[shown - 1].path != match.path
        text = match.text if len(match.text) <= MAX_LINE_LENGTH else match.text[:MAX_LINE_LENGTH] + "..."
        block = [
            *([""] if shown and is_new_file else []),
            *([f"{match.path}:"] if is_new_file else []),
            f"  Line {match.line}: {text}",
        ]
        used += sum(len(line.encode(errors="replace")) + 1 for line in block)
        if used > MAX_BYTES:
            break
        lines += block
    else:
        shown = min(len(result.matches), MAX_MATCHES)
    truncated = result.truncated or shown < len(result.matches)
    lines[0] = f"Found {shown} matches" if result.matches else "No files found"
    lines += ["", TRUNCATED_NOTE] if truncated else []
    lines += ["", SKIPPED_NOTE] if result.skipped and result.matches else []
    if result.withheld:
        names = ", ".join(result.withheld[:MAX_WITHHELD_NAMES])
        lines += ["", f"(There are matches that may only be seen with the read tool, in: {names})"]
    return ToolResult(
        title=pattern, output="\n".join(lines), metadata={"matches": shown, "truncated": truncated}
    )
