"""Fetch a document from the web, limited in time and size."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from weft.version import VERSION

DEFAULT_SECONDS: Final = 5.0
DEFAULT_MAX_BYTES: Final = 1 << 20


class WebError(OSError):
    """A document could not be fetched. The message never contains the URL, which may hold a secret."""


def fetch(url: str, *, seconds: float = DEFAULT_SECONDS, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """Return the body of a successful response. Raise `WebError` on failure, after `seconds`, or beyond `max_bytes`.

    The request runs in a thread with its own event loop, because only there one deadline can cover all of it.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _fetch(url, seconds, max_bytes)).result()


async def _fetch(url: str, seconds: float, max_bytes: int) -> bytes:
    import httpx2  # noqa: PLC0415  slow to import, and few fetch anything

    headers = {"User-Agent": f"weft/{VERSION}"}
    try:
        async with (
            asyncio.timeout(seconds),
            httpx2.AsyncClient(timeout=seconds, follow_redirects=True, max_redirects=5) as client,
            client.stream("GET", url, headers=headers) as response,
        ):
            if not response.is_success:
                raise WebError(f"status {response.status_code}")
            body = b""
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > max_bytes:
                    raise WebError(f"more than {max_bytes:,} bytes")
            return body
    except TimeoutError:
        raise WebError(f"no whole answer within {seconds:g} s") from None
    except httpx2.TimeoutException:
        raise WebError(f"no answer within {seconds:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
        raise WebError(f"no connection ({type(error).__name__})") from None
