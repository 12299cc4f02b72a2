"""Shared sessions are updated while other events happen."""

import asyncio
from pathlib import Path

from given.engine import open_engine
from weft.model.event import SessionIdled
from weft.model.input import SessionInput
from weft.store.url import open_store


async def test_catching_up_does_not_wait_for_what_was_heard_meanwhile(tmp_path: Path) -> None:
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
