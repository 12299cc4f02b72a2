"""The journal, for sessions that begin with a history, go to the trash and come back."""

import asyncio

from msgspec.structs import replace

from weft.bus import Bus
from weft.journal import open_journal
from weft.model.event import (
    Event,
    MessageUpdated,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
    SessionUpdated,
)
from weft.model.ids import MessageID, SessionID
from weft.model.message import AnyMessage, UserMessage, UserSummary
from weft.model.transcript import Transcript
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock
from weft.testing.store_samples import NOW, PROMPT, SESSION, growth, prompt, session, text, with_parts

CHILD = SessionID("ses_2")


async def list_published(bus: Bus) -> list[Event]:
    """Return all events from the beginning."""
    return [each.event for each in await bus.listen(after=0).take()]


async def test_only_the_session_is_published_when_it_begins_with_a_history() -> None:
    store, bus = MemoryStore(), Bus()
    async with open_journal(store, bus, HandClock(NOW), directory="/") as journal:
        await journal.begin(session(), MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "a")))
    assert await store.list_messages(SESSION) == [with_parts(prompt(), text("prt_1", "a"))]
    assert await list_published(bus) == [SessionCreated(info=session()), SessionUpdated(info=session())]


async def test_growth_is_stored_before_a_session_goes_to_the_trash() -> None:
    store, bus = MemoryStore(), Bus()
    async with open_journal(store, bus, HandClock(NOW), directory="/") as journal:
        await journal.begin(session(), MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "a")))
        await journal.begin(session(CHILD))
        journal.grow(growth("prt_1", "bc", 1, of=PROMPT))
        trashed = await journal.discard([SESSION, CHILD], at=NOW)
        assert await store.list_sessions() == []
        await journal.restore(trashed.id)
    assert await store.list_messages(SESSION) == [with_parts(prompt(), text("prt_1", "abc"))]
    assert (await list_published(bus))[-6:] == [
        SessionDeleted(info=session(CHILD)),
        SessionDeleted(info=session()),
        SessionCreated(info=session()),
        SessionUpdated(info=session()),
        SessionCreated(info=session(CHILD)),
        SessionUpdated(info=session(CHILD)),
    ]


async def test_concurrent_edits_of_one_message_do_not_overwrite_each_other() -> None:
    store, bus = MemoryStore(), Bus()

    def set_title(it: AnyMessage) -> AnyMessage:
        assert isinstance(it, UserMessage)
        return replace(it, summary=replace(it.summary or UserSummary(), title="Mending"))

    def set_body(it: AnyMessage) -> AnyMessage:
        assert isinstance(it, UserMessage)
        return replace(it, summary=replace(it.summary or UserSummary(), body="Done"))

    async with open_journal(store, bus, HandClock(NOW), directory="/") as journal:
        await journal.begin(session(), MessageUpdated(info=prompt()))
        known = Transcript(await store.list_messages(SESSION))
        await asyncio.gather(
            journal.edit_message(SESSION, PROMPT, set_title, into=known),
            journal.edit_message(SESSION, PROMPT, set_body, into=known),
            journal.edit_message(SESSION, MessageID("msg_gone"), set_title),
        )
    both = replace(prompt(), summary=UserSummary(title="Mending", body="Done"))
    assert await store.list_messages(SESSION) == [with_parts(both)]
    assert known.messages() == [with_parts(both)]
    assert (await list_published(bus))[-1] == MessageUpdated(info=both)
