"""Tidy up files that were changed, with the formatters that are there for them."""

import asyncio
from typing import Final

from weft.host.process import Command, run
from weft.tool.ground import Ground
from weft.tool.tidy.known import Formatter, commands_for, is_used

SECONDS: Final = 20.0


class Tidy:
    """Runs the formatters for a file, one after the other. One that fails or hangs costs its time, and nothing else."""

    def __init__(
        self, formatters: tuple[Formatter, ...], ground: Ground, *, seconds: float = SECONDS
    ) -> None:
        self._formatters = formatters
        self._ground = ground
        self._seconds = seconds

    def list_formatters(self) -> list[tuple[str, tuple[str, ...], bool]]:
        """Each by name, with its endings, and whether it is used here. Looks at the disk."""
        return [(each.name, each.endings, is_used(each, self._ground)) for each in self._formatters]

    async def __call__(self, path: str) -> None:
        if not path.lower().endswith(tuple(end for each in self._formatters for end in each.endings)):
            return
        found = await asyncio.to_thread(lambda: list(commands_for(path, self._formatters, self._ground)))
        for formatter, argv in found:
            command = Command(
                argv=self._ground.sandbox.around(argv),
                directory=self._ground.directory,
                environment={**self._ground.environment, **formatter.environment},
                timeout=self._seconds,
            )
            try:
                await run(command, _unheard)
            except OSError:
                continue  # not there after all


async def _unheard(piece: bytes) -> None:
    del piece
