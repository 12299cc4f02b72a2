"""Google's Gemini API (`streamGenerateContent`), and servers that imitate it."""

from collections.abc import AsyncGenerator
from functools import partial
from urllib.parse import quote

from weft.provider.body import to_bytes
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.endpoint import HttpRequest, ModelEndpoint
from weft.provider.gemini.request import map_tools, to_body
from weft.provider.gemini.stream import GeminiFold
from weft.provider.http import stream_chunks
from weft.provider.http_client import HttpClient
from weft.provider.media import has_files


class Gemini:
    """Provider for the Gemini API. The key is sent as `x-goog-api-key`; a bearer token comes in the configured headers."""

    def __init__(self, client: HttpClient, endpoint: ModelEndpoint) -> None:
        self._client = client
        self._endpoint = endpoint

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        names = {name: tool.name for name, tool in map_tools(request).items()}
        # Most servers give an answer an id but a call none. Without either, the place in the history identifies a call.
        fold = GeminiFold(names, f"call_{len(request.messages)}")
        in_thread = has_files(request.messages)
        return stream_chunks(self._client, partial(self._build_request, request), fold, in_thread=in_thread)

    def _build_request(self, request: ModelRequest) -> HttpRequest:
        endpoint, body = self._endpoint, to_bytes(to_body(request))
        key = {"x-goog-api-key": endpoint.api_key} if endpoint.api_key else {}
        return endpoint.build_request(_build_path(request.model.api.id), body, request.parameters, key)


def _build_path(id: str) -> str:
    path = id if "/" in id else f"models/{id}"
    return f"/{quote(path)}:streamGenerateContent?alt=sse"
