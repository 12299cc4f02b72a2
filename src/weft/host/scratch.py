"""A file for as long as somebody needs it."""

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from weft.host.undivided import undivided


@asynccontextmanager
async def open_scratch(prefix: str, content: bytes) -> AsyncIterator[str]:
    """The path of a file for the owner's eyes alone. At the end it is gone, whatever happened."""
    # Named before it is written: whoever is cancelled meanwhile knows what to take away.
    path = os.path.join(tempfile.gettempdir(), f"{prefix}{secrets.token_hex(8)}")
    try:
        await undivided(asyncio.to_thread(_write, path, content))
        yield path
    finally:
        with suppress(FileNotFoundError):  # it could not be written, which has been raised
            os.unlink(path)


def _write(path: str, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
