"""Anthropic's Messages API, and servers that imitate it."""

from collections.abc import AsyncGenerator
from functools import partial
from typing import Final

from msgspec.structs import replace

from weft.provider.anthropic.request import MergedMessages, to_body
from weft.provider.anthropic.stream import AnthropicFold
from weft.provider.body import ModelMessageCache, to_bytes
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.conversation import ConversationCache
from weft.provider.endpoint import HttpRequest, ModelEndpoint, lower_names
from weft.provider.http import stream_chunks
from weft.provider.http_client import HttpClient

API_VERSION: Final = "2023-06-01"
DEFAULT_BETAS: Final = ("interleaved-thinking-2025-05-14", "fine-grained-tool-streaming-2025-05-14")


class AnthropicMessages:
    """Provider for the Messages API. The key is sent as `x-api-key`; a bearer token comes in the configured headers."""

    def __init__(self, client: HttpClient, endpoint: ModelEndpoint) -> None:
        self._client = client
        self._endpoint = endpoint
        self._cache = ModelMessageCache()
        self._conversations = ConversationCache[MergedMessages]()

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        in_thread = self._conversations.has_files(request.messages)
        return stream_chunks(
            self._client, partial(self._build_request, request), AnthropicFold(), in_thread=in_thread
        )

    def _build_request(self, request: ModelRequest) -> HttpRequest:
        endpoint, body = self._endpoint, to_body(request, self._cache.cache_values, self._conversations)
        key = {"x-api-key": endpoint.api_key} if endpoint.api_key else {}
        api_headers = {"anthropic-version": API_VERSION, **key}
        http_request = endpoint.build_request("/messages", to_bytes(body), request.parameters, api_headers)
        return replace(
            http_request, headers={**http_request.headers, "anthropic-beta": self._make_beta_header(request)}
        )

    def _make_beta_header(self, request: ModelRequest) -> str:
        headers = lower_names(self._endpoint.headers) | lower_names(request.parameters.headers)
        extra = request.parameters.options.get("betas")
        betas = headers.get("anthropic-beta", "").split(",") + (extra if isinstance(extra, list) else [])
        return ",".join(
            dict.fromkeys([*DEFAULT_BETAS, *(str(beta).strip() for beta in betas if str(beta).strip())])
        )
