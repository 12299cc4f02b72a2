"""OpenAI's Chat Completions API, and every server that imitates it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Final

from weft.errors import ProviderError
from weft.provider.body import ModelMessageCache, to_bytes
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.conversation import ConversationCache, EncodedMessages
from weft.provider.endpoint import HttpRequest, ModelEndpoint
from weft.provider.http import stream_chunks
from weft.provider.http_client import HttpClient
from weft.provider.normalise import get_metadata_key
from weft.provider.openai_chat.request import to_body
from weft.provider.openai_chat.stream import OpenAIChatFold

# Names in the error of a server that does not know `stream_options`.
USAGE_FIELDS: Final = ("stream_options", "include_usage")
BAD_REQUEST_STATUSES: Final = frozenset({400, 422})


class OpenAIChat:
    """Provider for Chat Completions. The key is sent as a bearer token; servers that expect it elsewhere get headers.

    It asks for token counts unless the option `includeUsage` is false. If a server refuses a request because of that,
    the error is retryable, and later requests are sent without it.
    """

    def __init__(self, client: HttpClient, endpoint: ModelEndpoint) -> None:
        self._client = client
        self._endpoint = endpoint
        self._cache = ModelMessageCache()
        self._conversations = ConversationCache[EncodedMessages]()
        self._wants_usage = endpoint.options.get("includeUsage") is not False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        fold, in_thread = (
            OpenAIChatFold(get_metadata_key(request.model)),
            self._conversations.has_files(request.messages),
        )
        answer = stream_chunks(self._client, partial(self._build_request, request), fold, in_thread=in_thread)
        try:
            async with aclosing(answer) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ProviderError as error:
            if (
                self._wants_usage
                and error.status in BAD_REQUEST_STATUSES
                and any(name in error.body for name in USAGE_FIELDS)
            ):
                self._wants_usage = False
                error.retryable, error.wait_ms = True, 0
            raise

    def _build_request(self, request: ModelRequest) -> HttpRequest:
        endpoint, body = self._endpoint, to_body(request, self._cache.cache_json, self._conversations)
        if not self._wants_usage:
            body.pop("stream_options", None)
        return endpoint.build_request(
            "/chat/completions", to_bytes(body), request.parameters, endpoint.bearer
        )
