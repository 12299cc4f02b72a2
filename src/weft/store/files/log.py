"""Logs as files: lines are appended at the end, and trimmed from the beginning."""

import os

from weft.host.files import Disk, hold_lock, make_directory, write_atomic
from weft.store.contract import Key, LogExtender
from weft.store.files.layout import LOG_SUFFIX, Layout
from weft.store.files.tree import list_key_files

TAIL_BYTES = 1 << 20


class LogFiles:
    """The logs of a tree, one file each. Processes append one at a time."""

    def __init__(self, layout: Layout, disk: Disk) -> None:
        self._layout = layout
        self._disk = disk

    def append(self, log: Key, extend: LogExtender) -> None:
        path = self._layout.log(log)
        make_directory(os.path.dirname(path))
        with hold_lock(_lock_path(path)):
            size, last = _find_end(path)
            added = extend(last)
            if added:
                self._disk.extend(path, size, b"".join(line + b"\n" for line in added))
                self._disk.flush(path)

    def read(self, log: Key) -> list[bytes]:
        try:
            with open(self._layout.log(log), "rb") as file:
                return file.read().split(b"\n")[:-1]  # a last line without a newline is still being written
        except FileNotFoundError:
            return []

    def list_keys(self, prefix: Key) -> list[Key]:
        keys = list_key_files(self._layout.logs, (), LOG_SUFFIX)
        return sorted(key for key in keys if key[: len(prefix)] == prefix)

    def trim(self, log: Key, keep: int) -> int:
        path = self._layout.log(log)
        if not os.path.exists(path):
            return 0
        with hold_lock(_lock_path(path)):
            lines = self.read(log)
            removed = max(0, len(lines) - keep)
            if removed:
                write_atomic(
                    path, b"".join(line + b"\n" for line in lines[removed:]), temp=f"{path}~", flush=True
                )
        return removed


def _lock_path(path: str) -> str:
    return f"{path.removesuffix(LOG_SUFFIX)}.lock"


def _find_end(path: str) -> tuple[int, bytes | None]:
    """Return the size of the complete lines of a log, and the last of them, None if there is none."""
    try:
        file = open(path, "rb")  # noqa: SIM115  the `with` below closes it
    except FileNotFoundError:
        return 0, None
    with file:
        size = start = file.seek(0, os.SEEK_END)
        tail = b""
        # The last line lies between the last two newlines.
        while start > 0 and b"\n" not in tail[: max(0, tail.rfind(b"\n"))]:
            start = max(0, start - TAIL_BYTES)
            file.seek(start)
            tail = file.read(size - start)
    end = tail.rfind(b"\n") + 1
    if end == 0:
        return 0, None
    return start + end, tail[: end - 1].rpartition(b"\n")[2]
