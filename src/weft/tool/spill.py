"""Store the whole output of tools in files, for outputs that are too long for the model."""

import asyncio
import os
from contextlib import suppress
from typing import Final

from weft.errors import ToolError
from weft.model.ids import Mint

MAX_OUTPUT_AGE_MS: Final = 7 * 24 * 60 * 60 * 1000


class Spill:
    """A directory of output files, each named by its own id."""

    def __init__(self, directory: str, mint: Mint) -> None:
        self.directory = directory
        self._mint = mint

    def new_path(self) -> str:
        """Return a new path in the directory, which is created for its owner alone."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        return os.path.join(self.directory, self._mint.tool_output())

    async def store(self, text: str) -> str:
        """Store a text and return its path. Raise `ToolError` if it cannot be stored."""

        def write() -> str:
            path = self.new_path()
            with open(path, "x", encoding="utf-8", errors="replace", newline="", opener=open_private) as file:
                file.write(text)
            return path

        try:
            return await asyncio.to_thread(write)
        except OSError as error:
            raise ToolError(f"The output is too long, and could not be saved: {error}") from error

    async def remove_old(self, now: int) -> int:
        """Remove outputs that are older than a week, and return how many. Skip files that cannot be removed."""
        return await asyncio.to_thread(self._remove_old, now - MAX_OUTPUT_AGE_MS)

    def _remove_old(self, cutoff: int) -> int:
        # OpenCode reads the age from the id, which wraps around every 795 days. The modification time does not.
        try:
            entries = list(os.scandir(self.directory))
        except OSError:
            return 0
        removed = 0
        for entry in entries:
            with suppress(OSError):
                if (
                    entry.name.startswith("tool_")
                    and entry.stat(follow_symlinks=False).st_mtime * 1000 < cutoff
                ):
                    os.unlink(entry.path)
                    removed += 1
        return removed


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner can read. For the `opener` argument of `open`."""
    return os.open(path, flags, 0o600)
