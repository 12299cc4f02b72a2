"""Tasks with a parent, where what goes wrong is not wrapped in a group."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def open_tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group that raises what was raised: the body's own error, else that of the first task that failed."""
    raised: Exception | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            try:
                yield tasks
            except Exception as error:
                raised = error
                raise
    except BaseExceptionGroup as group:
        raise raised or group.exceptions[0] from None
