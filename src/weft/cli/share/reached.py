"""Whether a page is to be seen, asked as anybody would."""

import httpx2

SECONDS = 5.0
OK = 200


async def is_seen(url: str) -> bool:
    try:
        async with httpx2.AsyncClient(timeout=SECONDS, trust_env=False) as client:
            return (await client.get(url)).status_code == OK
    except httpx2.HTTPError:
        return False
