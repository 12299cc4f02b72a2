"""One document from the network, with an end to the wait and to the size."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpx2

from weft.version import VERSION

SECONDS: Final = 5.0
MOST_BYTES: Final = 1 << 20


class WebError(OSError):
    """A document could not be had. The message never quotes the address, which may hold a secret."""


def fetch(url: str, *, seconds: float = SECONDS, most: int = MOST_BYTES) -> bytes:
    """Return the body of a URL that answers with success. Raise `WebError` if it does not, not within `seconds` in all, or
    with more than `most` bytes.

    It works in a thread with an event loop of its own, so that the wait has one end however slowly a server speaks.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _fetch(url, seconds, most)).result()


async def _fetch(url: str, seconds: float, most: int) -> bytes:
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
                if len(body) > most:
                    raise WebError(f"more than {most:,} bytes")
            return body
    except TimeoutError:
        raise WebError(f"no whole answer within {seconds:g} s") from None
    except httpx2.TimeoutException:
        raise WebError(f"no answer within {seconds:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
        raise WebError(f"no connection ({type(error).__name__})") from None
