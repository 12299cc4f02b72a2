"""One HTTP request to a model's API, its answer as events, every wait with an end. Nothing is retried here."""

from collections.abc import AsyncGenerator, Mapping
from typing import Final

import httpx2
from msgspec import Struct

from weft.provider.sse import SseEvent, SseReader

OK: Final = 200
NOT_OK: Final = 300


class Deadlines(Struct, frozen=True, kw_only=True):
    """How long to wait, in seconds: for a connection, for the answer to begin, for it to go on."""

    connect: float = 30
    first_byte: float = 60
    between: float = 120


async def stream_events(
    client: httpx2.AsyncClient,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    deadlines: Deadlines,
) -> AsyncGenerator[SseEvent]:
    """POST the body and yield the events of the answer. Closing this closes the connection at once.

    Raises `ProviderError`: what the server said when it refused, `protocol` when it does not answer in events,
    `timeout` and `network` when nothing comes.
    """
    with _told_as_ours(url):
        request = _request(client, url, headers, body, deadlines)
        async with _open_answer(client, request, deadlines) as (response, chunks, first):
            await _refuse_bad(response, chunks, first)
            reader, told = SseReader(), False
            for event in reader.feed(first):
                told = True
                yield event
            async for chunk in chunks:
                for event in reader.feed(chunk):
                    told = True
                    yield event
            for event in reader.end():
                told = True
                yield event
            if not told:
                raise _empty(response)
