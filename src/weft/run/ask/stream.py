"""What a provider says, brought to the queue where all that happens in a step comes together."""

import asyncio
from contextlib import aclosing

from msgspec import Struct

from weft.errors import ProviderError
from weft.provider.contract import ModelRequest, Provider
from weft.run.processor import Feed


class StreamEnded(Struct, frozen=True, kw_only=True):
    """The provider has no more to say; `error` when it broke off."""

    error: ProviderError | None = None


Queue = asyncio.Queue[Feed | StreamEnded]


async def pump(provider: Provider, request: ModelRequest, queue: Queue) -> None:
    """Ask, and bring what the provider says to the queue; leaving it closes the connection."""
    error = None
    try:
        async with aclosing(provider.stream(request)) as chunks:
            async for chunk in chunks:
                queue.put_nowait(chunk)
    except ProviderError as broke:
        error = broke
    queue.put_nowait(StreamEnded(error=error))
