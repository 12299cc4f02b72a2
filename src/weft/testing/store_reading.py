"""What every store must give back when it is read: checks of order, growth and documents that are hard to keep."""

from msgspec.structs import replace

from weft.model.event import MessageUpdated, PartRemoved, PartUpdated, SessionCreated
from weft.model.ids import PartID
from weft.model.message import AnyMessage
from weft.model.part import AnyPart, CallTime, CompletedState, ToolPart, UnknownPart
from weft.model.session import Session
from weft.model.wire import decode, encode, to_plain
from weft.store.contract import Store
from weft.testing.clock import HandClock
from weft.testing.ids import seeded_mint
from weft.testing.store_values import (
    ANSWER,
    HOSTILE,
    NOW,
    PROMPT,
    SESSION,
    WRAP,
    Check,
    answer,
    growth,
    prompt,
    session,
    text,
    whole,
    words,
)

# --- order ---


async def order_holds_across_the_wrap_of_ids(store: Store) -> None:
    clock = HandClock(WRAP - 2)
    mint = seeded_mint(clock.now)
    sessions: list[Session] = []
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
    known = decode(encode(raw), Session)
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
