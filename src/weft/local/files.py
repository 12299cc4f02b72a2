"""Read and search the project's files for front ends, never outside the project."""

import asyncio
import base64
import errno
import heapq
import json
import mimetypes
import os
import re
import shutil
import stat
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, Final, Literal

from weft.errors import GitError, InvalidInputError, NotFoundError, OutsideError, UnsupportedError
from weft.host.files import walk_files
from weft.host.git import SAFE_OPTIONS, Git
from weft.host.processes import ProcessCommand, capture_output, run_command
from weft.model.project import Place, is_within
from weft.model.workspace import (
    FileChange,
    FileContent,
    FileNode,
    FilePatch,
    Hunk,
    Kind,
    MatchedText,
    Submatch,
    Symbol,
    TextMatch,
)

# --- find files and text ---

SEARCH_SECONDS: Final = 20.0
MAX_LISTING_BYTES: Final = 64 << 20
FRESH_SECONDS: Final = 3.0
MAX_LINE_BYTES: Final = 1 << 20
MAX_SHOWN_LINE: Final = 4000
MAX_PATTERN_LENGTH: Final = 10_000
RIPGREP_ERROR: Final = 2


class _LimitReachedError(Exception):
    """Enough matches were found."""


class FileFinder:
    """Searches below one directory. The list of files is reused for a few seconds, because each typed letter is a search."""

    def __init__(self, directory: str, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = environment
        self._cached: tuple[float, list[str]] | None = None
        self._list_lock = asyncio.Lock()

    # --- text ---

    async def find_text(self, pattern: str, limit: int) -> list[TextMatch]:
        ripgrep = shutil.which("rg", path=self._environment.get("PATH"))
        if ripgrep is None:
            raise UnsupportedError("searching text without ripgrep", hint="install ripgrep (rg)")
        if not pattern or len(pattern) > MAX_PATTERN_LENGTH:
            raise InvalidInputError("pattern", "empty or too long")
        options = ("--json", "--hidden", "--no-messages", "--glob=!.git", f"--max-count={limit}")
        matches, stderr = _MatchReader(limit), bytearray()

        async def read_stderr(piece: bytes) -> None:
            stderr.extend(piece[:MAX_PATTERN_LENGTH])

        command = self._make_command((ripgrep, *options, "--regexp", pattern, "--", "."))
        try:
            ended = await run_command(command, matches.read, read_stderr)
        except _LimitReachedError:
            return matches.found
        except OSError as error:
            raise InvalidInputError("pattern", "cannot be searched for") from error
        if ended.code == RIPGREP_ERROR and not matches.found and stderr.strip():
            raise InvalidInputError("pattern", stderr.decode(errors="replace").strip()[:500])
        return matches.found

    # --- files ---

    async def find_files(self, query: str, kind: Kind | None, limit: int) -> list[str]:
        async with self._list_lock:
            names = await self._list_names()
        return await asyncio.to_thread(rank_names, names, query, kind, limit)

    async def _list_names(self) -> list[str]:
        now = asyncio.get_running_loop().time()
        if self._cached is None or now - self._cached[0] > FRESH_SECONDS:
            self._cached = now, await self._list_files()
        return self._cached[1]

    async def _list_files(self) -> list[str]:
        """List all files: with ripgrep, with git, or by walking the tree."""
        ripgrep = shutil.which("rg", path=self._environment.get("PATH"))
        for argv in (
            (ripgrep or "rg", "--files", "--hidden", "--no-messages", "--null", "--glob=!.git"),
            ("git", *SAFE_OPTIONS, "ls-files", "-coz", "--exclude-standard", "--deduplicate"),
        ):
            try:
                result = await capture_output(self._make_command(argv), limit=MAX_LISTING_BYTES)
            except OSError:
                continue
            if result.output or result.code in (0, 1):
                return [name for name in _split_names(result.output) if is_encodable(name)]
        return await asyncio.to_thread(self._walk)

    def _walk(self) -> list[str]:
        names = walk_files(self._directory, skip=lambda name: name.startswith("."), seconds=SEARCH_SECONDS)
        return [name for name in names if is_encodable(name)]

    def _make_command(self, argv: tuple[str, ...]) -> ProcessCommand:
        return ProcessCommand(
            argv=argv, directory=self._directory, environment=self._environment, timeout=SEARCH_SECONDS
        )


class _MatchReader:
    """Reads the JSON lines of ripgrep. Raise `_LimitReachedError` when there are enough matches."""

    def __init__(self, limit: int) -> None:
        self.found: list[TextMatch] = []
        self._limit = limit
        self._rest = b""

    async def read(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b'{"type":"match"'):
                self.found.append(to_match(json.loads(line)["data"]))
            if len(self.found) >= self._limit:
                raise _LimitReachedError
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest = self._rest[:1]  # too long for a person to read: drop the match


def to_match(data: dict[str, Any]) -> TextMatch:
    return TextMatch(
        path=MatchedText(text=_decode_text(data["path"]).removeprefix("./")),
        lines=MatchedText(text=_decode_text(data["lines"])[:MAX_SHOWN_LINE]),
        line_number=data["line_number"] or 0,
        absolute_offset=data["absolute_offset"],
        submatches=tuple(
            Submatch(
                match=MatchedText(text=_decode_text(each["match"])[:MAX_SHOWN_LINE]),
                start=each["start"],
                end=each["end"],
            )
            for each in data["submatches"]
        ),
    )


def _decode_text(data: dict[str, str]) -> str:
    # Ripgrep sends text that is not UTF-8 as base64.
    return data["text"] if "text" in data else b64decode(data["bytes"]).decode(errors="replace")


def rank_names(names: Iterable[str], query: str, kind: Kind | None, limit: int) -> list[str]:
    """Return the best matches first. A match in the file's name ranks above one in its directory."""
    files = list(names)
    candidates = [] if kind == "directory" else files
    if kind != "file":
        candidates = [*candidates, *_list_directories(files)]
    letters = query.strip().lower()
    if not letters:
        # No letters yet: list the top level.
        top = [name for name in candidates if "/" not in name.rstrip("/")]
        return sorted(top, key=lambda name: (not name.endswith("/"), name))[:limit]
    matching = (name for name in candidates if _contains_letters(name.lower(), letters))
    return heapq.nsmallest(limit, matching, key=lambda name: _rank(name, letters))


def _contains_letters(path: str, letters: str) -> bool:
    """Return True if the path contains the letters in this order. A regular expression could take exponential time."""
    left = iter(path)
    return all(letter in left for letter in letters)


def _rank(name: str, letters: str) -> tuple[int, int, str]:
    path = name.lower()
    last = path.rstrip("/").rpartition("/")[2]
    matches = (
        last == letters,
        last.startswith(letters),
        letters in last,
        path.startswith(letters),
        letters in path,
    )
    return next((place for place, fits in enumerate(matches) if fits), len(matches)), len(path), path


def _list_directories(names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        above = name.rpartition("/")[0]
        while above and above not in seen:
            seen.add(above)
            yield f"{above}/"
            above = above.rpartition("/")[0]


def _split_names(raw: bytes) -> list[str]:
    return [os.fsdecode(name).removeprefix("./") for name in raw.split(b"\0") if name]


def is_encodable(name: str) -> bool:
    """Return True if a file name can be encoded in JSON. A name on disk may contain bytes that are not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- read files ---

MAX_FILE_BYTES: Final = 8 << 20
MAX_ENTRIES: Final = 10_000
IGNORE_BATCH: Final = 500
MAX_COMPARISONS: Final = 4_000_000
CONTEXT_LINES: Final = 4
LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")  # `splitlines` also ends a line at a form feed
HIDDEN_NAMES: Final = frozenset({".git", ".DS_Store"})


class ProjectFiles:
    """The `Files` of a directory and its checkout, or of the directory alone if there is no checkout."""

    def __init__(self, place: Place, env: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._directory = place.directory
        self._roots = tuple(
            os.path.realpath(root)
            for root in dict.fromkeys((place.directory, place.worktree))
            if root != os.sep
        )
        self._worktree = place.worktree if place.project.vcs is not None else None
        self._git = Git(env)
        self._finder = FileFinder(place.directory, environment)

    async def list_directory(self, path: str) -> list[FileNode]:
        return await asyncio.to_thread(self._list_directory, path)

    async def read_file(self, path: str) -> FileContent:
        return await asyncio.to_thread(self._read_file, path)

    async def list_changed(self) -> list[FileChange]:
        return await asyncio.to_thread(self._list_changed)

    async def find_text(self, pattern: str, *, limit: int = 10) -> list[TextMatch]:
        return await self._finder.find_text(pattern, limit)

    async def find_files(self, query: str, *, kind: Kind | None = None, limit: int = 100) -> list[str]:
        return await self._finder.find_files(query, kind, limit)

    async def find_symbols(self, query: str) -> list[Symbol]:
        del query
        return []  # as in OpenCode, which has the route but asks no language server

    # --- access ---

    def _resolve(self, path: str) -> str:
        """Resolve all links of a path. Raise `OutsideError` if it leads out of the project."""
        try:
            real = os.path.realpath(os.path.join(self._directory, path))
        except ValueError as error:  # a NUL or a lone surrogate
            raise InvalidInputError("path", f"{path[:80]!r} is not a valid path") from error
        if not self._is_inside(real):
            raise OutsideError(path)
        return real

    def _is_inside(self, real: str) -> bool:
        return any(is_within(real, root) for root in self._roots)

    def _open(self, path: str, flags: int = 0) -> int:
        """Open a file, and check again that it is inside: a link may have changed in between."""
        try:
            fd = os.open(self._resolve(path), os.O_RDONLY | os.O_NONBLOCK | flags)
        except FileNotFoundError as error:
            raise NotFoundError("file", path[:200]) from error
        except OSError as error:
            raise InvalidInputError("path", f"cannot be opened: {error.strerror}") from error
        opened = f"/proc/self/fd/{fd}"
        if os.path.exists(opened) and not self._is_inside(os.path.realpath(opened)):
            os.close(fd)
            raise OutsideError(path)
        return fd

    # --- directories ---

    def _list_directory(self, path: str) -> list[FileNode]:
        fd = self._open(path or ".", os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                found = {
                    entry.name: _is_directory(entry) for entry in entries if entry.name not in HIDDEN_NAMES
                }
        finally:
            os.close(fd)
        if len(found) > MAX_ENTRIES:
            raise InvalidInputError("path", f"more than {MAX_ENTRIES} entries")
        absolute = os.path.normpath(os.path.join(self._directory, path))
        ignored = self._list_ignored(absolute, list(found))
        nodes = [
            self._to_node(
                os.path.join(absolute, name), "directory" if is_directory else "file", name in ignored
            )
            for name, is_directory in found.items()
            if is_encodable(name)
        ]
        return sorted(nodes, key=lambda node: (node.type != "directory", node.name))

    def _to_node(self, absolute: str, kind: Kind, ignored: bool) -> FileNode:
        return FileNode(
            name=os.path.basename(absolute),
            path=os.path.relpath(absolute, self._directory),
            absolute=absolute,
            type=kind,
            ignored=ignored,
        )

    def _list_ignored(self, directory: str, names: list[str]) -> set[str]:
        if self._worktree is None:
            return set()
        found: set[str] = set()
        try:
            for start in range(0, len(names), IGNORE_BATCH):
                found |= self._git.list_ignored(directory, names[start : start + IGNORE_BATCH])
        except GitError:
            pass  # git cannot read the repository: treat nothing as ignored
        return found

    # --- files ---

    def _read_file(self, path: str) -> FileContent:
        fd = self._open(path)
        try:
            raw = _read_descriptor(fd, path)
        finally:
            os.close(fd)
        mime = mimetypes.guess_type(path)[0]
        text = None if (mime or "").startswith(("image/", "audio/", "video/")) else _to_text(raw)
        if text is None:
            content = base64.b64encode(raw).decode()
            kind = mime or "application/octet-stream"
            return FileContent(type="text", content=content, encoding="base64", mime_type=kind)
        before = self._find_committed(path)
        if before is None or before == text:
            return FileContent(type="text", content=text)
        patch = to_patch(path, before, text)
        return FileContent(type="text", content=text, patch=patch, diff=to_diff(patch) if patch else None)

    def _find_committed(self, path: str) -> str | None:
        if self._worktree is None:
            return None
        name = os.path.relpath(self._resolve(path), os.path.realpath(self._worktree))
        try:
            return self._git.find_committed(self._worktree, name)
        except GitError:
            return None

    # --- changes ---

    def _list_changed(self) -> list[FileChange]:
        if self._worktree is None:
            return []
        try:
            changes = self._git.list_changes(self._worktree)
        except GitError:
            changes = []  # nothing was committed yet
        try:
            untracked = self._git.list_untracked(self._worktree)
        except GitError:
            untracked = []
        known = [
            FileChange(path=path, added=added, removed=removed, status=self._get_status(path))
            for path, added, removed in changes
            if is_encodable(path)
        ]
        new = [
            FileChange(path=path, added=self._count_lines(path), removed=0, status="added")
            for path in untracked[:MAX_ENTRIES]
            if is_encodable(path)
        ]
        return [*known, *new]

    def _get_status(self, path: str) -> Literal["modified", "deleted"]:
        return "modified" if os.path.lexists(os.path.join(self._worktree or "", path)) else "deleted"

    def _count_lines(self, path: str) -> int:
        try:
            fd = self._open(os.path.join(self._worktree or "", path))
        except (NotFoundError, InvalidInputError, OutsideError):
            return 0
        try:
            raw = _read_descriptor(fd, path)
        except (NotFoundError, InvalidInputError):
            return 0
        finally:
            os.close(fd)
        return raw.count(b"\n") + (not raw.endswith(b"\n") and bool(raw))


def _read_descriptor(fd: int, path: str) -> bytes:
    found = os.fstat(fd)
    if stat.S_ISDIR(found.st_mode):
        raise InvalidInputError("path", f"{path[:200]!r} is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInputError("path", f"{path[:200]!r} is not a plain file")
    if found.st_size > MAX_FILE_BYTES:
        raise InvalidInputError("path", f"larger than {MAX_FILE_BYTES >> 20} MB")
    pieces: list[bytes] = []
    left = MAX_FILE_BYTES + 1
    try:
        while left > 0 and (piece := os.read(fd, min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
    except OSError as error:
        raise InvalidInputError("path", f"cannot be read: {os.strerror(error.errno or errno.EIO)}") from error
    return b"".join(pieces)


def _to_text(raw: bytes) -> str | None:
    if b"\0" in raw:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def to_patch(path: str, before: str, after: str) -> FilePatch | None:
    """Return the difference in hunks, or None if comparing the files would take too long."""
    old, new = LINE.findall(before), LINE.findall(after)
    if len(old) * len(new) > MAX_COMPARISONS:
        return None
    groups = SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT_LINES)
    return FilePatch(
        old_file_name=path, new_file_name=path, hunks=tuple(_to_hunk(group, old, new) for group in groups)
    )


def _to_hunk(group: list[tuple[str, int, int, int, int]], old: list[str], new: list[str]) -> Hunk:
    lines: list[str] = []
    for tag, a, b, c, d in group:
        if tag == "equal":
            lines += [" " + line.rstrip("\r\n") for line in old[a:b]]
            continue
        lines += ["-" + line.rstrip("\r\n") for line in old[a:b]]
        lines += ["+" + line.rstrip("\r\n") for line in new[c:d]]
    (_, a, _, c, _), (_, _, b, _, d) = group[0], group[-1]
    return Hunk(
        old_start=a + (b > a), old_lines=b - a, new_start=c + (d > c), new_lines=d - c, lines=tuple(lines)
    )


def to_diff(patch: FilePatch) -> str:
    head = [f"--- {patch.old_file_name}", f"+++ {patch.new_file_name}"]
    body = [
        line
        for hunk in patch.hunks
        for line in (
            f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@",
            *hunk.lines,
        )
    ]
    return "\n".join([*head, *body]) + "\n"


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that points to itself
        return False
