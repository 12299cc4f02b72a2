"""The guard: a file is overwritten only by who has seen it as it is."""

import asyncio
from datetime import UTC, datetime
from weakref import WeakValueDictionary

from weft.errors import ToolError
from weft.tool.files import Stamp


class Guard:
    """What a session has seen of files, by real path. One per session; `off` lets everything pass."""

    def __init__(self, *, off: bool = False) -> None:
        self._off = off
        self._seen: dict[str, Stamp] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def saw(self, path: str, stamp: Stamp) -> None:
        self._seen[path] = stamp

    def check(self, path: str, found: Stamp) -> None:
        """Raises `ToolError` unless the file is just as it was when last seen."""
        seen = self._seen.get(path)
        if self._off or seen == found:
            return
        if seen is None:
            raise ToolError(f"You must read file {path} before overwriting it. Use the Read tool first")
        if found.unsaved:
            raise ToolError(
                f"File {path} has been changed in the editor since it was last read, and is not saved. "
                "Read it again before changing it."
            )
        # OpenCode asks whether the file is newer than the reading of it. An older one (checked out again, moved
        # into place) is another file just as well.
        raise ToolError(
            f"File {path} has changed since it was last read (it was of {_time(seen)}, it is of {_time(found)}). "
            "Read it again before changing it."
        )

    def lock(self, path: str) -> asyncio.Lock:
        """Held while a file is changed, so that two calls in one step do not undo one another."""
        lock = self._locks.get(path)
        if lock is None:
            self._locks[path] = lock = asyncio.Lock()
        return lock


def _time(stamp: Stamp) -> str:
    return datetime.fromtimestamp(stamp.modified / 1e9, UTC).isoformat(timespec="milliseconds")
