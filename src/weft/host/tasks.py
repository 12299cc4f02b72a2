"""Tasks with a parent, where the parent's own error is not wrapped in a group."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def open_tasks() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group for a context that strangers work in: what they raise reaches them as they raised it.

    Whoever opens it ends its tasks before leaving; what a task itself raises still comes as a group.
    """
    raised: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        try:
            yield tasks
        except Exception as error:  # noqa: BLE001  raised again below, outside the group
            raised = error
    if raised is not None:
        raise raised
