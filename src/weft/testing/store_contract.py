"""Checks that every store must pass. Each is given an empty store."""

import asyncio
from typing import Any

from msgspec.structs import replace

from weft.errors import ConflictError
from weft.model.diff import FileDiff
from weft.model.event import (
    Durable,
    MessageUpdated,
    PartRemoved,
    PartUpdated,
    SessionCreated,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AnyMessage, MessageWithParts
from weft.model.part import AnyPart, CallTime, CompletedState, ToolPart, UnknownPart
from weft.model.session import SessionInfo, Todo, TrashBundle
from weft.model.wire import decode, encode, to_plain
from weft.store.contract import Store
from weft.testing.clock import HandClock
from weft.testing.ids import seeded_mint
from weft.testing.store_chain import CHAINS
from weft.testing.store_change_log import CHANGES
from weft.testing.store_leases import LEASES
from weft.testing.store_queries import QUERIES
from weft.testing.store_samples import (
    ANSWER,
    HOSTILE,
    NOW,
    PROJECT,
    PROMPT,
    SESSION,
    WRAP,
    Check,
    answer,
    expect_missing,
    find_text,
    growth,
    prompt,
    session,
    text,
    with_parts,
)
from weft.testing.store_search import SEARCH
from weft.testing.store_writes import WRITING, deleting_a_session_deletes_all_its_data


async def an_edit_returns_the_stored_session(store: Store) -> None:
    await store.apply(SessionCreated(info=session(title="one")))
    edited = await store.edit(SESSION, lambda known: replace(known, title=known.title + " two"))
    assert edited == session(title="one two")
    assert await store.get_session(SESSION) == edited


async def an_edit_stores_events_with_the_session(store: Store) -> None:
    await store.apply(SessionCreated(info=session(title="one")))
    said = MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "a"))
    edited = await store.edit(SESSION, lambda known: replace(known, title="two"), *said)
    assert await store.get_session(SESSION) == edited == session(title="two")
    assert await store.list_messages(SESSION) == [with_parts(prompt(), text("prt_1", "a"))]


async def editing_a_missing_session_or_message_raises_an_error(store: Store) -> None:
    for events in ((), (MessageUpdated(info=prompt()),)):
        error = await expect_missing(store.edit(SESSION, lambda known: known, *events))
        assert (error.kind, error.id) == ("session", SESSION)
        assert await store.list_sessions() == []
    await store.apply(SessionCreated(info=session()))
    assert await store.list_messages(SESSION) == []


async def an_edit_that_fails_changes_nothing(store: Store) -> None:
    def refuse(_: SessionInfo) -> SessionInfo:
        raise ValueError("no")

    await store.apply(SessionCreated(info=session()))
    try:
        await store.edit(SESSION, refuse, MessageUpdated(info=prompt()))
    except ValueError:
        assert await store.get_session(SESSION) == session()
        assert await store.list_messages(SESSION) == []
    else:
        raise AssertionError("no ValueError")


async def concurrent_edits_are_all_stored(store: Store) -> None:
    def add_one_message(known: SessionInfo) -> SessionInfo:
        return replace(known, time=replace(known.time, updated=known.time.updated + 1))

    await store.apply(SessionCreated(info=session()))
    await asyncio.gather(*(store.edit(SESSION, add_one_message) for _ in range(20)))
    assert (await store.get_session(SESSION)).time.updated == NOW + 20


async def a_stored_value_is_returned_until_it_is_removed(store: Store) -> None:
    for key in (("session_share", SESSION), ("permission", PROJECT), ("lease", "runs", SESSION), ("alone",)):
        value: Any = {"id": SESSION, "secret": "s", "deep": [1, None, {"a": True}], "half": "\ud83d"}
        await store.put_value(key, value)
        assert await store.find_value(key) == value
        await store.put_value(key, [])
        assert await store.find_value(key) == []
        await store.put_value(key, None)
        await store.put_value(key, None)
        assert await store.find_value(key) is None


async def changing_a_value_after_storing_it_does_not_change_the_store(store: Store) -> None:
    given = {"list": [1]}
    await store.put_value(("a", "b"), given)
    given["list"].append(2)
    found = await store.find_value(("a", "b"))
    assert found == {"list": [1]}
    found["list"].append(3)
    assert await store.find_value(("a", "b")) == {"list": [1]}


