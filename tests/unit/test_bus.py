"""The bus: one bounded log, listeners at their own pace, and no event dropped silently."""

import asyncio
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from weft.bus import Bus, BusListener, follows, merge_growth
from weft.errors import CursorLostError
from weft.model.event import Event, FileEdited, PartGrew, PublishedEvent, SessionEvent
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.session import SessionInfo, SessionShare, SessionTime
from weft.model.wire import from_plain

HERE = "/home/ada/loom"


def edit_event(number: int) -> FileEdited:
    return FileEdited(file=f"/{number}")


def publication(cursor: int, event: Event) -> PublishedEvent:
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
    bus.publish(*map(edit_event, numbers), directory=HERE)


@pytest.mark.parametrize("kind", SessionEvent.__subclasses__())
async def test_the_secret_of_a_share_is_not_published(kind: type[SessionEvent]) -> None:
    bus, watched = Bus(), list[SessionEvent]()
    bus.watch(watched.append)
    listener = bus.listen()
    share = from_plain({"url": "https://share.test/1", "secret": "hush"}, SessionShare, where="share")
    info = SessionInfo(id=SessionID("ses_1"), time=SessionTime(created=1, updated=1), share=share)
    bus.publish(kind(info=info), directory=HERE)

    public = kind(info=replace(info, share=SessionShare(url="https://share.test/1")))
    assert watched == [public]
    assert await listener.take() == [publication(1, public)]


async def take_cursors(listener: BusListener) -> list[int]:
    return [each.cursor for each in await listener.take()]


async def let_tasks_run() -> None:
    """Let all tasks run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


# --- listening ---


async def test_a_listener_receives_later_events_in_order() -> None:
    bus = Bus()
    publish(bus, 1)
    listener = bus.listen()
    publish(bus, 2, 3)
    assert await listener.take() == [publication(2, edit_event(2)), publication(3, edit_event(3))]
    assert bus.cursor == listener.cursor == 3


async def test_a_listener_waits_for_events_and_is_woken_by_them() -> None:
    bus = Bus()
    listener = bus.listen()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(listener.take())
        await let_tasks_run()
        assert not waiting.done()
        publish(bus, 1)
    assert waiting.result() == [publication(1, edit_event(1))]


async def test_publishing_never_waits_and_needs_no_listener() -> None:
    bus = Bus(size=2)
    publish(bus, *range(1, 101))
    assert bus.cursor == 100


async def test_all_waiting_listeners_are_woken() -> None:
    bus = Bus()
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(bus.listen().take()) for _ in range(3)]
        await let_tasks_run()
        publish(bus, 1)
    assert [task.result() for task in waiting] == [[publication(1, edit_event(1))]] * 3


async def test_a_cancelled_listener_misses_nothing() -> None:
    bus = Bus()
    listener = bus.listen()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(listener.take())
        await let_tasks_run()
        waiting.cancel()
    publish(bus, 1)
    assert await take_cursors(listener) == [1]


async def test_a_listener_can_be_iterated() -> None:
    bus = Bus()
    listener = bus.listen()
    publish(bus, 1, 2, 3)
    found = []
    async for each in listener:
        found.append(each.cursor)
        if each.cursor == 3:
            break
    assert found == [1, 2, 3]


async def test_listeners_at_different_pace_receive_the_same_events() -> None:
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
    assert await take_cursors(bus.listen(after=2)) == [3, 4]
    assert await take_cursors(bus.listen(after=0)) == [1, 2, 3, 4]


async def test_resuming_at_the_end_waits() -> None:
    bus = Bus()
    publish(bus, 1)
    listener = bus.listen(after=1)
    publish(bus, 2)
    assert await take_cursors(listener) == [2]


@pytest.mark.parametrize(("after", "oldest"), [(0, 3), (1, 3), (99, 3), (-1, 3)])
def test_an_unknown_cursor_is_refused_at_once(after: int, oldest: int) -> None:
    bus = Bus(size=3)
    publish(bus, 1, 2, 3, 4, 5)
    with pytest.raises(CursorLostError) as caught:
        bus.listen(after=after)
    assert (caught.value.after, caught.value.oldest) == (after, oldest)


async def test_the_oldest_cursor_that_can_be_resumed_is_the_one_before_the_oldest_event() -> None:
    bus = Bus(size=3)
    publish(bus, 1, 2, 3, 4, 5)
    assert await take_cursors(bus.listen(after=2)) == [3, 4, 5]


def test_a_cursor_from_before_a_restart_is_refused() -> None:
    with pytest.raises(CursorLostError):
        Bus().listen(after=7)


async def test_a_listener_that_fell_behind_gets_an_error_and_can_start_again() -> None:
    bus = Bus(size=3)
    slow = bus.listen()
    publish(bus, 1, 2, 3)
    publish(bus, 4)
    with pytest.raises(CursorLostError) as caught:
        await slow.take()
    assert (caught.value.after, caught.value.oldest) == (0, 2)
    again = bus.listen()
    publish(bus, 5)
    assert await take_cursors(again) == [5]


# --- merging ---


def test_consecutive_growth_of_one_part_is_merged() -> None:
    news = [
        publication(1, growth("ab", 0)),
        publication(2, growth("c", 2)),
        publication(3, growth("d", 3)),
        publication(4, edit_event(1)),
    ]
    assert merge_growth(news) == [publication(3, growth("abcd", 0)), publication(4, edit_event(1))]


@pytest.mark.parametrize(
    "second", [growth("c", 2, part="prt_2"), growth("c", 2, field="title"), growth("c", 3), growth("c", 0)]
)
def test_growth_that_does_not_connect_is_not_merged(second: PartGrew) -> None:
    first = growth("ab", 0)
    assert not follows(first, second)
    assert merge_growth([publication(1, first), publication(2, second)]) == [
        publication(1, first),
        publication(2, second),
    ]


def test_growth_is_not_merged_across_other_events() -> None:
    news = [publication(1, growth("a", 0)), publication(2, edit_event(1)), publication(3, growth("b", 1))]
    assert merge_growth(news) == news


async def test_resuming_inside_merged_growth_gives_only_the_rest() -> None:
    bus = Bus()
    bus.publish(growth("a", 0), growth("b", 1), growth("c", 2), directory=HERE)
    assert await bus.listen(after=0).take() == [publication(3, growth("abc", 0))]
    assert await bus.listen(after=1).take() == [publication(3, growth("bc", 1))]


@given(st.lists(st.sampled_from(["prt_1", "prt_2", ""]), max_size=30), st.data())
def test_merging_does_not_change_the_folded_transcript(parts: list[str], data: st.DataObject) -> None:
    texts = {"prt_1": "", "prt_2": ""}
    news = []
    for cursor, part in enumerate(parts, start=1):
        if part:
            delta = data.draw(st.text(max_size=2))
            news.append(publication(cursor, growth(delta, len(texts[part]), part=part)))
            texts[part] += delta
        else:
            news.append(publication(cursor, edit_event(cursor)))

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


def test_a_watcher_is_called_only_for_the_kinds_that_it_named() -> None:
    bus, seen, all_seen = Bus(), list[Event](), list[Event]()
    bus.watch(all_seen.append)
    bus.publish(edit_event(1), directory=HERE)
    bus.watch(seen.append, PartGrew)
    grown = growth("a", 0)
    bus.publish(edit_event(2), grown, directory=HERE)
    assert (seen, all_seen) == ([grown], [edit_event(1), edit_event(2), grown])
