"""The spill: where a tool's output goes whole when it is too long for the model."""

import asyncio
import os
from contextlib import suppress
from typing import Final

from weft.errors import ToolError
from weft.model.ids import Mint

KEPT_MS: Final = 7 * 24 * 60 * 60 * 1000


class Spill:
    """A directory of outputs, each under an id of its own."""

    def __init__(self, directory: str, mint: Mint) -> None:
        self.directory = directory
        self._mint = mint

    def new_path(self) -> str:
        """A path that nobody has, in a directory that is there and that only its owner can read."""
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        return os.path.join(self.directory, self._mint.tool_output())

    async def keep(self, text: str) -> str:
        """Store a text, and give its path."""

        def write() -> str:
            path = self.new_path()
            with open(path, "x", encoding="utf-8", errors="replace", newline="", opener=for_owner) as file:
                file.write(text)
            return path

        try:
            return await asyncio.to_thread(write)
        except OSError as error:
            raise ToolError(f"The output is too long, and could not be saved: {error}") from error

    async def sweep(self, now: int) -> int:
        """Remove what has lain there for a week, and give how many that was. What cannot be removed stays."""
        return await asyncio.to_thread(self._sweep, now - KEPT_MS)

    def _sweep(self, before: int) -> int:
        # OpenCode reads the age out of the id, which wraps every 795 days; the file itself knows.
        try:
            found = list(os.scandir(self.directory))
        except OSError:
            return 0
        removed = 0
        for entry in found:
            with suppress(OSError):
                if (
                    entry.name.startswith("tool_")
                    and entry.stat(follow_symlinks=False).st_mtime * 1000 < before
                ):
                    os.unlink(entry.path)
                    removed += 1
        return removed


def for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
