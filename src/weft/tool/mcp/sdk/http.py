"""The HTTP client for remote servers: their headers, patience, and an end to what one answer may hold."""

from collections.abc import AsyncIterator
from typing import Final

import httpx2

from weft.tool.mcp.entry import RemoteEntry

LONGEST_ANSWER: Final = 32 << 20
# A stream of events may be silent for as long as nothing happens; every request has a deadline of its own above this.
READ_SECONDS: Final = 3600.0


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = LONGEST_ANSWER
        async for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise httpx2.StreamError(f"the answer is longer than {LONGEST_ANSWER} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _bound(response: httpx2.Response) -> None:
    """A stream of events is bounded event by event, and goes on; any other answer is one value, and has to end."""
    is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
    if not is_stream and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream)


def open_client(entry: RemoteEntry, auth: httpx2.Auth | None) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        headers=dict(entry.headers),
        timeout=httpx2.Timeout(entry.connect, read=READ_SECONDS),
        auth=auth,
        event_hooks={"response": [_bound]},
    )
