"""Fetch one document by HTTP, with a limit for its size and for the time."""

from collections.abc import Mapping
from time import monotonic
from typing import Final

import httpx2

from weft.errors import ProviderError
from weft.model.url import redact_url
from weft.provider.catalog.local import find_refused_connection
from weft.version import VERSION

DEFAULT_DEADLINE: Final = 10.0
MAX_BYTES: Final = 64 * 1024 * 1024
OK: Final = 200


def fetch(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    deadline: float = DEFAULT_DEADLINE,
    direct: bool = False,
) -> bytes:
    """Return the body of a URL. Raise `ProviderError` unless the server answers in time with status 200.

    With `direct`, for local servers, proxies and redirects are ignored.
    """
    where = redact_url(url)
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
            return _read_body(response, where, until=monotonic() + deadline)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        failure = ProviderError(f"{where} did not answer: {str(error) or type(error).__name__}")
        raise find_refused_connection(url, error) or failure from error


def _read_body(response: httpx2.Response, where: str, *, until: float) -> bytes:
    body = bytearray()
    for piece in response.iter_bytes():
        body += piece
        if len(body) > MAX_BYTES or monotonic() > until:
            raise ProviderError(f"{where} sent too much data, or sent it too slowly")
    return bytes(body)