async def a_value_is_edited_atomically(store: Store) -> None:
    def add_one(known: Any) -> Any:
        return {"count": (known or {"count": 0})["count"] + 1}

    new_value = await asyncio.gather(*(store.update_value(("a", "b"), add_one) for _ in range(20)))
    assert sorted(each["count"] for each in new_value) == list(range(1, 21))
    assert await store.find_value(("a", "b")) == {"count": 20}
    assert await store.update_value(("a", "b"), lambda _: None) is None
    assert await store.find_value(("a", "b")) is None


async def an_edit_of_a_value_that_fails_changes_nothing(store: Store) -> None:
    def refuse(_: Any) -> Any:
        raise ValueError("no")

    await store.put_value(("a", "b"), 1)
    try:
        await store.update_value(("a", "b"), refuse)
    except ValueError:
        assert await store.find_value(("a", "b")) == 1
    else:
        raise AssertionError("no ValueError")


async def an_undamaged_store_reports_no_damage(store: Store) -> None:
    await deleting_a_session_deletes_all_its_data(store)
    await store.put_value(("a", "b"), 1)
    await store.apply(PartUpdated(part=text("prt_1", "")))
    await store.apply(growth("prt_1", "a", 0))
    assert await store.damage() == []


KEEPING: tuple[Check, ...] = (
    an_edit_returns_the_stored_session,
    an_edit_stores_events_with_the_session,
    editing_a_missing_session_or_message_raises_an_error,
    an_edit_that_fails_changes_nothing,
    concurrent_edits_are_all_stored,
    a_stored_value_is_returned_until_it_is_removed,
    changing_a_value_after_storing_it_does_not_change_the_store,
    a_value_is_edited_atomically,
    an_edit_of_a_value_that_fails_changes_nothing,
    an_undamaged_store_reports_no_damage,
)


OTHER = SessionID("ses_2")
AT = NOW + 1000
NAME = f"{AT}-{SESSION}"


def make_full_session(id: SessionID, message: str) -> list[Durable]:
    """Return events that create a session with something of every kind."""
    return [
        SessionCreated(info=session(id)),
        MessageUpdated(info=prompt(message, of=id)),
        PartUpdated(part=text("prt_1", "a", of=message, session=id)),
        PartUpdated(part=text("prt_2", "b", of=message, session=id)),
        SessionDiffed(session_id=id, diff=(FileDiff(file=id, additions=1, deletions=0),)),
        TodoUpdated(session_id=id, todos=(Todo(content=id, status="pending", priority="low"),)),
    ]


async def read_all(store: Store) -> list[object]:
    """Return all that the store holds about both sessions."""
    return [
        await store.list_sessions(),
        *[await store.list_messages(id) for id in (SESSION, OTHER)],
        *[await store.list_diff(id) for id in (SESSION, OTHER)],
        *[await store.list_todos(id) for id in (SESSION, OTHER)],
    ]


async def discarded_sessions_are_hidden_and_restored_unchanged(store: Store) -> None:
    await store.apply(*make_full_session(SESSION, PROMPT), *make_full_session(OTHER, "msg_9"))
    await store.apply(growth("prt_1", "more", 1))
    before = await read_all(store)
    trashed = await store.discard([SESSION, OTHER], at=AT)
    assert trashed == TrashBundle(id=NAME, time=AT, sessions=(session(), session(OTHER)))
    assert await read_all(store) == [[], [], [], [], [], [], []]
    assert await store.list_trash() == [trashed]
    found = await store.read_bundle(NAME)
    assert [each.info for each in found] == [session(), session(OTHER)]
    assert [list(each.messages) for each in found] == before[1:3]
    assert [list(each.diff) for each in found] == before[3:5]
    assert [list(each.todos) for each in found] == before[5:7]
    assert await store.restore(NAME) == trashed
    assert await read_all(store) == before
    assert await store.list_trash() == []
    assert await store.damage() == []


async def discarding_a_session_does_not_change_others(store: Store) -> None:
    await store.apply(*make_full_session(SESSION, PROMPT), *make_full_session(OTHER, "msg_9"))
    await store.discard([SESSION], at=AT)
    assert await store.list_sessions() == [session(OTHER)]
    assert len(await store.list_messages(OTHER)) == 1
    assert await store.list_messages(SESSION) == []


