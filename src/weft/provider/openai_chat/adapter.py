"""OpenAI's Chat Completions, and every server that speaks it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Final

import httpx2

from weft.errors import ProviderError
from weft.provider.body import Memory, to_bytes
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.endpoint import Endpoint, Question
from weft.provider.http import stream_chunks
from weft.provider.media import has_files
from weft.provider.normalise import metadata_key
from weft.provider.openai_chat.request import to_body
from weft.provider.openai_chat.stream import OpenAIChatFold

# What a server names that does not take our asking for a count.
USAGE_FIELDS: Final = ("stream_options", "include_usage")
WRONG: Final = frozenset({400, 422})


class OpenAIChat:
    """One model API of this kind. The key goes as a bearer token; servers that want it elsewhere get headers.

    It asks for a count of tokens, unless the option `includeUsage` is false. A server that refuses a request because of that
    is not asked for one again: the failure can be retried, and the next request goes without.
    """

    def __init__(self, client: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._client = client
        self._endpoint = endpoint
        self._memory = Memory()
        self._counts = endpoint.options.get("includeUsage") is not False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        fold, apart = OpenAIChatFold(metadata_key(request.model)), has_files(request.messages)
        answer = stream_chunks(self._client, partial(self._ask, request), fold, apart=apart)
        try:
            async with aclosing(answer) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ProviderError as error:
            if self._counts and error.status in WRONG and any(name in error.body for name in USAGE_FIELDS):
                self._counts = False
                error.retryable, error.wait_ms = True, 0
            raise

    def _ask(self, request: ModelRequest) -> Question:
        endpoint, body = self._endpoint, to_body(request, self._memory.writing)
        if not self._counts:
            body.pop("stream_options", None)
        return endpoint.ask("/chat/completions", to_bytes(body), request.parameters, endpoint.bearer)
