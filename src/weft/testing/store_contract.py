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
from weft.testing.store_leases import LEASES
from weft.testing.store_queries import QUERIES
from weft.testing.store_search import SEARCH
from weft.testing.store_values import (
    ANSWER,
    HOSTILE,
    NOW,
    PROJECT,
    PROMPT,
    SESSION,
    WRAP,
    Check,
    answer,
    growth,
    missing,
    prompt,
    session,
    text,
    whole,
    words,
)
from weft.testing.store_writes import WRITING, deleting_a_session_takes_all_that_is_its_own


async def an_edit_gives_back_what_it_stored(store: Store) -> None:
    await store.apply(SessionCreated(info=session(title="one")))
    edited = await store.edit(SESSION, lambda known: replace(known, title=known.title + " two"))
    assert edited == session(title="one two")
    assert await store.get_session(SESSION) == edited


async def editing_what_is_not_there_says_so(store: Store) -> None:
    error = await missing(store.edit(SESSION, lambda known: known))
    assert (error.kind, error.id) == ("session", SESSION)
    assert await store.list_sessions() == []


async def an_edit_that_fails_changes_nothing(store: Store) -> None:
    def refuse(_: SessionInfo) -> SessionInfo:
        raise ValueError("no")

    await store.apply(SessionCreated(info=session()))
    try:
        await store.edit(SESSION, refuse)
    except ValueError:
        assert await store.get_session(SESSION) == session()
    else:
        raise AssertionError("no ValueError")


async def edits_at_once_are_all_kept(store: Store) -> None:
    def one_more(known: SessionInfo) -> SessionInfo:
        return replace(known, time=replace(known.time, updated=known.time.updated + 1))

    await store.apply(SessionCreated(info=session()))
    await asyncio.gather(*(store.edit(SESSION, one_more) for _ in range(20)))
    assert (await store.get_session(SESSION)).time.updated == NOW + 20


async def what_is_kept_comes_back_until_it_is_forgotten(store: Store) -> None:
    for key in (("session_share", SESSION), ("permission", PROJECT), ("lease", "runs", SESSION), ("alone",)):
        value: Any = {"id": SESSION, "secret": "s", "deep": [1, None, {"a": True}], "half": "\ud83d"}
        await store.put_value(key, value)
        assert await store.find_value(key) == value
        await store.put_value(key, [])
        assert await store.find_value(key) == []
        await store.put_value(key, None)
        await store.put_value(key, None)
        assert await store.find_value(key) is None


async def what_is_kept_does_not_change_with_what_was_given(store: Store) -> None:
    given = {"list": [1]}
    await store.put_value(("a", "b"), given)
    given["list"].append(2)
    found = await store.find_value(("a", "b"))
    assert found == {"list": [1]}
    found["list"].append(3)
    assert await store.find_value(("a", "b")) == {"list": [1]}


async def what_is_kept_is_reworked_in_one_step(store: Store) -> None:
    def one_more(known: Any) -> Any:
        return {"count": (known or {"count": 0})["count"] + 1}

    new_value = await asyncio.gather(*(store.update_value(("a", "b"), one_more) for _ in range(20)))
    assert sorted(each["count"] for each in new_value) == list(range(1, 21))
    assert await store.find_value(("a", "b")) == {"count": 20}
    assert await store.update_value(("a", "b"), lambda _: None) is None
    assert await store.find_value(("a", "b")) is None


async def a_rework_that_fails_changes_nothing(store: Store) -> None:
    def refuse(_: Any) -> Any:
        raise ValueError("no")

    await store.put_value(("a", "b"), 1)
    try:
        await store.update_value(("a", "b"), refuse)
    except ValueError:
        assert await store.find_value(("a", "b")) == 1
    else:
        raise AssertionError("no ValueError")


async def a_sound_store_has_no_damage(store: Store) -> None:
    await deleting_a_session_takes_all_that_is_its_own(store)
    await store.put_value(("a", "b"), 1)
    await store.apply(PartUpdated(part=text("prt_1", "")))
    await store.apply(growth("prt_1", "a", 0))
    assert await store.damage() == []


