"""Read the store at a URL as somebody who may not write there, and print what happens as JSON. Run as a script."""

import asyncio
import json
import os
import sys

# Everything is imported before the privileges are gone, because the source may be readable for its owner only.
import weft.store.files.store
import weft.store.sqlite.store  # noqa: F401
from weft.errors import StoreError
from weft.model.event import SessionUpdated
from weft.store.url import open_store
from weft.testing.store_samples import SESSION, session


async def main(url: str) -> None:
    said: dict[str, object] = {}
    refused: list[str] = []
    async with open_store(url) as store:
        said["sessions"] = len(await store.list_sessions())
        said["texts"] = [getattr(part, "text", "") for part in (await store.list_messages(SESSION))[0].parts]
        said["damage"] = [each.reason for each in await store.damage()]
        for work in (store.apply(SessionUpdated(info=session())), store.put_value(("a", "b"), 1)):
            try:
                await work
            except StoreError as error:
                refused.append(f"{type(error).__name__}: {error.hint}")
    print(json.dumps(said | {"refused": refused}))


if __name__ == "__main__":
    if os.geteuid() == 0:  # nothing stops the superuser from writing
        os.setuid(65534)
    asyncio.run(main(sys.argv[1]))
