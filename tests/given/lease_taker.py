"""Take over the lease of a session that a living process holds, and hold it until standard input ends. Run as a script.

The lock files are removed first, as a person does who takes that process for dead.
"""

import asyncio
import sys
from pathlib import Path

from weft.model.ids import SessionID
from weft.store.files.layout import Layout
from weft.store.files.lock import owner_path
from weft.store.url import open_store

OWNER = "another process"


def remove_locks(url: str, session: SessionID) -> None:
    kind, _, path = url.partition(":")
    if kind == "sqlite":
        for lock in Path(f"{path}-locks").glob("*.holder"):
            lock.unlink()
    else:
        lease = Layout(path).lease(session)
        Path(lease).unlink()
        Path(owner_path(lease)).unlink()


async def take_over(url: str, session: SessionID) -> None:
    remove_locks(url, session)
    async with open_store(url) as store, store.lease(session, OWNER):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(take_over(sys.argv[1], SessionID(sys.argv[2])))
