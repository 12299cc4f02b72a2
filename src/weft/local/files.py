"""Read and search the project's files for front ends; never outside the project."""

import asyncio
import base64
import errno
import heapq
import json
import mimetypes
import os
import shutil
import stat
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, Final, Literal

from weft.errors import GitError, InvalidInputError, NotFoundError, OutsideError, UnsupportedError
from weft.host.git import HARMLESS, Git
from weft.host.processes import Command, capture, run
from weft.model.project import Place
from weft.model.workspace import (
    FileChange,
    FileContent,
    FileNode,
    FilePatch,
    Hunk,
    Kind,
    Submatch,
    Symbol,
    TextMatch,
    Words,
)

SECONDS: Final = 20.0
LISTED_BYTES: Final = 64 << 20
FRESH_SECONDS: Final = 3.0
LONGEST_LINE: Final = 1 << 20
SHOWN_LINE: Final = 4000
LONGEST_PATTERN: Final = 10_000
BAD_PATTERN: Final = 2


class _EnoughError(Exception):
    """More was found than is wanted."""


class Seeker:
    """Looks below one directory. A list of files is good for a few seconds: people type, and each letter asks."""

    def __init__(self, directory: str, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = environment
        self._listed: tuple[float, list[str]] | None = None
        self._listing = asyncio.Lock()

    # --- text ---

    async def find_text(self, pattern: str, limit: int) -> list[TextMatch]:
        ripgrep = shutil.which("rg", path=self._environment.get("PATH"))
        if ripgrep is None:
            raise UnsupportedError("finding text without ripgrep", hint="install ripgrep (rg)")
        if not pattern or len(pattern) > LONGEST_PATTERN:
            raise InvalidInputError("pattern", "it is empty, or too long")
        options = ("--json", "--hidden", "--no-messages", "--glob=!.git", f"--max-count={limit}")
        hearing, complaint = _Hearing(limit), bytearray()

        async def hear_complaint(piece: bytes) -> None:
            complaint.extend(piece[:LONGEST_PATTERN])

        command = self._command((ripgrep, *options, "--regexp", pattern, "--", "."))
        try:
            ended = await run(command, hearing.hear, hear_complaint)
        except _EnoughError:
            return hearing.found
        except OSError as error:
            raise InvalidInputError("pattern", "it cannot be looked for") from error
        if ended.code == BAD_PATTERN and not hearing.found and complaint.strip():
            raise InvalidInputError("pattern", complaint.decode(errors="replace").strip()[:500])
        return hearing.found

    # --- files ---

    async def find_files(self, query: str, kind: Kind | None, limit: int) -> list[str]:
        async with self._listing:
            names = await self._names()
        return await asyncio.to_thread(best_matches, names, query, kind, limit)

    async def _names(self) -> list[str]:
        now = asyncio.get_running_loop().time()
        if self._listed is None or now - self._listed[0] > FRESH_SECONDS:
            self._listed = now, await self._list()
        return self._listed[1]

    async def _list(self) -> list[str]:
        """By whichever means there is: ripgrep, git, or walking the tree."""
        ripgrep = shutil.which("rg", path=self._environment.get("PATH"))
        for argv in (
            (ripgrep or "rg", "--files", "--hidden", "--no-messages", "--null", "--glob=!.git"),
            ("git", *HARMLESS, "ls-files", "-coz", "--exclude-standard", "--deduplicate"),
        ):
            try:
                said = await capture(self._command(argv), limit=LISTED_BYTES)
            except OSError:
                continue
            if said.output or said.code in (0, 1):
                return [name for name in _split(said.output) if is_text(name)]
        return await asyncio.to_thread(lambda: list(_walk(self._directory)))

    def _command(self, argv: tuple[str, ...]) -> Command:
        return Command(argv=argv, directory=self._directory, environment=self._environment, timeout=SECONDS)


class _Hearing:
    """Takes in what ripgrep says, line by line, until there is enough of it."""

    def __init__(self, limit: int) -> None:
        self.found: list[TextMatch] = []
        self._limit = limit
        self._rest = b""

    async def hear(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b'{"type":"match"'):
                self.found.append(to_match(json.loads(line)["data"]))
            if len(self.found) >= self._limit:
                raise _EnoughError
        if len(self._rest) > LONGEST_LINE:
            self._rest = self._rest[:1]  # a line nobody could read: its match is left out


def to_match(data: dict[str, Any]) -> TextMatch:
    return TextMatch(
        path=Words(text=_words(data["path"]).removeprefix("./")),
        lines=Words(text=_words(data["lines"])[:SHOWN_LINE]),
        line_number=data["line_number"] or 0,
        absolute_offset=data["absolute_offset"],
        submatches=tuple(
            Submatch(
                match=Words(text=_words(each["match"])[:SHOWN_LINE]), start=each["start"], end=each["end"]
            )
            for each in data["submatches"]
        ),
    )


def _words(said: dict[str, str]) -> str:
    """What is not UTF-8 comes in base64."""
    return said["text"] if "text" in said else b64decode(said["bytes"]).decode(errors="replace")


def best_matches(names: Iterable[str], query: str, kind: Kind | None, limit: int) -> list[str]:
    """The likeliest first: who types a few letters means a file's name rather than its directory."""
    files = list(names)
    wanted = [] if kind == "directory" else files
    if kind != "file":
        wanted = [*wanted, *_directories(files)]
    letters = query.strip().lower()
    if not letters:
        # Nothing typed yet: what lies at the top.
        top = [name for name in wanted if "/" not in name.rstrip("/")]
        return sorted(top, key=lambda name: (not name.endswith("/"), name))[:limit]
    likely = (name for name in wanted if _holds(name.lower(), letters))
    return heapq.nsmallest(limit, likely, key=lambda name: _unlikeness(name, letters))


def _holds(path: str, letters: str) -> bool:
    """Whether the letters are in it, in their order. Read once through: a pattern could take for ever."""
    left = iter(path)
    return all(letter in left for letter in letters)


def _unlikeness(name: str, letters: str) -> tuple[int, int, str]:
    path = name.lower()
    last = path.rstrip("/").rpartition("/")[2]
    ways = (
        last == letters,
        last.startswith(letters),
        letters in last,
        path.startswith(letters),
        letters in path,
    )
    return next((place for place, fits in enumerate(ways) if fits), len(ways)), len(path), path


def _directories(names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        above = name.rpartition("/")[0]
        while above and above not in seen:
            seen.add(above)
            yield f"{above}/"
            above = above.rpartition("/")[0]


def _split(raw: bytes) -> list[str]:
    return [os.fsdecode(name).removeprefix("./") for name in raw.split(b"\0") if name]


def is_text(name: str) -> bool:
    """Whether a name can be said in JSON: half a character, as a disk may hold it, cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _walk(directory: str) -> Iterator[str]:
    for parent, directories, names in os.walk(directory):
        directories[:] = [each for each in directories if not each.startswith(".")]
        below = os.path.relpath(parent, directory)
        yield from (name if below == "." else f"{below}/{name}" for name in names if is_text(name))


MOST_BYTES: Final = 8 << 20
MOST_ENTRIES: Final = 10_000
ASKED_AT_ONCE: Final = 500
WORTH_COMPARING: Final = 4_000_000
CONTEXT: Final = 4
UNSEEN: Final = frozenset({".git", ".DS_Store"})


class ProjectFiles:
    """`Files` over a directory and the checkout it lies in. Where there is none, over the directory alone."""

    def __init__(self, place: Place, env: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._directory = place.directory
        self._roots = tuple(
            os.path.realpath(root)
            for root in dict.fromkeys((place.directory, place.worktree))
            if root != os.sep
        )
        self._worktree = place.worktree if place.project.vcs is not None else None
        self._git = Git(env)
        self._seeker = Seeker(place.directory, environment)

    async def list_directory(self, path: str) -> list[FileNode]:
        return await asyncio.to_thread(self._list_directory, path)

    async def read_file(self, path: str) -> FileContent:
        return await asyncio.to_thread(self._read_file, path)

    async def list_changed(self) -> list[FileChange]:
        return await asyncio.to_thread(self._list_changed)

    async def find_text(self, pattern: str, *, limit: int = 10) -> list[TextMatch]:
        return await self._seeker.find_text(pattern, limit)

    async def find_files(self, query: str, *, kind: Kind | None = None, limit: int = 100) -> list[str]:
        return await self._seeker.find_files(query, kind, limit)

    async def find_symbols(self, query: str) -> list[Symbol]:
        del query
        return []  # as in OpenCode, which has the route and asks no language server

    # --- within bounds ---

    def _real(self, path: str) -> str:
        """Where a path leads, by whatever links."""
        try:
            real = os.path.realpath(os.path.join(self._directory, path))
        except ValueError as error:  # a NUL, or half a character
            raise InvalidInputError("path", f"{path[:80]!r} is none") from error
        if not self._is_inside(real):
            raise OutsideError(path)
        return real

    def _is_inside(self, real: str) -> bool:
        return any(os.path.commonpath((real, root)) == root for root in self._roots)

    def _open(self, path: str, flags: int = 0) -> int:
        """Judged once more when it is open: what a name leads to may have changed in between."""
        try:
            fd = os.open(self._real(path), os.O_RDONLY | os.O_NONBLOCK | flags)
        except FileNotFoundError as error:
            raise NotFoundError("file", path[:200]) from error
        except OSError as error:
            raise InvalidInputError("path", f"it cannot be opened: {error.strerror}") from error
        opened = f"/proc/self/fd/{fd}"
        if os.path.exists(opened) and not self._is_inside(os.path.realpath(opened)):
            os.close(fd)
            raise OutsideError(path)
        return fd

    # --- a directory ---

    def _list_directory(self, path: str) -> list[FileNode]:
        fd = self._open(path or ".", os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                found = {entry.name: _is_directory(entry) for entry in entries if entry.name not in UNSEEN}
        finally:
            os.close(fd)
        if len(found) > MOST_ENTRIES:
            raise InvalidInputError("path", f"more than {MOST_ENTRIES} entries are in it")
        absolute = os.path.normpath(os.path.join(self._directory, path))
        ignored = self._ignored(absolute, list(found))
        nodes = [
            self._node(os.path.join(absolute, name), "directory" if is_directory else "file", name in ignored)
            for name, is_directory in found.items()
            if is_text(name)
        ]
        return sorted(nodes, key=lambda node: (node.type != "directory", node.name))

    def _node(self, absolute: str, kind: Kind, ignored: bool) -> FileNode:
        return FileNode(
            name=os.path.basename(absolute),
            path=os.path.relpath(absolute, self._directory),
            absolute=absolute,
            type=kind,
            ignored=ignored,
        )

    def _ignored(self, directory: str, names: list[str]) -> set[str]:
        if self._worktree is None:
            return set()
        found: set[str] = set()
        try:
            for start in range(0, len(names), ASKED_AT_ONCE):
                found |= self._git.list_ignored(directory, names[start : start + ASKED_AT_ONCE])
        except GitError:
            pass  # a repository that git does not answer for: nothing is known to be ignored
        return found

    # --- a file ---

    def _read_file(self, path: str) -> FileContent:
        fd = self._open(path)
        try:
            raw = _read(fd, path)
        finally:
            os.close(fd)
        mime = mimetypes.guess_type(path)[0]
        text = None if (mime or "").startswith(("image/", "audio/", "video/")) else _to_text(raw)
        if text is None:
            content = base64.b64encode(raw).decode()
            kind = mime or "application/octet-stream"
            return FileContent(type="text", content=content, encoding="base64", mime_type=kind)
        before = self._committed(path)
        if before is None or before == text:
            return FileContent(type="text", content=text)
        patch = to_patch(path, before, text)
        return FileContent(type="text", content=text, patch=patch, diff=to_diff(patch) if patch else None)

    def _committed(self, path: str) -> str | None:
        if self._worktree is None:
            return None
        name = os.path.relpath(self._real(path), os.path.realpath(self._worktree))
        try:
            return self._git.find_committed(self._worktree, name)
        except GitError:
            return None

    # --- what changed ---

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
            FileChange(path=path, added=came, removed=went, status=self._status(path))
            for path, came, went in changes
            if is_text(path)
        ]
        new = [
            FileChange(path=path, added=self._count_lines(path), removed=0, status="added")
            for path in untracked[:MOST_ENTRIES]
            if is_text(path)
        ]
        return [*known, *new]

    def _status(self, path: str) -> Literal["modified", "deleted"]:
        return "modified" if os.path.lexists(os.path.join(self._worktree or "", path)) else "deleted"

    def _count_lines(self, path: str) -> int:
        try:
            fd = self._open(os.path.join(self._worktree or "", path))
        except (NotFoundError, InvalidInputError, OutsideError):
            return 0
        try:
            raw = _read(fd, path)
        except (NotFoundError, InvalidInputError):
            return 0
        finally:
            os.close(fd)
        return raw.count(b"\n") + (not raw.endswith(b"\n") and bool(raw))


def _read(fd: int, path: str) -> bytes:
    found = os.fstat(fd)
    if stat.S_ISDIR(found.st_mode):
        raise InvalidInputError("path", f"{path[:200]!r} is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInputError("path", f"{path[:200]!r} is not a plain file")
    if found.st_size > MOST_BYTES:
        raise InvalidInputError("path", f"it is larger than {MOST_BYTES >> 20} MB")
    pieces: list[bytes] = []
    left = MOST_BYTES + 1
    try:
        while left > 0 and (piece := os.read(fd, min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
    except OSError as error:
        raise InvalidInputError(
            "path", f"it cannot be read: {os.strerror(error.errno or errno.EIO)}"
        ) from error
    return b"".join(pieces)


def _to_text(raw: bytes) -> str | None:
    if b"\0" in raw:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def to_patch(path: str, before: str, after: str) -> FilePatch | None:
    """The difference in hunks; None if finding it would take too long."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    if len(old) * len(new) > WORTH_COMPARING:
        return None
    groups = SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT)
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
    except OSError:  # a link that leads to itself: it is there, and leads nowhere
        return False
