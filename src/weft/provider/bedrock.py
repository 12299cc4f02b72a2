"""Amazon Bedrock: its Converse API, which speaks for models of many makers."""

from collections.abc import AsyncGenerator
from functools import partial
from typing import Final
from urllib.parse import quote

import httpx2
from msgspec.structs import replace

from weft.host.now import now
from weft.provider.body import to_bytes
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.converse.fold import ConverseFold
from weft.provider.converse.frames import FrameReader
from weft.provider.converse.region import DEFAULT_REGION, placed_id
from weft.provider.converse.request import to_body
from weft.provider.converse.sign import sign
from weft.provider.endpoint import Endpoint, Question
from weft.provider.http import stream_chunks
from weft.provider.media.show import has_files

STREAM: Final = "application/vnd.amazon.eventstream"


class Bedrock:
    """Bedrock in one region. With a key of its own it is sent as a bearer token; else every request is signed."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._client = client
        self._endpoint = endpoint
        self._region: str = endpoint.options.get("region") or DEFAULT_REGION
        self._signs = endpoint.aws is not None and not endpoint.api_key

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        # The keys lie in a file, and may be renewed there while we run: each request asks for them anew.
        apart = self._signs or has_files(request.messages)
        return stream_chunks(
            self._client, partial(self._ask, request), ConverseFold(), reader=FrameReader(), apart=apart
        )

    def _ask(self, request: ModelRequest) -> Question:
        endpoint, body = self._endpoint, to_bytes(to_body(request))
        own = {"accept": STREAM, **endpoint.bearer}
        path = f"/model/{quote(placed_id(request.model.api.id, self._region), safe='')}/converse-stream"
        question = endpoint.ask(path, body, request.parameters, own)
        if endpoint.aws is None or not self._signs:
            return question
        signed = sign(question.url, body, endpoint.aws(), self._region, now())
        return replace(question, headers={**question.headers, **signed})
