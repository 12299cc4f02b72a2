"""How long it takes to fork, remove and restore a long session on files, with the counts before and after.

python bench/fork.py [messages ...]
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path

from trees import Forest

from weft.local.offline import open_offline_sessions
from weft.model.ids import ProjectID
from weft.session.fork import fork
from weft.session.remove import remove, restore

SIZES = (1000, 5000)


def count(storage: Path) -> str:
    """Sessions, messages and parts on their shelves."""
    return "/".join(
        str(sum(1 for _ in (storage / shelf).rglob("*.json"))) for shelf in ("session", "message", "part")
    )


async def timed(what: str, storage: Path, work: Awaitable[object]) -> None:
    before, wall, cpu = count(storage), time.perf_counter(), time.process_time()
    await work
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"  {what:<20}{wall:8.2f} s wall {cpu:8.2f} s cpu   {before:>18} -> {count(storage)}")


async def measure(messages: int) -> None:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as place:
        storage = Path(place) / "storage"
        Forest(storage, ProjectID("global"), place).plant(1, messages=messages)
        os.sync()
        async with open_offline_sessions(place, os.environ, store=f"file:{storage}") as offline:
            [source] = await offline.store.list_sessions()
            maker, remover = await offline.maker(), offline.remover()
            print(f"{messages} messages (sessions/messages/parts)")
            await timed("fork", storage, fork(maker, offline.store, source))
            await timed("remove to trash", storage, remove(remover, source.id))
            await timed("restore", storage, restore(offline.journal, offline.store, source.id))
            await timed("remove for good", storage, remove(remover, source.id, trash=False))


if __name__ == "__main__":
    for size in [int(word) for word in sys.argv[1:]] or SIZES:
        asyncio.run(measure(size))
