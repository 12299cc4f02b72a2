"""Amazon's signature, version 4, of one request that is a POST of bytes (pure)."""

import hashlib
import hmac
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlsplit

from weft.provider.endpoint import AwsKeys

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SERVICE: Final = "bedrock"


def sign(url: str, body: bytes, keys: AwsKeys, region: str, at: int) -> dict[str, str]:
    """The headers that prove who asks. `at` is the time, in ms; the server takes it for a few minutes."""
    moment = datetime.fromtimestamp(at // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    parts = urlsplit(url)
    signed = {"host": _host(url), "x-amz-date": moment}
    if keys.token:
        signed["x-amz-security-token"] = keys.token
    names = ";".join(signed)
    canonical = "\n".join(
        [
            "POST",
            # Quoted once more than it is sent, as every service but S3 wants it.
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
        key = _mac(key, step)
    proof = (
        f"{ALGORITHM} Credential={keys.id}/{scope}, SignedHeaders={names}, Signature={_mac(key, text).hex()}"
    )
    return {**signed, "authorization": proof}


def _host(url: str) -> str:
    """As the client sends it: without a port that goes without saying."""
    parts = urlsplit(url)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    name = parts.netloc.rpartition("@")[2].lower()
    return name.removesuffix(f":{usual}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
