"""Open a file store on a real directory, and list the files in it."""

import os
from pathlib import Path

from weft.host.files import Disk
from weft.store.files.store import FileStore


async def open_file_store(root: Path, disk: Disk | None = None) -> FileStore:
    store = FileStore(str(root), disk=disk)
    await store.prepare(lambda _: None)
    return store


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def list_documents(root: Path) -> set[str]:
    """List the files where OpenCode keeps its documents."""
    return {name for name in files(root) if not name.startswith(".weft/")}


def make_old(path: Path) -> None:
    """Make a file old enough to be cached."""
    os.utime(path, (1, 1))
