"""List the files below a directory without ignored ones, and choose among them by glob."""

import asyncio
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from msgspec import Struct

from weft.errors import ToolError
from weft.host.git import HARMLESS
from weft.host.processes import Captured, Command, capture
from weft.tool.contract import ToolContext

LISTED_BYTES: Final = 64 << 20
SECONDS: Final = 60.0
TRUNCATED: Final = "(Results are truncated. Consider using a more specific path or pattern.)"

_VERSION_CONTROL: Final = frozenset({".git", ".hg", ".svn", ".jj"})


class File(Struct, frozen=True, kw_only=True):
    """A plain file by its path from the directory that was listed, and when it was last written (ns)."""

    name: str
    modified: int


async def list_files(directory: str, ctx: ToolContext) -> list[File]:
    """Every plain file, newest first. Links are not followed: they may lead out of what was asked about."""
    names = await list_names(directory, ctx)
    return await asyncio.to_thread(_newest_first, directory, names)


async def list_names(directory: str, ctx: ToolContext) -> list[str]:
    """The names by whichever means there is: ripgrep, git where it is a repository, or walking the tree."""
    if ripgrep := ripgrep_of(ctx):
        argv = (ripgrep, "--files", "--hidden", "--no-messages", "--null", "--glob=!.git")
        return _split((await capture_in(directory, argv, LISTED_BYTES, ctx)).output)
    return await _by_git(directory, ctx) or await asyncio.to_thread(lambda: list(_walk(directory)))


def ripgrep_of(ctx: ToolContext) -> str | None:
    return shutil.which("rg", path=ctx.desk.environment.get("PATH"))


async def capture_in(directory: str, argv: tuple[str, ...], limit: int, ctx: ToolContext) -> Captured:
    """What a search program says, run in a directory."""
    command = Command(argv=argv, directory=directory, environment=ctx.desk.environment, timeout=SECONDS)
    try:
        return await capture(command, limit=limit)
    except OSError as error:
        raise ToolError(f"The search could not be run: {error}") from error


async def _by_git(directory: str, ctx: ToolContext) -> list[str]:
    """Nothing when it is no repository, and when the directory itself is ignored: who asks for it means it."""
    # The configuration of the repository itself may name a program, such as a file system monitor.
    argv = ("git", *HARMLESS, "ls-files", "-coz", "--exclude-standard", "--deduplicate")
    told = await capture_in(directory, argv, LISTED_BYTES, ctx)
    if told.code != 0:
        return []
    plain, inner = await asyncio.to_thread(_apart, directory, _split(told.output))
    for name in inner:
        plain += [f"{name}/{each}" for each in await list_names(os.path.join(directory, name), ctx)]
    return plain


def _apart(directory: str, names: list[str]) -> tuple[list[str], list[str]]:
    """Files, and directories: those are other repositories inside this one."""
    plain: list[str] = []
    inner: list[str] = []
    for name in names:
        path = os.path.join(directory, name)
        is_directory = name.endswith("/") or (os.path.isdir(path) and not os.path.islink(path))
        (inner if is_directory else plain).append(name.rstrip("/"))
    return plain, inner


def _split(raw: bytes) -> list[str]:
    return [os.fsdecode(name).removeprefix("./") for name in raw.split(b"\0") if name]


def _walk(directory: str) -> Iterator[str]:
    for parent, directories, names in os.walk(directory):
        directories[:] = [each for each in directories if each not in _VERSION_CONTROL]
        below = os.path.relpath(parent, directory)
        yield from (name if below == "." else f"{below}/{name}" for name in names)


def _newest_first(directory: str, names: Iterable[str]) -> list[File]:
    found = []
    for name in names:
        try:
            status = os.lstat(os.path.join(directory, name))
        except OSError:
            continue  # removed since git noted it
        if stat.S_ISREG(status.st_mode):
            found.append(File(name=name, modified=status.st_mtime_ns))
    return sorted(found, key=lambda file: (-file.modified, file.name))


def fits(name: str, glob: str) -> bool:
    """Whether a path fits a glob as ripgrep reads it: without a slash it is held against the last name only."""
    if "/" not in glob.rstrip("/"):
        name = name.rpartition("/")[2]
    return _compiled(glob.strip("/")).fullmatch(name) is not None


@lru_cache(maxsize=256)
def _compiled(glob: str) -> re.Pattern[str]:
    try:
        return re.compile(_to_regex(glob), re.DOTALL)
    except re.error:
        return re.compile(re.escape(glob))


_TOKENS: Final = re.compile(r"\*\*/|/\*\*$|\*\*|\*|\?|\[[!^]?\]?[^\]]*\]|\\.|[{},]|.", re.DOTALL)
_MEANS: Final = {"**/": "(?:.*/)?", "/**": "/.*", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _to_regex(glob: str) -> str:
    pieces, depth = [], 0
    for token in _TOKENS.findall(glob):
        if token in _MEANS:
            pieces.append(_MEANS[token])
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