async def a_restored_session_can_be_discarded_again(store: Store) -> None:
    await store.apply(*make_full_session(SESSION, PROMPT))
    before = await read_all(store)
    for _ in range(2):
        await store.discard([SESSION], at=AT)
        await store.restore(NAME)
    assert await read_all(store) == before
    await store.apply(SessionUpdated(info=session(title="another")))
    await store.discard([SESSION], at=AT + 1)
    await store.restore(f"{AT + 1}-{SESSION}")
    assert (await store.get_session(SESSION)).title == "another"


async def discarding_with_a_missing_session_discards_nothing(store: Store) -> None:
    await store.apply(*make_full_session(SESSION, PROMPT))
    before = await read_all(store)
    assert (await expect_missing(store.discard([SESSION, OTHER], at=AT))).id == OTHER
    assert await read_all(store) == before
    assert await store.list_trash() == []


async def restoring_over_an_existing_session_is_refused(store: Store) -> None:
    await store.apply(*make_full_session(SESSION, PROMPT), *make_full_session(OTHER, "msg_9"))
    trashed = await store.discard([SESSION, OTHER], at=AT)
    await store.apply(SessionCreated(info=session(OTHER, title="the new one")))
    in_the_way = ""
    try:
        await store.restore(NAME)
    except ConflictError as error:
        in_the_way = error.id
    assert in_the_way == OTHER
    assert await store.list_sessions() == [session(OTHER, title="the new one")]
    assert await store.list_trash() == [trashed]


async def a_purged_bundle_cannot_be_restored(store: Store) -> None:
    await store.apply(*make_full_session(SESSION, PROMPT))
    await store.discard([SESSION], at=AT)
    await store.purge(NAME)
    assert await store.list_trash() == []
    for gone in (store.restore(NAME), store.purge(NAME), store.read_bundle(NAME)):
        assert (await expect_missing(gone)).id == NAME
    assert await read_all(store) == [[], [], [], [], [], [], []]


async def discarding_does_not_replace_an_earlier_bundle(store: Store) -> None:
    await store.apply(*make_full_session(SESSION, PROMPT))
    trashed = await store.discard([SESSION], at=AT)
    await store.apply(*make_full_session(SESSION, PROMPT))
    before = await read_all(store)
    in_the_way = ""
    try:
        await store.discard([SESSION], at=AT)
    except ConflictError as error:
        in_the_way = error.id
    assert in_the_way == NAME
    assert await read_all(store) == before
    assert await store.list_trash() == [trashed]


async def trash_bundles_are_listed_oldest_first(store: Store) -> None:
    await store.apply(*make_full_session(SESSION, PROMPT), *make_full_session(OTHER, "msg_9"))
    second = await store.discard([SESSION], at=AT + 5)
    first = await store.discard([OTHER], at=AT)
    assert await store.list_trash() == [first, second]


async def messages_are_listed_page_by_page(store: Store) -> None:
    infos = [prompt(f"msg_{number}", created=NOW + number) for number in range(5)]
    await store.apply(SessionCreated(info=session()), *(MessageUpdated(info=info) for info in infos))

    async def page(last: int | None, before: int) -> list[MessageWithParts]:
        return await store.list_messages(SESSION, last=last, before=infos[before].id)

    assert await page(2, 4) == [with_parts(infos[2]), with_parts(infos[3])]
    assert await page(2, 1) == [with_parts(infos[0])]
    assert await page(2, 0) == []
    assert await page(None, 2) == [with_parts(infos[0]), with_parts(infos[1])]
    nowhere = MessageID("msg_nowhere")
    assert (await expect_missing(store.list_messages(SESSION, before=nowhere))).id == nowhere


TRASHING: tuple[Check, ...] = (
    discarded_sessions_are_hidden_and_restored_unchanged,
    discarding_a_session_does_not_change_others,
    a_restored_session_can_be_discarded_again,
    discarding_with_a_missing_session_discards_nothing,
    restoring_over_an_existing_session_is_refused,
    a_purged_bundle_cannot_be_restored,
    discarding_does_not_replace_an_earlier_bundle,
    trash_bundles_are_listed_oldest_first,
    messages_are_listed_page_by_page,
)


