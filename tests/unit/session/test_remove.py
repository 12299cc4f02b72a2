"""Removing a session: runs are stopped, shares are revoked, and all of it is removed or nothing."""

import asyncio

import pytest

from given.engine import NOW, open_engine, text_prompt
from weft.errors import NotFoundError, SessionBusyError, StoreError
from weft.maintenance.prune import empty_trash
from weft.model.event import SessionDeleted, SessionIdled, StatusChanged
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.session import SessionInfo
from weft.provider.scripted import Say, Wait
from weft.session.remove import Remover, remove
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock


async def test_a_run_is_ended_before_its_session_is_removed() -> None:
    async with open_engine([Wait(seconds=1000), Say(text="never")]) as engine:
        session = await engine.api.create_session(SessionInput())
        child = await engine.api.create_session(SessionInput(parent_id=session.id))
        listening = engine.api.events()
        running = asyncio.ensure_future(engine.api.prompt(child.id, text_prompt("go")))
        while not isinstance((await anext(listening)).event, StatusChanged):
            pass
        await engine.api.remove_session(session.id)
        await asyncio.wait([running])
        kinds = []
        async for each in listening:
            kinds.append(type(each.event))
            if isinstance(each.event, SessionDeleted) and each.event.info.id == session.id:
                break
        assert kinds.index(SessionIdled) < kinds.index(SessionDeleted)
        assert await engine.store.list_messages(child.id) == []
        assert await engine.api.abort(child.id) is False


async def test_nothing_stored_for_a_session_outlives_it_and_the_trash() -> None:
    async with open_engine([Say(text="one")], [Say(text="two")]) as engine:
        gone, trashed = [await engine.api.create_session(SessionInput()) for _ in range(2)]
        before = await engine.store.list_keys()
        for session in (gone, trashed):
            await engine.api.prompt(session.id, text_prompt("go"))
        assert await engine.store.list_keys(("prompt",)) == sorted(
            [("prompt", gone.id), ("prompt", trashed.id)]
        )
        await engine.api.remove_session(gone.id, trash=False)
        await engine.api.remove_session(trashed.id)
        assert await engine.store.list_keys(("prompt",)) == [("prompt", trashed.id)]
        await empty_trash(engine.store, before=2**53)
        assert await engine.store.list_keys() == before


async def test_a_session_that_runs_elsewhere_is_not_removed() -> None:
    async with open_engine() as engine:
        session = await engine.api.create_session(SessionInput())
        child = await engine.api.create_session(SessionInput(parent_id=session.id))
        async with engine.store.lease(child.id, "somebody else"):
            with pytest.raises(SessionBusyError, match=child.id):
                await engine.api.remove_session(session.id)
        assert len(await engine.api.list_sessions()) == 2
        await engine.api.remove_session(session.id)
        assert await engine.api.list_sessions() == []


async def test_removing_revokes_the_share_first_and_stops_if_that_fails() -> None:
    async with open_engine() as engine:
        session = await engine.api.create_session(SessionInput())
        child = await engine.api.create_session(SessionInput(parent_id=session.id))
        revoked: list[SessionID] = []

        async def revoke(each: SessionInfo) -> None:
            revoked.append(each.id)
            if each.id == session.id:
                raise StoreError("the server says no")

        remover = Remover(
            store=engine.store,
            journal=engine.api.runtime.journal,
            clock=HandClock(NOW),
            owner="the test",
            stop=engine.api.abort,
            revoke=revoke,
        )
        with pytest.raises(StoreError, match="says no"):
            await remove(remover, session.id)
        assert revoked == [child.id, session.id]
        assert len(await engine.api.list_sessions()) == 2


async def test_a_child_created_while_runs_are_ended_is_removed_too() -> None:
    async with open_engine() as engine:
        session = await engine.api.create_session(SessionInput())
        made: list[SessionID] = []

        async def stop(id: SessionID) -> None:
            if not made:
                made.append((await engine.api.create_session(SessionInput(parent_id=id))).id)

        remover = Remover(
            store=engine.store,
            journal=engine.api.runtime.journal,
            clock=HandClock(NOW),
            owner="test",
            stop=stop,
        )
        assert [each.id for each in await remove(remover, session.id)] == [*made, session.id]
        assert await engine.api.list_sessions() == []


async def test_waiting_growth_is_in_the_trash_too() -> None:
    store = MemoryStore()
    async with open_engine([Say(text="some words")], store=store) as engine:
        session = await engine.api.create_session(SessionInput())
        await engine.api.prompt(session.id, text_prompt("go"))
        before = await engine.api.list_messages(session.id)
        await engine.api.remove_session(session.id)
        with pytest.raises(NotFoundError):
            await engine.api.list_messages(session.id)
        await engine.api.restore_session(session.id)
        assert await engine.api.list_messages(session.id) == before
