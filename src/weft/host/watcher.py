"""Changes of files below a directory, as the kernel tells of them."""

from collections.abc import AsyncIterator, Callable
from typing import Literal

Change = Literal["add", "change", "unlink"]

# How long changes are gathered before they are told, in milliseconds: long enough for an editor to save in.
GATHER_MS = 200


async def watch_changes(
    directory: str, wanted: Callable[[str], bool], *, recursive: bool
) -> AsyncIterator[list[tuple[Change, str]]]:
    """Yield what was changed, by absolute path and in order of it, as long as somebody asks. Raises `OSError` if the
    directory is gone or the kernel watches no more."""
    # Imported by who watches: nobody else is to wait for it.
    from watchfiles import Change as Kind  # noqa: PLC0415
    from watchfiles import awatch  # noqa: PLC0415

    names: dict[Kind, Change] = {Kind.added: "add", Kind.modified: "change", Kind.deleted: "unlink"}
    watching = awatch(
        directory,
        watch_filter=lambda _, path: wanted(path),
        step=GATHER_MS // 4,
        debounce=GATHER_MS,
        recursive=recursive,
        ignore_permission_denied=True,
    )
    async for changes in watching:
        yield sorted(((names[kind], path) for kind, path in changes), key=lambda each: each[1])
