"""One editor at a pipe: from its first word until it hangs up."""

import asyncio
from typing import Any, cast

from acp.core import AgentSideConnection

from weft.acp.agent import Front, Setup
from weft.acp.lines import Lines


async def serve_editor(setup: Setup, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """When this returns, however that comes, every run is settled."""
    async with asyncio.TaskGroup() as tasks:
        front = Front(setup, tasks)
        # Resuming, forking and closing sessions are called unstable by the SDK; who is told of them may use them.
        connection = AgentSideConnection(
            cast(Any, front),  # the SDK calls what is there, and names parameters that we pass over
            Lines(reader, writer, setup.note),
            listening=False,
            use_unstable_protocol=True,
        )
        try:
            await connection.listen()
        finally:
            await front.close()
            await connection.close()