KEEPING: tuple[Check, ...] = (
    an_edit_gives_back_what_it_stored,
    editing_what_is_not_there_says_so,
    an_edit_that_fails_changes_nothing,
    edits_at_once_are_all_kept,
    what_is_kept_comes_back_until_it_is_forgotten,
    what_is_kept_does_not_change_with_what_was_given,
    what_is_kept_is_reworked_in_one_step,
    a_rework_that_fails_changes_nothing,
    a_sound_store_has_no_damage,
)


OTHER = SessionID("ses_2")
AT = NOW + 1000
NAME = f"{AT}-{SESSION}"


def full(id: SessionID, message: str) -> list[Durable]:
    """Return events that create a session with something of every kind."""
    return [
        SessionCreated(info=session(id)),
        MessageUpdated(info=prompt(message, of=id)),
        PartUpdated(part=text("prt_1", "a", of=message, session=id)),
        PartUpdated(part=text("prt_2", "b", of=message, session=id)),
        SessionDiffed(session_id=id, diff=(FileDiff(file=id, additions=1, deletions=0),)),
        TodoUpdated(session_id=id, todos=(Todo(content=id, status="pending", priority="low"),)),
    ]


async def everything(store: Store) -> list[object]:
    """Return all that the store holds about both sessions."""
    return [
        await store.list_sessions(),
        *[await store.list_messages(id) for id in (SESSION, OTHER)],
        *[await store.list_diff(id) for id in (SESSION, OTHER)],
        *[await store.list_todos(id) for id in (SESSION, OTHER)],
    ]


async def what_is_discarded_is_out_of_sight_and_comes_back_as_it_was(store: Store) -> None:
    await store.apply(*full(SESSION, PROMPT), *full(OTHER, "msg_9"))
    await store.apply(growth("prt_1", "more", 1))
    before = await everything(store)
    trashed = await store.discard([SESSION, OTHER], at=AT)
    assert trashed == TrashBundle(id=NAME, time=AT, sessions=(session(), session(OTHER)))
    assert await everything(store) == [[], [], [], [], [], [], []]
    assert await store.list_trash() == [trashed]
    found = await store.read_bundle(NAME)
    assert [each.info for each in found] == [session(), session(OTHER)]
    assert [list(each.messages) for each in found] == before[1:3]
    assert [list(each.diff) for each in found] == before[3:5]
    assert [list(each.todos) for each in found] == before[5:7]
    assert await store.restore(NAME) == trashed
    assert await everything(store) == before
    assert await store.list_trash() == []
    assert await store.damage() == []


async def discarding_one_session_leaves_the_others_alone(store: Store) -> None:
    await store.apply(*full(SESSION, PROMPT), *full(OTHER, "msg_9"))
    await store.discard([SESSION], at=AT)
    assert await store.list_sessions() == [session(OTHER)]
    assert len(await store.list_messages(OTHER)) == 1
    assert await store.list_messages(SESSION) == []


async def a_session_can_be_discarded_again_and_again(store: Store) -> None:
    await store.apply(*full(SESSION, PROMPT))
    before = await everything(store)
    for _ in range(2):
        await store.discard([SESSION], at=AT)
        await store.restore(NAME)
    assert await everything(store) == before
    await store.apply(SessionUpdated(info=session(title="another")))
    await store.discard([SESSION], at=AT + 1)
    await store.restore(f"{AT + 1}-{SESSION}")
    assert (await store.get_session(SESSION)).title == "another"


async def discarding_with_one_that_is_not_there_discards_nothing(store: Store) -> None:
    await store.apply(*full(SESSION, PROMPT))
    before = await everything(store)
    assert (await missing(store.discard([SESSION, OTHER], at=AT))).id == OTHER
    assert await everything(store) == before
    assert await store.list_trash() == []


async def nothing_is_restored_over_a_session_that_is_there(store: Store) -> None:
    await store.apply(*full(SESSION, PROMPT), *full(OTHER, "msg_9"))
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


async def what_is_purged_is_gone_for_good(store: Store) -> None:
    await store.apply(*full(SESSION, PROMPT))
    await store.discard([SESSION], at=AT)
    await store.purge(NAME)
    assert await store.list_trash() == []
    for gone in (store.restore(NAME), store.purge(NAME), store.read_bundle(NAME)):
        assert (await missing(gone)).id == NAME
    assert await everything(store) == [[], [], [], [], [], [], []]


