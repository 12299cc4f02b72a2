"""Shared sessions are updated while other events happen."""

import asyncio
from pathlib import Path
from typing import Any

from given.engine import open_engine
from weft.model.event import SessionIdled
from weft.model.input import SessionInput
from weft.share.records import RECORDS_KEY
from weft.store.contract import Key
from weft.store.memory import MemoryStore
from weft.store.url import open_store


class ShareCountingStore(MemoryStore):
    """Counts how often the shares are read."""

    def __init__(self) -> None:
        super().__init__()
        self.readings = 0

    async def find_value(self, key: Key) -> Any:
        self.readings += key == RECORDS_KEY
        return await super().find_value(key)


async def test_creating_and_renaming_sessions_that_are_not_shared_reads_no_shares() -> None:
    store = ShareCountingStore()
    async with open_engine(store=store, skip_waits=True) as engine:
        await engine.api.sharing.catch_up()
        before = store.readings
        for title in ("warp", "weft"):
            session = await engine.api.create_session(SessionInput(title=title))
            await engine.api.rename_session(session.id, f"{title} again")
            await asyncio.sleep(0)
        assert store.readings == before


async def test_catching_up_does_not_wait_for_later_events(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(60),
        open_store(f"file:{tmp_path}") as store,
        open_engine(store=store, skip_waits=True) as engine,
    ):
        session = await engine.api.create_session(SessionInput())
        for _ in range(5):
            engine.api.bus.publish(SessionIdled(session_id=session.id), directory="")
            await engine.api.sharing.catch_up()
        assert engine.api.bus.cursor >= 5
