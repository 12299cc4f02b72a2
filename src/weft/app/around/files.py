"""The project's files for looking at: nothing outside of it by any way, and nothing too large."""

import asyncio
import base64
import errno
import mimetypes
import os
import stat
from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Final, Literal

from weft.app.around.seeking import Seeker, is_text
from weft.errors import GitError, InvalidInputError, NotFoundError, OutsideError
from weft.host.git import Git
from weft.model.around.files import (
    FileChange,
    FileContent,
    FileNode,
    FilePatch,
    Hunk,
    Kind,
    Symbol,
    TextMatch,
)
from weft.model.project import Place

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
