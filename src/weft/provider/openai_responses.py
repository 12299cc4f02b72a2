"""OpenAI's Responses API, and servers that speak as it does."""

from collections.abc import AsyncGenerator

import httpx2

from weft.provider.body import to_bytes
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.http import Endpoint, folded, stream_events
from weft.provider.responses.fold import ResponsesFold
from weft.provider.responses.request import named_tools, to_body


class OpenAIResponses:
    """One model API of OpenAI's newer kind. The key goes as a bearer token; headers of one's own come over it."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._client = client
        self._endpoint = endpoint

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        names = {name: tool.name for name, tool in named_tools(request).items()}
        endpoint, fold = self._endpoint, ResponsesFold(names)
        body = to_bytes(to_body(request))
        answer = stream_events(
            self._client, endpoint.at("/responses"), self._headers(request), body, endpoint.deadlines
        )
        return folded(answer, fold)

    def _headers(self, request: ModelRequest) -> dict[str, str]:
        given = {**self._endpoint.headers, **request.parameters.headers}
        key = {"authorization": f"Bearer {self._endpoint.api_key}"} if self._endpoint.api_key else {}
        return key | {name.lower(): value for name, value in given.items()}
