"""Google's Gemini API (`streamGenerateContent`), and servers that speak as it does."""

from collections.abc import AsyncGenerator
from functools import partial
from urllib.parse import quote

import httpx2

from weft.provider.body import to_bytes
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.endpoint import Endpoint, Question
from weft.provider.gemini.request import named_tools, to_body
from weft.provider.gemini.stream import GeminiFold
from weft.provider.http import stream_chunks
from weft.provider.media import has_files


class Gemini:
    """One model API of Google's kind. The key goes into `x-goog-api-key`; a bearer token comes with the headers."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._client = client
        self._endpoint = endpoint

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        names = {name: tool.name for name, tool in named_tools(request).items()}
        # Most servers give an answer an id and a call none; where there is neither, the place in the history tells.
        fold = GeminiFold(names, f"call_{len(request.messages)}")
        apart = has_files(request.messages)
        return stream_chunks(self._client, partial(self._ask, request), fold, apart=apart)

    def _ask(self, request: ModelRequest) -> Question:
        endpoint, body = self._endpoint, to_bytes(to_body(request))
        key = {"x-goog-api-key": endpoint.api_key} if endpoint.api_key else {}
        return endpoint.ask(_path(request.model.api.id), body, request.parameters, key)


def _path(id: str) -> str:
    path = id if "/" in id else f"models/{id}"
    return f"/{quote(path)}:streamGenerateContent?alt=sse"
