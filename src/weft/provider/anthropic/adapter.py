"""Anthropic's Messages API, and servers that speak as it does."""

from collections.abc import AsyncGenerator
from functools import partial
from typing import Final

import httpx2
from msgspec.structs import replace

from weft.provider.anthropic.request import to_body
from weft.provider.anthropic.stream import AnthropicFold
from weft.provider.body import Memory, to_bytes
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.endpoint import Endpoint, Question, lower
from weft.provider.http import stream_chunks
from weft.provider.media import has_files

VERSION: Final = "2023-06-01"
BETAS: Final = ("interleaved-thinking-2025-05-14", "fine-grained-tool-streaming-2025-05-14")


class AnthropicMessages:
    """One model API of Anthropic's kind. The key goes into `x-api-key`; a bearer token comes with the headers."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._client = client
        self._endpoint = endpoint
        self._memory = Memory()

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        apart = has_files(request.messages)
        return stream_chunks(self._client, partial(self._ask, request), AnthropicFold(), apart=apart)

    def _ask(self, request: ModelRequest) -> Question:
        endpoint, body = self._endpoint, to_bytes(to_body(request, self._memory.remembering))
        key = {"x-api-key": endpoint.api_key} if endpoint.api_key else {}
        own = {"anthropic-version": VERSION, **key}
        question = endpoint.ask("/messages", body, request.parameters, own)
        return replace(question, headers={**question.headers, "anthropic-beta": self._betas(request)})

    def _betas(self, request: ModelRequest) -> str:
        given = lower(self._endpoint.headers) | lower(request.parameters.headers)
        more = request.parameters.options.get("betas")
        asked = given.get("anthropic-beta", "").split(",") + (more if isinstance(more, list) else [])
        return ",".join(dict.fromkeys([*BETAS, *(str(beta).strip() for beta in asked if str(beta).strip())]))
