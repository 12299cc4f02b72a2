"""Following what is shared, beside all that happens."""

import asyncio
from pathlib import Path

from given.house import open_house
from weft.model.event import SessionRested
from weft.model.input import SessionInput
from weft.store.url import open_store


async def test_catching_up_does_not_wait_for_what_was_heard_meanwhile(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(60),
        open_store(f"file:{tmp_path}") as store,
        open_house(store=store, quick=True) as house,
    ):
        session = await house.api.create_session(SessionInput())
        for _ in range(5):
            house.api.bus.publish(SessionRested(session_id=session.id), directory="")
            await house.api.sharing.catch_up()
        assert house.api.bus.cursor >= 5
