"""The bus: one bounded log, listeners at their own pace, and no event dropped silently."""

import asyncio
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.bus import Bus, BusListener, follows, merge_growth
from weft.errors import CursorLostError
from weft.model.event import Event, FileEdited, PartGrew, PublishedEvent
from weft.model.ids import MessageID, PartID, SessionID

HERE = "/home/ada/loom"


def edited(number: int) -> FileEdited:
    return FileEdited(file=f"/{number}")


def published(cursor: int, event: Event) -> PublishedEvent:
    return PublishedEvent(cursor=cursor, directory=HERE, event=event)


def growth(delta: str, offset: int, *, part: str = "prt_1", field: str = "text") -> PartGrew:
    return PartGrew(
        session_id=SessionID("ses_1"),
        message_id=MessageID("msg_1"),
        part_id=PartID(part),
        field=field,
        delta=delta,
        offset=offset,
    )


def publish(bus: Bus, *numbers: int) -> None:
    bus.publish(*map(edited, numbers), directory=HERE)


async def heard(listener: BusListener) -> list[int]:
    return [each.cursor for each in await listener.take()]


async def settled() -> None:
    """Let all tasks run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


# --- listening ---


async def test_a_listener_hears_what_is_told_from_now_on_in_order() -> None:
    bus = Bus()
    publish(bus, 1)
    listener = bus.listen()
    publish(bus, 2, 3)
    assert await listener.take() == [published(2, edited(2)), published(3, edited(3))]
    assert bus.cursor == listener.cursor == 3


async def test_a_listener_waits_for_news_and_is_woken_by_it() -> None:
    bus = Bus()
    listener = bus.listen()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(listener.take())
        await settled()
        assert not waiting.done()
        publish(bus, 1)
    assert waiting.result() == [published(1, edited(1))]


async def test_publishing_never_waits_and_needs_nobody_to_listen() -> None:
    bus = Bus(size=2)
    publish(bus, *range(1, 101))
    assert bus.cursor == 100


async def test_all_who_wait_are_woken() -> None:
    bus = Bus()
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(bus.listen().take()) for _ in range(3)]
        await settled()
        publish(bus, 1)
    assert [task.result() for task in waiting] == [[published(1, edited(1))]] * 3


async def test_a_cancelled_listener_misses_nothing() -> None:
    bus = Bus()
    listener = bus.listen()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(listener.take())
        await settled()
        waiting.cancel()
    publish(bus, 1)
    assert await heard(listener) == [1]


async def test_a_listener_can_be_walked_through() -> None:
    bus = Bus()
    listener = bus.listen()
    publish(bus, 1, 2, 3)
    found = []
    async for each in listener:
        found.append(each.cursor)
        if each.cursor == 3:
            break
    assert found == [1, 2, 3]


async def test_listeners_at_different_pace_hear_the_same_story() -> None:
    bus = Bus()
    quick, slow = bus.listen(), bus.listen()
    quickly = []
    for number in range(1, 6):
        publish(bus, number)
        quickly += await quick.take()
    assert await slow.take() == quickly


# --- resuming ---


async def test_a_listener_resumes_just_after_a_cursor() -> None:
    bus = Bus()
    publish(bus, 1, 2, 3, 4)
    assert await heard(bus.listen(after=2)) == [3, 4]
    assert await heard(bus.listen(after=0)) == [1, 2, 3, 4]


async def test_resuming_at_the_end_waits() -> None:
    bus = Bus()
    publish(bus, 1)
    listener = bus.listen(after=1)
    publish(bus, 2)
    assert await heard(listener) == [2]


@pytest.mark.parametrize(("after", "oldest"), [(0, 3), (1, 3), (99, 3), (-1, 3)])
def test_a_cursor_that_is_not_held_is_refused_at_once(after: int, oldest: int) -> None:
    bus = Bus(size=3)
    publish(bus, 1, 2, 3, 4, 5)
    with pytest.raises(CursorLostError) as caught:
        bus.listen(after=after)
    assert (caught.value.after, caught.value.oldest) == (after, oldest)


async def test_the_oldest_cursor_that_can_be_resumed_is_the_one_before_the_oldest_event() -> None:
    bus = Bus(size=3)
    publish(bus, 1, 2, 3, 4, 5)
    assert await heard(bus.listen(after=2)) == [3, 4, 5]


def test_a_cursor_of_an_earlier_life_of_the_server_is_refused() -> None:
    with pytest.raises(CursorLostError):
        Bus().listen(after=7)


async def test_a_listener_that_fell_behind_is_told_so_and_can_start_anew() -> None:
    bus = Bus(size=3)
    slow = bus.listen()
    publish(bus, 1, 2, 3)
    publish(bus, 4)
    with pytest.raises(CursorLostError) as caught:
        await slow.take()
    assert (caught.value.after, caught.value.oldest) == (0, 2)
    again = bus.listen()
    publish(bus, 5)
    assert await heard(again) == [5]


# --- merging ---


def test_neighbouring_growth_of_one_part_becomes_one() -> None:
    news = [
        published(1, growth("ab", 0)),
        published(2, growth("c", 2)),
        published(3, growth("d", 3)),
        published(4, edited(1)),
    ]
    assert merge_growth(news) == [published(3, growth("abcd", 0)), published(4, edited(1))]


@pytest.mark.parametrize(
    "second", [growth("c", 2, part="prt_2"), growth("c", 2, field="title"), growth("c", 3), growth("c", 0)]
)
def test_growth_that_does_not_join_on_stays_apart(second: PartGrew) -> None:
    first = growth("ab", 0)
    assert not follows(first, second)
    assert merge_growth([published(1, first), published(2, second)]) == [
        published(1, first),
        published(2, second),
    ]


def test_what_happened_in_between_keeps_growth_apart() -> None:
    news = [published(1, growth("a", 0)), published(2, edited(1)), published(3, growth("b", 1))]
    assert merge_growth(news) == news


async def test_resuming_inside_merged_growth_gives_only_the_rest() -> None:
    bus = Bus()
    bus.publish(growth("a", 0), growth("b", 1), growth("c", 2), directory=HERE)
    assert await bus.listen(after=0).take() == [published(3, growth("abc", 0))]
    assert await bus.listen(after=1).take() == [published(3, growth("bc", 1))]


@given(st.lists(st.sampled_from(["prt_1", "prt_2", ""]), max_size=30), st.data())
def test_merging_changes_the_words_and_not_the_story(parts: list[str], data: st.DataObject) -> None:
    texts = {"prt_1": "", "prt_2": ""}
    news = []
    for cursor, part in enumerate(parts, start=1):
        if part:
            delta = data.draw(st.text(max_size=2))
            news.append(published(cursor, growth(delta, len(texts[part]), part=part)))
            texts[part] += delta
        else:
            news.append(published(cursor, edited(cursor)))

    fewer = merge_growth(news)
    spelled = dict.fromkeys(texts, "")
    for each in fewer:
        if isinstance(each.event, PartGrew):
            assert each.event.offset == len(spelled[each.event.part_id])
            spelled[each.event.part_id] += each.event.delta
    assert spelled == texts
    assert [each for each in fewer if isinstance(each.event, FileEdited)] == [
        each for each in news if isinstance(each.event, FileEdited)
    ]
    assert [each.cursor for each in fewer[-1:]] == [each.cursor for each in islice(reversed(news), 1)]
