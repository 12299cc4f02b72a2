"""Watch a directory for changes of files."""

from collections.abc import AsyncIterator, Callable
from typing import Literal

FileChangeKind = Literal["add", "change", "unlink"]

# Changes are collected for this many milliseconds: long enough for an editor to save.
DEBOUNCE_MS = 200


async def watch_changes(
    directory: str, is_wanted: Callable[[str], bool], *, recursive: bool
) -> AsyncIterator[list[tuple[FileChangeKind, str]]]:
    """Yield changed files by absolute path, in order of path. Raise `OSError` if the directory is gone or cannot be
    watched."""
    from watchfiles import Change as Kind  # noqa: PLC0415  slow to import, and needed only while watching
    from watchfiles import awatch  # noqa: PLC0415  slow to import, and needed only while watching

    names: dict[Kind, FileChangeKind] = {Kind.added: "add", Kind.modified: "change", Kind.deleted: "unlink"}
    watching = awatch(
        directory,
        watch_filter=lambda _, path: is_wanted(path),
        step=DEBOUNCE_MS // 4,
        debounce=DEBOUNCE_MS,
        recursive=recursive,
        ignore_permission_denied=True,
    )
    async for changes in watching:
        yield sorted(((names[kind], path) for kind, path in changes), key=lambda change: change[1])
