"""OpenAI's Chat Completions, and every server that speaks it."""

from collections.abc import AsyncGenerator, Mapping

import httpx2

from weft.provider.body import to_bytes
from weft.provider.chat.fold import OpenAIChatFold
from weft.provider.chat.request import to_body
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.http import Endpoint, folded, stream_events
from weft.provider.normalise import metadata_key


class OpenAIChat:
    """One model API of this kind. The key goes as a bearer token; servers that want it elsewhere get headers."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._client = client
        self._endpoint = endpoint

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        endpoint, fold = self._endpoint, OpenAIChatFold(metadata_key(request.model))
        headers = {"authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
        headers |= _lower(endpoint.headers) | _lower(request.parameters.headers)
        answer = stream_events(
            self._client,
            endpoint.at("/chat/completions"),
            headers,
            to_bytes(to_body(request)),
            endpoint.deadlines,
        )
        return folded(answer, fold)


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
