"""Google's Gemini API (`streamGenerateContent`), and servers that speak as it does."""

from collections.abc import AsyncGenerator
from urllib.parse import quote

import httpx2

from weft.provider.body import to_bytes
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.google.fold import GeminiFold
from weft.provider.google.request import named_tools, to_body
from weft.provider.http import Endpoint, folded, stream_events


class Gemini:
    """One model API of Google's kind. The key goes into `x-goog-api-key`; a bearer token comes with the headers."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._client = client
        self._endpoint = endpoint

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        names = {name: tool.name for name, tool in named_tools(request).items()}
        # Most servers give an answer an id and a call none; where there is neither, the place in the history tells.
        endpoint, fold = self._endpoint, GeminiFold(names, f"call_{len(request.messages)}")
        body = to_bytes(to_body(request))
        answer = stream_events(
            self._client, self._url(request), self._headers(request), body, endpoint.deadlines
        )
        return folded(answer, fold)

    def _url(self, request: ModelRequest) -> str:
        id = request.model.api.id
        path = id if "/" in id else f"models/{id}"
        return self._endpoint.at(f"/{quote(path)}:streamGenerateContent?alt=sse")

    def _headers(self, request: ModelRequest) -> dict[str, str]:
        given = {**self._endpoint.headers, **request.parameters.headers}
        key = {"x-goog-api-key": self._endpoint.api_key} if self._endpoint.api_key else {}
        return key | {name.lower(): value for name, value in given.items()}