async def bundles_are_listed_oldest_first(store: Store) -> None:
    await store.apply(*full(SESSION, PROMPT), *full(OTHER, "msg_9"))
    second = await store.discard([SESSION], at=AT + 5)
    first = await store.discard([OTHER], at=AT)
    assert await store.list_trash() == [first, second]


async def messages_come_page_by_page(store: Store) -> None:
    infos = [prompt(f"msg_{number}", created=NOW + number) for number in range(5)]
    await store.apply(SessionCreated(info=session()), *(MessageUpdated(info=info) for info in infos))

    async def page(last: int | None, before: int) -> list[MessageWithParts]:
        return await store.list_messages(SESSION, last=last, before=infos[before].id)

    assert await page(2, 4) == [whole(infos[2]), whole(infos[3])]
    assert await page(2, 1) == [whole(infos[0])]
    assert await page(2, 0) == []
    assert await page(None, 2) == [whole(infos[0]), whole(infos[1])]
    nowhere = MessageID("msg_nowhere")
    assert (await missing(store.list_messages(SESSION, before=nowhere))).id == nowhere


TRASHING: tuple[Check, ...] = (
    what_is_discarded_is_out_of_sight_and_comes_back_as_it_was,
    discarding_one_session_leaves_the_others_alone,
    a_session_can_be_discarded_again_and_again,
    discarding_with_one_that_is_not_there_discards_nothing,
    nothing_is_restored_over_a_session_that_is_there,
    what_is_purged_is_gone_for_good,
    bundles_are_listed_oldest_first,
    messages_come_page_by_page,
)


# --- order ---


async def order_holds_across_the_wrap_of_ids(store: Store) -> None:
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
    assert await store.list_messages(SESSION) == [whole(each) for each in messages]
    assert await store.list_messages(SESSION, last=3) == [whole(each) for each in messages[-3:]]


async def parts_stand_in_order_across_the_wrap_of_ids(store: Store) -> None:
    clock = HandClock(WRAP - 1)
    mint = seeded_mint(clock.now)
    info = answer(mint.message(), created=clock.now())
    parts = []
    for number in range(4):
        parts.append(text(mint.part(), str(number), of=info.id))
        clock.turn(1)
    await store.apply(MessageUpdated(info=info), *(PartUpdated(part=part) for part in reversed(parts)))
    assert await store.list_messages(SESSION) == [whole(info, *parts)]


async def five_thousand_messages_of_one_millisecond_stand_in_order(store: Store) -> None:
    mint = seeded_mint(HandClock(WRAP - 1).now)
    messages = [answer(mint.message(), created=WRAP - 1) for _ in range(5000)]
    for start in range(0, 5000, 1000):
        await store.apply(*(MessageUpdated(info=each) for each in reversed(messages[start : start + 1000])))
    assert [each.info for each in await store.list_messages(SESSION)] == messages


async def the_last_few_messages_are_the_newest(store: Store) -> None:
    messages = [prompt(f"msg_{number}", created=NOW + number) for number in (3, 1, 2)]
    await store.apply(*(MessageUpdated(info=each) for each in messages))
    newest = [whole(messages[2]), whole(messages[0])]
    assert await store.list_messages(SESSION, last=2) == newest
    assert await store.list_messages(SESSION, last=9) == [whole(messages[1]), *newest]
    assert await store.list_messages(SESSION, last=0) == []


# --- growth ---


async def growth_is_read_back(store: Store) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "")))
    told = ""
    for number in range(100):
        await store.apply(growth("prt_1", f"{number} ", len(told)))
        told += f"{number} "
    assert await words(store) == told


async def saying_growth_twice_changes_nothing(store: Store) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "a")))
    for _ in range(2):
        await store.apply(growth("prt_1", "bc", 1))
        assert await words(store) == "abc"
    await store.apply(growth("prt_1", "b", 1))  # the beginning of what was said
    assert await words(store) == "abc"
    await store.apply(growth("prt_1", "X", 2))
    assert await words(store) == "abX"