# --- order ---


async def sessions_and_messages_are_in_order_when_ids_wrap_around(store: Store) -> None:
    clock = HandClock(WRAP - 2)
    mint = seeded_mint(clock.now)
    sessions: list[SessionInfo] = []
    messages: list[AnyMessage] = []
    for _ in range(5):
        sessions.append(session(mint.session(), created=clock.now()))
        messages.append(prompt(mint.message(), created=clock.now()))
        messages.append(answer(mint.message(), created=clock.now()))
        clock.turn(1)
    assert messages[-1].id < messages[0].id, "the ids have wrapped"
    await store.apply(*(SessionCreated(info=each) for each in reversed(sessions)))
    await store.apply(*(MessageUpdated(info=each) for each in reversed(messages)))
    assert await store.list_sessions() == sessions
    assert await store.list_messages(SESSION) == [with_parts(each) for each in messages]
    assert await store.list_messages(SESSION, last=3) == [with_parts(each) for each in messages[-3:]]


async def parts_are_in_order_when_ids_wrap_around(store: Store) -> None:
    clock = HandClock(WRAP - 1)
    mint = seeded_mint(clock.now)
    info = answer(mint.message(), created=clock.now())
    parts = []
    for number in range(4):
        parts.append(text(mint.part(), str(number), of=info.id))
        clock.turn(1)
    await store.apply(MessageUpdated(info=info), *(PartUpdated(part=part) for part in reversed(parts)))
    assert await store.list_messages(SESSION) == [with_parts(info, *parts)]


async def five_thousand_messages_of_one_millisecond_are_in_order(store: Store) -> None:
    mint = seeded_mint(HandClock(WRAP - 1).now)
    messages = [answer(mint.message(), created=WRAP - 1) for _ in range(5000)]
    for start in range(0, 5000, 1000):
        await store.apply(*(MessageUpdated(info=each) for each in reversed(messages[start : start + 1000])))
    assert [each.info for each in await store.list_messages(SESSION)] == messages


async def last_returns_the_newest_messages(store: Store) -> None:
    messages = [prompt(f"msg_{number}", created=NOW + number) for number in (3, 1, 2)]
    await store.apply(*(MessageUpdated(info=each) for each in messages))
    newest = [with_parts(messages[2]), with_parts(messages[0])]
    assert await store.list_messages(SESSION, last=2) == newest
    assert await store.list_messages(SESSION, last=9) == [with_parts(messages[1]), *newest]
    assert await store.list_messages(SESSION, last=0) == []


# --- growth ---


async def growth_is_part_of_the_text(store: Store) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "")))
    told = ""
    for number in range(100):
        await store.apply(growth("prt_1", f"{number} ", len(told)))
        told += f"{number} "
    assert await find_text(store) == told


async def applying_growth_twice_equals_applying_it_once(store: Store) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "a")))
    for _ in range(2):
        await store.apply(growth("prt_1", "bc", 1))
        assert await find_text(store) == "abc"
    await store.apply(growth("prt_1", "b", 1))  # the beginning of what was said
    assert await find_text(store) == "abc"
    await store.apply(growth("prt_1", "X", 2))
    assert await find_text(store) == "abX"


async def growth_that_does_not_fit_changes_nothing(store: Store) -> None:
    tool = ToolPart(
        id=PartID("prt_2"),
        session_id=SESSION,
        message_id=PROMPT,
        call_id="c",
        tool="bash",
        state=CompletedState(input={}, output="o", title="", metadata={}, time=CallTime(start=1, end=2)),
    )
    await store.apply(
        MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "ab")), PartUpdated(part=tool)
    )
    await store.apply(growth("prt_1", "far", 3))
    await store.apply(growth("prt_2", "no text", 0))
    await store.apply(growth("prt_3", "nobody", 0))
    await store.apply(growth("prt_1", "nobody", 0, of="msg_none"))
    await store.apply(replace(growth("prt_1", "title", 0), field="title"))
    expected = [with_parts(prompt(), text("prt_1", "ab"), tool)]
    assert await store.list_messages(SESSION) == expected
    await store.apply(growth("prt_1", "c", 2))
    assert await find_text(store) == "abc"


