"""OpenAI's Responses API, and servers that speak as it does."""

from collections.abc import AsyncGenerator
from functools import partial

import httpx2

from weft.provider.body import Memory, to_bytes
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.endpoint import Endpoint, Question
from weft.provider.http import stream_chunks
from weft.provider.media import has_files
from weft.provider.openai_responses.request import named_tools, to_body
from weft.provider.openai_responses.stream import ResponsesFold


class OpenAIResponses:
    """One model API of OpenAI's newer kind. The key goes as a bearer token; headers of one's own come over it."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._client = client
        self._endpoint = endpoint
        self._memory = Memory()

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        names = {name: tool.name for name, tool in named_tools(request).items()}
        fold, apart = ResponsesFold(names), has_files(request.messages)
        return stream_chunks(self._client, partial(self._ask, request), fold, apart=apart)

    def _ask(self, request: ModelRequest) -> Question:
        endpoint, body = self._endpoint, to_bytes(to_body(request, self._memory.writing))
        return endpoint.ask("/responses", body, request.parameters, endpoint.bearer)
