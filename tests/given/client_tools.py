"""An engine that clients offer tools to: in process, and served over HTTP."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from given.engine import Engine, open_engine
from given.served_engine import always_open, open_server
from weft.host.clock import SystemClock
from weft.local.api import LocalApi
from weft.provider.scripted import AnyMove


@asynccontextmanager
async def open_local(*script: Sequence[AnyMove], **more: Any) -> AsyncIterator[LocalApi]:
    """Open an engine in this process, by default with the clock of the system."""
    async with open_engine(*script, **{"clock": SystemClock(), **more}) as engine:
        yield engine.api


@asynccontextmanager
async def open_served_engine(*script: Sequence[AnyMove], **more: Any) -> AsyncIterator[tuple[str, Engine]]:
    """Serve an engine over HTTP. Return the address of the server and the engine."""
    async with (
        open_engine(*script, **{"clock": SystemClock(), **more}) as engine,
        open_server(always_open(engine)) as url,
    ):
        yield url, engine
