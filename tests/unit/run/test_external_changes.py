"""Changes from outside to a session that runs."""

import asyncio

import pytest
from msgspec.structs import replace

from given.engine import NOW, Engine, open_engine, text_prompt
from weft.errors import SessionBusyError
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.message import MessageWithParts
from weft.model.part import TextPart
from weft.provider.contract import TextContent, UserModelMessage
from weft.provider.scripted import Say, UseTool, Wait
from weft.testing.clock import HandClock

PATIENCE = 60
SCRIPT = (
    [Say(text="noted")],
    [Wait(seconds=1), UseTool(tool="echo", input={"words": "x"})],
    [Say(text="done")],
)


async def run_to_second_prompt(
    engine: Engine, clock: HandClock
) -> tuple[SessionID, asyncio.Task[MessageWithParts]]:
    """Run a session until its second prompt is being answered."""
    session = (await engine.api.create_session(SessionInput())).id
    await engine.api.prompt(session, text_prompt("remember seven"))
    asking = asyncio.ensure_future(engine.api.prompt(session, text_prompt("go")))
    await clock.somebody_sleeps(1)
    return session, asking


async def test_a_text_changed_during_a_run_is_shown_in_the_next_step_and_stored() -> None:
    clock = HandClock(NOW)
    async with asyncio.timeout(PATIENCE), open_engine(*SCRIPT, clock=clock) as engine:
        session, asking = await run_to_second_prompt(engine, clock)
        part = (await engine.api.list_messages(session))[0].parts[0]
        assert isinstance(part, TextPart)
        changed = replace(part, text="remember eight")
        await engine.api.update_part(changed)
        clock.turn(1000)
        await asking

        assert engine.provider.requests[-1].messages[0] == UserModelMessage(
            content=(TextContent(text="remember eight"),)
        )
        assert (await engine.api.list_messages(session))[0].parts == (changed,)


async def test_a_part_removed_during_a_run_is_not_shown_again() -> None:
    clock = HandClock(NOW)
    async with asyncio.timeout(PATIENCE), open_engine(*SCRIPT, clock=clock) as engine:
        session, asking = await run_to_second_prompt(engine, clock)
        first = (await engine.api.list_messages(session))[0]
        await engine.api.remove_part(session, first.info.id, first.parts[0].id)
        clock.turn(1000)
        await asking

        assert "seven" not in str(engine.provider.requests[-1].messages)
        assert (await engine.api.list_messages(session))[0].parts == ()


async def test_no_message_is_removed_during_a_run() -> None:
    clock = HandClock(NOW)
    async with asyncio.timeout(PATIENCE), open_engine(*SCRIPT, clock=clock) as engine:
        session, asking = await run_to_second_prompt(engine, clock)
        before = [each.info.id for each in await engine.api.list_messages(session)]
        with pytest.raises(SessionBusyError):
            await engine.api.remove_message(session, before[0])
        clock.turn(1000)
        await asking

        assert [each.info.id for each in await engine.api.list_messages(session)][:4] == before
        await engine.api.remove_message(session, before[0])
