"""Amazon Bedrock: sign requests to its Converse API and stream the answers."""

import hashlib
import hmac
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from functools import partial
from typing import Final
from urllib.parse import quote, urlsplit

import httpx2
from msgspec.structs import replace

from weft.host.now import now
from weft.provider.bedrock.request import to_body
from weft.provider.bedrock.stream import ConverseFold, ConverseFrameReader
from weft.provider.body import to_bytes
from weft.provider.catalog.access import DEFAULT_REGION, add_region_prefix
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.endpoint import AwsKeys, HttpRequest, ModelEndpoint
from weft.provider.http import stream_chunks
from weft.provider.media import has_files

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE: Final = "bedrock"


def sign_request(url: str, body: bytes, keys: AwsKeys, region: str, at: int) -> dict[str, str]:
    """Return the headers of a signed request. `at` is the time in ms; the server accepts it for a few minutes."""
    moment = datetime.fromtimestamp(at // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    parts = urlsplit(url)
    signed = {"host": _get_host(url), "x-amz-date": moment}
    if keys.token:
        signed["x-amz-security-token"] = keys.token
    names = ";".join(signed)
    canonical = "\n".join(
        [
            "POST",
            # Quoted once more than in the request, as every service except S3 requires.
            quote(parts.path or "/", safe="/-_.~"),
            parts.query,
            *(f"{name}:{value.strip()}" for name, value in signed.items()),
            "",
            names,
            _digest(body),
        ]
    )
    scope = f"{moment[:8]}/{region}/{SERVICE}/aws4_request"
    text = "\n".join([ALGORITHM, moment, scope, _digest(canonical.encode())])
    key = b"AWS4" + keys.secret.encode()
    for step in scope.split("/"):
        key = _hmac(key, step)
    proof = (
        f"{ALGORITHM} Credential={keys.id}/{scope}, SignedHeaders={names}, Signature={_hmac(key, text).hex()}"
    )
    return {**signed, "authorization": proof}


def _get_host(url: str) -> str:
    """Return the host as the client sends it: without the default port."""
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    name = parts.netloc.rpartition("@")[2].lower()
    return name.removesuffix(f":{usual}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


EVENT_STREAM: Final = "application/vnd.amazon.eventstream"


class Bedrock:
    """Provider for Bedrock in one region. A key of its own is sent as a bearer token; without one every request is
    signed.
    """

    def __init__(self, client: httpx2.AsyncClient, endpoint: ModelEndpoint) -> None:
        self._client = client
        self._endpoint = endpoint
        self._region: str = endpoint.options.get("region") or DEFAULT_REGION
        self._signs = endpoint.aws is not None and not endpoint.api_key

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        # The keys are in a file and may be renewed while we run, so each request reads them again.
        in_thread = self._signs or has_files(request.messages)
        return stream_chunks(
            self._client,
            partial(self._build_request, request),
            ConverseFold(),
            reader=ConverseFrameReader(),
            in_thread=in_thread,
        )

    def _build_request(self, request: ModelRequest) -> HttpRequest:
        endpoint, body = self._endpoint, to_bytes(to_body(request))
        own = {"accept": EVENT_STREAM, **endpoint.bearer}
        path = (
            f"/model/{quote(add_region_prefix(request.model.api.id, self._region), safe='')}/converse-stream"
        )
        built = endpoint.build_request(path, body, request.parameters, own)
        if endpoint.aws is None or not self._signs:
            return built
        signed = sign_request(built.url, body, endpoint.aws(), self._region, now())
        return replace(built, headers={**built.headers, **signed})
