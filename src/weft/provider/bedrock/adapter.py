"""Amazon Bedrock: sign requests to its Converse API and stream the answers."""

import hashlib
import hmac
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from functools import partial
from typing import Final
from urllib.parse import quote, urlsplit

from msgspec.structs import replace

from weft.host.now import now
from weft.provider.bedrock.request import to_body
from weft.provider.bedrock.stream import ConverseFold, ConverseFrameReader
from weft.provider.body import to_bytes
from weft.provider.catalog.aws import DEFAULT_REGION, add_region_prefix
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.endpoint import AwsKeys, HttpRequest, ModelEndpoint
from weft.provider.http import stream_chunks
from weft.provider.http_client import HttpClient
from weft.provider.media import has_files

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE: Final = "bedrock"


def sign_request(url: str, body: bytes, keys: AwsKeys, region: str, time: int) -> dict[str, str]:
    """Return the headers of a request signed with Signature Version 4. The server accepts `time` (ms) for a few minutes."""
    timestamp = datetime.fromtimestamp(time // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    parts = urlsplit(url)
    headers = {"host": _get_host(url), "x-amz-date": timestamp}
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(headers)
    canonical_request = "\n".join(
        [
            "POST",
            # Quoted once more than in the request, as every service except S3 requires.
            quote(parts.path or "/", safe="/-_.~"),
            parts.query,
            *(f"{name}:{value.strip()}" for name, value in headers.items()),
            "",
            names,
            _digest(body),
        ]
    )
    scope = f"{timestamp[:8]}/{region}/{SERVICE}/aws4_request"
    string_to_sign = "\n".join([ALGORITHM, timestamp, scope, _digest(canonical_request.encode())])
    key = b"AWS4" + keys.secret.encode()
    for step in scope.split("/"):
        key = _hmac(key, step)
    authorization = f"{ALGORITHM} Credential={keys.id}/{scope}, SignedHeaders={names}, Signature={_hmac(key, string_to_sign).hex()}"
    return {**headers, "authorization": authorization}


def _get_host(url: str) -> str:
    """Return the host as the client sends it: without the default port."""
    parts = urlsplit(url)
    default_port = {"http": 80, "https": 443}.get(parts.scheme)
    host = parts.netloc.rpartition("@")[2].lower()
    return host.removesuffix(f":{default_port}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


EVENT_STREAM: Final = "application/vnd.amazon.eventstream"


class Bedrock:
    """Provider for Bedrock in one region. A Bedrock key is sent as a bearer token; without one, every request is signed
    with AWS keys.
    """

    def __init__(self, client: HttpClient, endpoint: ModelEndpoint) -> None:
        self._client = client
        self._endpoint = endpoint
        self._region: str = endpoint.options.get("region") or DEFAULT_REGION
        self._signs_requests = endpoint.aws is not None and not endpoint.api_key

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        # Each request reads the AWS keys again, because another program may renew them while we run.
        in_thread = self._signs_requests or has_files(request.messages)
        return stream_chunks(
            self._client,
            partial(self._build_request, request),
            ConverseFold(),
            reader=ConverseFrameReader(),
            in_thread=in_thread,
        )

    def _build_request(self, request: ModelRequest) -> HttpRequest:
        endpoint, body = self._endpoint, to_bytes(to_body(request))
        api_headers = {"accept": EVENT_STREAM, **endpoint.bearer}
        path = (
            f"/model/{quote(add_region_prefix(request.model.api.id, self._region), safe='')}/converse-stream"
        )
        http_request = endpoint.build_request(path, body, request.parameters, api_headers)
        if endpoint.aws is None or not self._signs_requests:
            return http_request
        signature_headers = sign_request(http_request.url, body, endpoint.aws(), self._region, now())
        return replace(http_request, headers={**http_request.headers, **signature_headers})