async def growth_that_does_not_join_on_changes_nothing(store: Store) -> None:
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
    expected = [whole(prompt(), text("prt_1", "ab"), tool)]
    assert await store.list_messages(SESSION) == expected
    await store.apply(growth("prt_1", "c", 2))
    assert await words(store) == "abc"


async def a_part_put_anew_has_no_old_growth(store: Store) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "")))
    await store.apply(growth("prt_1", "first", 0))
    await store.apply(PartUpdated(part=text("prt_1", "")))
    assert await words(store) == ""
    await store.apply(growth("prt_1", "second", 0))
    await store.apply(PartUpdated(part=text("prt_1", "third")))
    assert await words(store) == "third"
    await store.apply(PartUpdated(part=text("prt_1", "")))
    assert await words(store) == ""


async def a_part_removed_and_put_again_has_no_old_growth(store: Store) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "")))
    await store.apply(growth("prt_1", "first", 0))
    await store.apply(PartRemoved(session_id=SESSION, message_id=PROMPT, part_id=PartID("prt_1")))
    assert await words(store) is None
    await store.apply(growth("prt_1", "nobody", 0))
    await store.apply(PartUpdated(part=text("prt_1", "")))
    assert await words(store) == ""


async def growth_beside_other_events_is_stored_with_them(store: Store) -> None:
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "a")))
    await store.apply(growth("prt_1", "b", 1))
    await store.apply(growth("prt_1", "c", 2), PartUpdated(part=text("prt_2", "x")), growth("prt_2", "y", 1))
    await store.apply(growth("prt_1", "d", 3))
    await store.apply(growth("prt_1", "e", 4), growth("prt_2", "z", 2))
    assert (await words(store), await words(store, "prt_2")) == ("abcde", "xyz")


# --- what we do not know, and what is hard to write ---


async def what_we_do_not_know_is_still_there(store: Store) -> None:
    raw = to_plain(session()) | {
        "mood": {"deep": [1, "two"]},
        "time": {"created": NOW, "updated": 1, "seen": 7},
    }
    known = decode(encode(raw), SessionInfo)
    await store.apply(SessionCreated(info=known))
    await store.edit(SESSION, lambda found: replace(found, title="renamed"))
    assert to_plain(await store.get_session(SESSION)) == raw | {"title": "renamed"}


async def parts_of_a_kind_we_do_not_know_are_kept(store: Store) -> None:
    raw = {"id": "prt_1", "sessionID": SESSION, "messageID": PROMPT, "type": "hologram", "depth": {"z": 1}}
    part = decode(encode(raw), AnyPart)
    assert isinstance(part, UnknownPart)
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=part))
    [message] = await store.list_messages(SESSION)
    assert [to_plain(each) for each in message.parts] == [raw]


async def hostile_text_comes_back_exactly(store: Store) -> None:
    parts = [text(f"prt_{number}", each) for number, each in enumerate(HOSTILE)]
    await store.apply(MessageUpdated(info=prompt()), *(PartUpdated(part=part) for part in parts))
    assert await store.list_messages(SESSION) == [whole(prompt(), *parts)]
    await store.apply(MessageUpdated(info=answer()), PartUpdated(part=text("prt_g", "", of=ANSWER)))
    told = ""
    for each in HOSTILE:
        await store.apply(growth("prt_g", each, len(told), of=ANSWER))
        told += each
    assert await store.find_message(SESSION, ANSWER) == whole(answer(), text("prt_g", told, of=ANSWER))


READING: tuple[Check, ...] = (
    order_holds_across_the_wrap_of_ids,
    parts_stand_in_order_across_the_wrap_of_ids,
    five_thousand_messages_of_one_millisecond_stand_in_order,
    the_last_few_messages_are_the_newest,
    growth_is_read_back,
    saying_growth_twice_changes_nothing,
    growth_that_does_not_join_on_changes_nothing,
    a_part_put_anew_has_no_old_growth,
    a_part_removed_and_put_again_has_no_old_growth,
    growth_beside_other_events_is_stored_with_them,
    what_we_do_not_know_is_still_there,
    parts_of_a_kind_we_do_not_know_are_kept,
    hostile_text_comes_back_exactly,
)


CHECKS: tuple[Check, ...] = (*WRITING, *READING, *KEEPING, *TRASHING, *QUERIES, *SEARCH, *LEASES, *CHAINS)
