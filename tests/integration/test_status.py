"""The status of a session: idle, busy, waiting for an answer, retrying."""

import asyncio
from collections.abc import AsyncIterator

from given.engine import ALLOW, NOW, open_engine, text_prompt
from weft.host.tasks import open_tasks
from weft.local.permissions import PermissionSettings
from weft.model.event import PermissionAsked, PublishedEvent, SessionIdled, StatusChanged
from weft.model.event_wire import event_to_plain
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.permission import Rule
from weft.model.session import AnyStatus, Busy, Idle, Retry
from weft.model.wire import decode
from weft.permission.policy import AskPolicy
from weft.provider.scripted import Fail, Say, UseTool
from weft.testing.clock import HandClock

ASK = (*ALLOW, Rule(permission="echo", pattern="*", action="ask"))
CAN_ASK = PermissionSettings(policy=AskPolicy(can_ask=True))


async def statuses(session: SessionID, listening: AsyncIterator[PublishedEvent]) -> list[AnyStatus]:
    seen: list[AnyStatus] = []
    async for each in listening:
        match each.event:
            case StatusChanged(session_id=about, status=status) if about == session:
                seen.append(status)
            case SessionIdled():
                break
            case _:
                pass
    return seen


async def test_a_run_that_waits_for_an_answer_is_busy_and_names_the_request() -> None:
    script = ([UseTool(tool="echo", input={"words": "x"})], [Say(text="Done.")])
    async with (
        asyncio.timeout(60),
        open_engine(*script, rules=ASK, permissions=CAN_ASK) as engine,
        open_tasks() as tasks,
    ):
        session = (await engine.api.create_session(SessionInput(title="T"))).id
        listening, watching = engine.api.events(), engine.api.events()
        tasks.create_task(engine.api.prompt(session, text_prompt("go")))
        async for published in listening:
            if isinstance(published.event, PermissionAsked):
                asked = published.event.request.id
                break
        waiting, listed = await engine.api.get_status(session), await engine.api.list_status()
        await engine.api.reply_permission(asked, "once")
        observed = await statuses(session, watching)
        after = await engine.api.list_status()

    assert waiting == Busy(waiting_for=(asked,))
    assert listed == {session: waiting}
    assert observed == [Busy(), Busy(waiting_for=(asked,)), Busy(), Idle()]
    assert after == {}


async def test_an_aborted_run_no_longer_waits() -> None:
    async with (
        asyncio.timeout(60),
        open_engine([UseTool(tool="echo", input={"words": "x"})], rules=ASK, permissions=CAN_ASK) as engine,
        open_tasks() as tasks,
    ):
        session = (await engine.api.create_session(SessionInput(title="T"))).id
        listening = engine.api.events()
        tasks.create_task(engine.api.prompt(session, text_prompt("go")))
        async for published in listening:
            if isinstance(published.event, PermissionAsked):
                break
        await engine.api.abort(session)

        assert await engine.api.get_status(session) == Idle()


async def test_a_retry_is_a_status_that_is_followed_by_busy() -> None:
    clock = HandClock(NOW)
    script = ([Fail(message="overloaded", retryable=True)], [Say(text="Done.")])
    async with asyncio.timeout(60), open_engine(*script, clock=clock) as engine, open_tasks() as tasks:
        session = (await engine.api.create_session(SessionInput(title="T"))).id
        listening = engine.api.events()
        tasks.create_task(engine.api.prompt(session, text_prompt("go")))
        await clock.somebody_sleeps(2)
        trying = await engine.api.get_status(session)
        clock.turn(3_000)
        seen = await statuses(session, listening)

    assert isinstance(trying, Retry)
    assert (trying.attempt, trying.message) == (1, "overloaded")
    assert seen == [Busy(), trying, Busy(), Idle()]


def test_old_clients_see_a_waiting_run_as_busy() -> None:
    session = SessionID("ses_1")
    waiting = event_to_plain(StatusChanged(session_id=session, status=Busy(waiting_for=("per_1",))))
    working = event_to_plain(StatusChanged(session_id=session, status=Busy()))

    assert waiting["properties"]["status"] == {"type": "busy", "waitingFor": ["per_1"]}
    assert working["properties"]["status"] == {"type": "busy"}
    assert decode(b'{"type": "busy"}', AnyStatus) == Busy()
