"""OpenAI's Responses API, and servers that imitate it."""

from collections.abc import AsyncGenerator
from functools import partial

from weft.provider.body import ModelMessageCache, to_bytes
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.conversation import ConversationCache, EncodedMessages
from weft.provider.endpoint import HttpRequest, ModelEndpoint
from weft.provider.http import stream_chunks
from weft.provider.http_client import HttpClient
from weft.provider.openai_responses.request import map_tools, to_body
from weft.provider.openai_responses.stream import ResponsesFold


class OpenAIResponses:
    """Provider for the Responses API. The key is sent as a bearer token; configured headers override it."""

    def __init__(self, client: HttpClient, endpoint: ModelEndpoint) -> None:
        self._client = client
        self._endpoint = endpoint
        self._cache = ModelMessageCache()
        self._conversations = ConversationCache[EncodedMessages]()

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        names = {name: tool.name for name, tool in map_tools(request).items()}
        fold, in_thread = ResponsesFold(names), self._conversations.has_files(request.messages)
        return stream_chunks(self._client, partial(self._build_request, request), fold, in_thread=in_thread)

    def _build_request(self, request: ModelRequest) -> HttpRequest:
        endpoint, body = self._endpoint, to_body(request, self._cache.cache_json, self._conversations)
        return endpoint.build_request("/responses", to_bytes(body), request.parameters, endpoint.bearer)
