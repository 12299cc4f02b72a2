"""Fetching a document: one GET, its size and its time bounded."""

from collections.abc import Mapping
from time import monotonic
from typing import Final

import httpx2

from weft.errors import ProviderError
from weft.provider.catalog.access import without_secret
from weft.provider.catalog.local import to_refusal
from weft.version import VERSION

DEADLINE: Final = 10.0
MAX_BYTES: Final = 64 * 1024 * 1024
OK: Final = 200


def fetch(
    url: str, *, headers: Mapping[str, str] | None = None, deadline: float = DEADLINE, direct: bool = False
) -> bytes:
    """The body of a URL that answered with success. `direct` leaves proxies aside, for what runs on this machine."""
    where = without_secret(url)
    try:
        with (
            httpx2.Client(timeout=deadline, follow_redirects=not direct, trust_env=not direct) as client,
            client.stream(
                "GET", url, headers={"User-Agent": f"weft/{VERSION}", **(headers or {})}
            ) as response,
        ):
            if response.status_code != OK:
                raise ProviderError(
                    f"{where} answered with status {response.status_code}", status=response.status_code
                )
            return _read(response, where, until=monotonic() + deadline)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        silent = ProviderError(f"{where} did not answer: {str(error) or type(error).__name__}")
        raise to_refusal(url, error) or silent from error


def _read(response: httpx2.Response, where: str, *, until: float) -> bytes:
    body = bytearray()
    for piece in response.iter_bytes():
        body += piece
        if len(body) > MAX_BYTES or monotonic() > until:
            raise ProviderError(f"{where} sent too much, or too slowly")
    return bytes(body)
