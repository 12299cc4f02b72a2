"""OpenAI's Chat Completions, and every server that speaks it."""

from collections.abc import AsyncGenerator
from functools import partial

import httpx2

from weft.provider.body import Memory, to_bytes
from weft.provider.chat.fold import OpenAIChatFold
from weft.provider.chat.request import to_body
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.endpoint import Endpoint, Question
from weft.provider.http import stream_chunks
from weft.provider.media.show import has_files
from weft.provider.normalise import metadata_key


class OpenAIChat:
    """One model API of this kind. The key goes as a bearer token; servers that want it elsewhere get headers."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._client = client
        self._endpoint = endpoint
        self._memory = Memory()

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        fold, apart = OpenAIChatFold(metadata_key(request.model)), has_files(request.messages)
        return stream_chunks(self._client, partial(self._ask, request), fold, apart=apart)

    def _ask(self, request: ModelRequest) -> Question:
        endpoint, body = self._endpoint, to_bytes(to_body(request, self._memory.writing))
        return endpoint.ask("/chat/completions", body, request.parameters, endpoint.bearer)
