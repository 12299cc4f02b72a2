"""Anthropic's Messages API, and servers that speak as it does."""

from collections.abc import AsyncGenerator
from typing import Final

import httpx2

from weft.provider.body import to_bytes
from weft.provider.chunk import AnyChunk
from weft.provider.claude.fold import AnthropicFold
from weft.provider.claude.request import to_body
from weft.provider.contract import ModelRequest
from weft.provider.http import Endpoint, folded, stream_events

VERSION: Final = "2023-06-01"
BETAS: Final = ("interleaved-thinking-2025-05-14", "fine-grained-tool-streaming-2025-05-14")


class AnthropicMessages:
    """One model API of Anthropic's kind. The key goes into `x-api-key`; a bearer token comes with the headers."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._client = client
        self._endpoint = endpoint

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        endpoint, fold = self._endpoint, AnthropicFold()
        body = to_bytes(to_body(request))
        answer = stream_events(
            self._client, endpoint.at("/messages"), self._headers(request), body, endpoint.deadlines
        )
        return folded(answer, fold)

    def _headers(self, request: ModelRequest) -> dict[str, str]:
        given = {**self._endpoint.headers, **request.parameters.headers}
        named = {name.lower(): value for name, value in given.items()}
        headers = {"anthropic-version": VERSION}
        if self._endpoint.api_key:
            headers["x-api-key"] = self._endpoint.api_key
        more = request.parameters.options.get("betas")
        asked = named.pop("anthropic-beta", "").split(",") + (more if isinstance(more, list) else [])
        betas = dict.fromkeys([*BETAS, *(str(beta).strip() for beta in asked if str(beta).strip())])
        return headers | {"anthropic-beta": ",".join(betas)} | named
