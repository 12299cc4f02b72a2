"""Hold the lease of a session until killed. Run as a script."""

import asyncio
import sys

from weft.store.url import open_store
from weft.testing.store_samples import SESSION


async def hold(url: str) -> None:
    async with open_store(url) as store, store.lease(SESSION, "the killed"):
        print("held", flush=True)
        await asyncio.Event().wait()


asyncio.run(hold(sys.argv[1]))