async def a_replaced_part_has_no_earlier_growth(store: Store) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "")))
    await store.apply(growth("prt_1", "first", 0))
    await store.apply(PartUpdated(part=text("prt_1", "")))
    assert await find_text(store) == ""
    await store.apply(growth("prt_1", "second", 0))
    await store.apply(PartUpdated(part=text("prt_1", "third")))
    assert await find_text(store) == "third"
    await store.apply(PartUpdated(part=text("prt_1", "")))
    assert await find_text(store) == ""


async def a_part_that_was_removed_and_added_again_has_no_earlier_growth(store: Store) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "")))
    await store.apply(growth("prt_1", "first", 0))
    await store.apply(PartRemoved(session_id=SESSION, message_id=PROMPT, part_id=PartID("prt_1")))
    assert await find_text(store) is None
    await store.apply(growth("prt_1", "nobody", 0))
    await store.apply(PartUpdated(part=text("prt_1", "")))
    assert await find_text(store) == ""


async def growth_is_stored_together_with_other_events(store: Store) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "a")))
    await store.apply(growth("prt_1", "b", 1))
    await store.apply(growth("prt_1", "c", 2), PartUpdated(part=text("prt_2", "x")), growth("prt_2", "y", 1))
    await store.apply(growth("prt_1", "d", 3))
    await store.apply(growth("prt_1", "e", 4), growth("prt_2", "z", 2))
    assert (await find_text(store), await find_text(store, "prt_2")) == ("abcde", "xyz")


# --- unknown fields and hostile text ---


async def unknown_fields_are_stored_unchanged(store: Store) -> None:
    raw = to_plain(session()) | {
        "mood": {"deep": [1, "two"]},
        "time": {"created": NOW, "updated": 1, "seen": 7},
    }
    known = decode(encode(raw), SessionInfo)
    await store.apply(SessionCreated(info=known))
    await store.edit(SESSION, lambda found: replace(found, title="renamed"))
    assert to_plain(await store.get_session(SESSION)) == raw | {"title": "renamed"}


async def parts_of_unknown_kinds_are_stored_unchanged(store: Store) -> None:
    raw = {"id": "prt_1", "sessionID": SESSION, "messageID": PROMPT, "type": "hologram", "depth": {"z": 1}}
    part = decode(encode(raw), AnyPart)
    assert isinstance(part, UnknownPart)
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=part))
    [message] = await store.list_messages(SESSION)
    assert [to_plain(each) for each in message.parts] == [raw]


async def hostile_text_is_stored_unchanged(store: Store) -> None:
    parts = [text(f"prt_{number}", each) for number, each in enumerate(HOSTILE)]
    await store.apply(MessageUpdated(info=prompt()), *(PartUpdated(part=part) for part in parts))
    assert await store.list_messages(SESSION) == [with_parts(prompt(), *parts)]
    await store.apply(MessageUpdated(info=answer()), PartUpdated(part=text("prt_g", "", of=ANSWER)))
    told = ""
    for each in HOSTILE:
        await store.apply(growth("prt_g", each, len(told), of=ANSWER))
        told += each
    assert await store.find_message(SESSION, ANSWER) == with_parts(answer(), text("prt_g", told, of=ANSWER))


READING: tuple[Check, ...] = (
    sessions_and_messages_are_in_order_when_ids_wrap_around,
    parts_are_in_order_when_ids_wrap_around,
    five_thousand_messages_of_one_millisecond_are_in_order,
    last_returns_the_newest_messages,
    growth_is_part_of_the_text,
    applying_growth_twice_equals_applying_it_once,
    growth_that_does_not_fit_changes_nothing,
    a_replaced_part_has_no_earlier_growth,
    a_part_that_was_removed_and_added_again_has_no_earlier_growth,
    growth_is_stored_together_with_other_events,
    unknown_fields_are_stored_unchanged,
    parts_of_unknown_kinds_are_stored_unchanged,
    hostile_text_is_stored_unchanged,
)


CHECKS: tuple[Check, ...] = (
    *WRITING,
    *READING,
    *KEEPING,
    *TRASHING,
    *QUERIES,
    *SEARCH,
    *LEASES,
    *CHAINS,
    *CHANGES,
)
