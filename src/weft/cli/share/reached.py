"""Whether a page is to be seen, asked as anybody would."""

import httpx2

SECONDS = 5.0
OK = 200


async def is_seen(url: str) -> bool:
    # Not the page itself: to lay out a long session takes a while, and its stream is there at once.
    try:
        async with (
            httpx2.AsyncClient(timeout=SECONDS, trust_env=False) as client,
            client.stream("GET", f"{url}/live") as answer,
        ):
            return answer.status_code == OK
    except httpx2.HTTPError:
        return False
