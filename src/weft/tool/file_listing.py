"""List the files below a directory except ignored ones, and select among them by glob."""

import asyncio
import os
import re
import shutil
import stat
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from msgspec import Struct

from weft.errors import ToolError
from weft.host.files import walk_files
from weft.host.git import SAFE_OPTIONS
from weft.host.processes import CapturedOutput, ProcessCommand, capture_output
from weft.tool.contract import ToolContext

MAX_LISTED_BYTES: Final = 64 << 20
SEARCH_TIMEOUT_SECONDS: Final = 60.0
TRUNCATED_NOTE: Final = "(Results are truncated. Consider using a more specific path or pattern.)"

_VERSION_CONTROL_DIRECTORIES: Final = frozenset({".git", ".hg", ".svn", ".jj"})


class ListedFile(Struct, frozen=True, kw_only=True):
    """A plain file: its path relative to the listed directory, and its modification time (ns)."""

    name: str
    modified: int


async def list_files(directory: str, ctx: ToolContext) -> list[ListedFile]:
    """Return all plain files, newest first. Links are not followed, because they may lead out of the directory."""
    names = await list_names(directory, ctx)
    return await asyncio.to_thread(_stat_newest_first, directory, names)


async def list_names(directory: str, ctx: ToolContext) -> list[str]:
    """Return the paths of all files, found by ripgrep, by git in a repository, or by walking the tree."""
    if ripgrep := find_ripgrep(ctx):
        argv = (ripgrep, "--files", "--hidden", "--no-messages", "--null", "--glob=!.git")
        return _split_names((await run_search(directory, argv, MAX_LISTED_BYTES, ctx)).output)
    return await _list_by_git(directory, ctx) or await asyncio.to_thread(_walk, directory)


def find_ripgrep(ctx: ToolContext) -> str | None:
    """Return the path of ripgrep, or None if it is not installed."""
    return shutil.which("rg", path=ctx.resources.environment.get("PATH"))


async def run_search(directory: str, argv: tuple[str, ...], limit: int, ctx: ToolContext) -> CapturedOutput:
    """Run a search program in a directory and return its output. Raise `ToolError` if it cannot be started."""
    command = ProcessCommand(
        argv=argv, directory=directory, environment=ctx.resources.environment, timeout=SEARCH_TIMEOUT_SECONDS
    )
    try:
        return await capture_output(command, limit=limit)
    except OSError as error:
        raise ToolError(f"The search could not be run: {error}") from error


async def _list_by_git(directory: str, ctx: ToolContext) -> list[str]:
    """Return the tracked and untracked files that git does not ignore.

    The list is empty outside of a repository. It is also empty for an ignored directory, so that the caller walks it:
    someone who searches it explicitly wants its files.
    """
    # SAFE_OPTIONS override settings by which the repository itself could name a program to run, such as a file system
    # monitor.
    argv = ("git", *SAFE_OPTIONS, "ls-files", "-coz", "--exclude-standard", "--deduplicate")
    captured = await run_search(directory, argv, MAX_LISTED_BYTES, ctx)
    if captured.code != 0:
        return []
    files, repositories = await asyncio.to_thread(
        _separate_directories, directory, _split_names(captured.output)
    )
    for repository in repositories:
        files += [
            f"{repository}/{name}" for name in await list_names(os.path.join(directory, repository), ctx)
        ]
    return files


def _separate_directories(directory: str, names: list[str]) -> tuple[list[str], list[str]]:
    """Separate plain files from directories, which are other repositories inside this one."""
    files: list[str] = []
    repositories: list[str] = []
    for name in names:
        path = os.path.join(directory, name)
        is_directory = name.endswith("/") or (os.path.isdir(path) and not os.path.islink(path))
        (repositories if is_directory else files).append(name.rstrip("/"))
    return files, repositories


def _split_names(raw: bytes) -> list[str]:
    return [os.fsdecode(name).removeprefix("./") for name in raw.split(b"\0") if name]


def _walk(directory: str) -> list[str]:
    skip = _VERSION_CONTROL_DIRECTORIES.__contains__
    return list(walk_files(directory, skip=skip, seconds=SEARCH_TIMEOUT_SECONDS))


def _stat_newest_first(directory: str, names: Iterable[str]) -> list[ListedFile]:
    files = []
    for name in names:
        try:
            status = os.lstat(os.path.join(directory, name))
        except OSError:
            continue  # it was removed since git recorded it
        if stat.S_ISREG(status.st_mode):
            files.append(ListedFile(name=name, modified=status.st_mtime_ns))
    return sorted(files, key=lambda file: (-file.modified, file.name))


def matches_glob(name: str, glob: str) -> bool:
    """Return True if a path matches a glob as ripgrep reads it.

    A glob without a slash is compared with the last name of the path only.
    """
    if "/" not in glob.rstrip("/"):
        name = name.rpartition("/")[2]
    return _compile_glob(glob.strip("/")).fullmatch(name) is not None


@lru_cache(maxsize=256)
def _compile_glob(glob: str) -> re.Pattern[str]:
    try:
        return re.compile(_convert_to_regex(glob), re.DOTALL)
    except (re.error, RecursionError):
        return re.compile(re.escape(glob))


_GLOB_TOKENS: Final = re.compile(r"(?:\*\*/)+|/\*\*$|\*\*|\*|\?|\[[!^]?\]?[^\]]*\]|\\.|[{},]|.", re.DOTALL)
_GLOB_REGEX: Final = {"/**": "/.*", "**": ".*", "?": "[^/]"}


def _convert_to_regex(glob: str) -> str:
    tokens = _GLOB_TOKENS.findall(glob)
    pieces, depth, is_open = list[str](), 0, False
    for index, token in enumerate(tokens):
        if token == "*":
            if is_open:
                pieces.append(")")
            # The first place for what is between two stars leaves the most to the rest. To try others takes forever.
            is_open = _leads_to_star(tokens, index + 1)
            pieces.append("(?>[^/]*?" if is_open else "[^/]*")
        elif token.startswith("**/"):
            pieces.append("(?:.*/)?")
        elif token in _GLOB_REGEX:
            pieces.append(_GLOB_REGEX[token])
        elif token == "{":
            depth += 1
            pieces.append("(?:")
        elif token == "}" and depth:
            depth -= 1
            pieces.append(")")
        elif token == "," and depth:
            pieces.append("|")
        elif len(token) > 1 and token[0] == "[":
            pieces.append("[" + re.sub(r"^[!^]", "^", token[1:-1]).replace("\\", r"\\") + "]")
        else:
            pieces.append(re.escape(token[-1]))
    return "".join(pieces)


def _leads_to_star(tokens: list[str], start: int) -> bool:
    """Return True if a star follows, and before it only characters of the same name."""
    for index in range(start, len(tokens)):
        token = tokens[index]
        if token == "*":
            return True
        if (
            token in ("/", "/**", "{", "}", ",")
            or token.startswith("**")
            or (token[0] == "[" and len(token) > 1)
        ):
            return False
    return False
