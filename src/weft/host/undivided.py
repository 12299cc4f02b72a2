"""Work that is done to the end, also when whoever asked for it is cancelled meanwhile."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def undivided(work: Coroutine[Any, Any, T]) -> T:
    """Do it to the end, and only then be cancelled."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.exception()  # looked at: the cancelled one has nobody left to tell
        raise cancelled
    return task.result()
