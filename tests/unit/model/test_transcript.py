"""Events in any valid order, or a stored history, fold to the same transcript."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from weft.model.event import (
    Durable,
    Event,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    SessionIdled,
)
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AnyMessage, AssistantMessage, AssistantTime, MessageWithParts, UserMessage
from weft.model.part import AnyPart, CompactionPart, Moment, ReasoningPart, Span, TextPart
from weft.model.transcript import Transcript, grow_part
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock
from weft.testing.ids import seeded_mint

SESSION = SessionID("ses_1")
# The time (ms) at which the numbers in ids wrapped to zero: later ids sort before earlier ones (`weft.model.ids`).
WRAP_2026 = 1786706395136


def prompt(id: str, created: int) -> UserMessage:
    return UserMessage(id=MessageID(id), session_id=SESSION, time=Moment(created=created))


def answer(id: str, created: int) -> AssistantMessage:
    return AssistantMessage(id=MessageID(id), session_id=SESSION, time=AssistantTime(created=created))


def text_part(message: str, id: str, text: str = "") -> TextPart:
    return TextPart(id=PartID(id), session_id=SESSION, message_id=MessageID(message), text=text)


def growth(message: str, id: str, delta: str, offset: int) -> PartGrew:
    return PartGrew(
        session_id=SESSION,
        message_id=MessageID(message),
        part_id=PartID(id),
        field="text",
        delta=delta,
        offset=offset,
    )


def fold(*events: Event) -> list[MessageWithParts]:
    transcript = Transcript()
    transcript.feed(*events)
    return transcript.messages()


# --- growth ---


def test_growth_is_appended_at_the_end_of_the_text() -> None:
    part = text_part("msg_1", "prt_1", "ab")
    assert grow_part(part, growth("msg_1", "prt_1", "cd", 2)) == replace(part, text="abcd")


def test_repeated_growth_changes_nothing_even_if_other_growth_came_between() -> None:
    part = text_part("msg_1", "prt_1", "abcd")
    assert grow_part(part, growth("msg_1", "prt_1", "cd", 2)) == part
    assert grow_part(part, growth("msg_1", "prt_1", "ab", 0)) == part


def test_overlapping_growth_is_joined() -> None:
    assert grow_part(text_part("msg_1", "prt_1", "abc"), growth("msg_1", "prt_1", "cd", 2)).text == "abcd"


def test_growth_after_a_gap_is_ignored() -> None:
    part = text_part("msg_1", "prt_1", "ab")
    assert grow_part(part, growth("msg_1", "prt_1", "d", 3)) == part
    assert grow_part(part, growth("msg_1", "prt_1", "d", -1)) == part


def test_reasoning_grows_and_parts_without_text_do_not() -> None:
    part, message = PartID("prt_1"), MessageID("msg_1")
    thought = ReasoningPart(id=part, session_id=SESSION, message_id=message, text="a", time=Span(start=1))
    mark = CompactionPart(id=part, session_id=SESSION, message_id=message, auto=True)
    more = growth("msg_1", "prt_1", "b", 1)
    assert grow_part(thought, more) == replace(thought, text="ab")
    assert grow_part(mark, more) == mark
    assert grow_part(thought, replace(more, field="title")) == thought


# --- folding ---


def test_a_history_folds_to_messages_with_their_parts_oldest_first() -> None:
    first, second = prompt("msg_2", 1), answer("msg_1", 2)
    assert fold(
        MessageUpdated(info=second),
        MessageUpdated(info=first),
        PartUpdated(part=text_part("msg_1", "prt_2", "b")),
        PartUpdated(part=text_part("msg_1", "prt_1", "a")),
        SessionIdled(session_id=SESSION),
    ) == [
        MessageWithParts(info=first, parts=()),
        MessageWithParts(
            info=second, parts=(text_part("msg_1", "prt_1", "a"), text_part("msg_1", "prt_2", "b"))
        ),
    ]


def test_a_part_that_arrives_before_its_message_waits_for_it() -> None:
    part = PartUpdated(part=text_part("msg_1", "prt_1", "a"))
    grew = growth("msg_1", "prt_1", "b", 1)
    assert fold(part, grew) == []
    assert fold(part, grew, MessageUpdated(info=prompt("msg_1", 1))) == [
        MessageWithParts(info=prompt("msg_1", 1), parts=(text_part("msg_1", "prt_1", "ab"),))
    ]


def test_removing_a_message_removes_its_parts() -> None:
    said = MessageUpdated(info=prompt("msg_1", 1))
    part = PartUpdated(part=text_part("msg_1", "prt_1", "a"))
    gone = MessageRemoved(session_id=SESSION, message_id=MessageID("msg_1"))
    assert fold(said, part, gone, gone) == []
    assert fold(said, part, gone, said) == [MessageWithParts(info=prompt("msg_1", 1), parts=())]


def test_a_message_whose_time_changed_is_moved() -> None:
    transcript = Transcript()
    transcript.feed(MessageUpdated(info=prompt("msg_1", 1)), MessageUpdated(info=prompt("msg_2", 2)))
    transcript.feed(MessageUpdated(info=prompt("msg_1", 3)))
    assert [message.info.id for message in transcript.messages()] == ["msg_2", "msg_1"]


def test_one_message_can_be_looked_up() -> None:
    transcript = Transcript([MessageWithParts(info=prompt("msg_1", 1), parts=(text_part("msg_1", "prt_1"),))])
    assert transcript.find(MessageID("msg_1")) == transcript.messages()[0]
    assert transcript.find(MessageID("msg_2")) is None


def test_unchanged_messages_are_the_same_objects_and_changes_are_visible_at_once() -> None:
    transcript = Transcript()
    said = [MessageUpdated(info=prompt(f"msg_{number}", number)) for number in (1, 2, 3)]
    transcript.feed(*said)
    one, two, three = transcript.messages()
    transcript.feed(PartUpdated(part=text_part("msg_2", "prt_1", "a")))
    first, second, last = transcript.messages()
    assert (first is one, last is three) == (True, True)
    assert second == replace(two, parts=(text_part("msg_2", "prt_1", "a"),))
    assert transcript.find(MessageID("msg_2")) is second
    transcript.feed(MessageRemoved(session_id=SESSION, message_id=MessageID("msg_3")))
    assert transcript.messages() == [first, second]
    transcript.feed(MessageRemoved(session_id=SESSION, message_id=MessageID("msg_1")), said[2])
    assert transcript.messages() == [second, three]


def test_new_messages_are_later_than_all_others_and_have_distinct_times() -> None:
    transcript = Transcript([MessageWithParts(info=prompt("msg_1", 7), parts=())])
    assert [transcript.next_time(now) for now in (3, 3, 20, 20, 4)] == [8, 9, 20, 21, 22]
    transcript.feed(MessageUpdated(info=prompt("msg_2", 50)))
    assert transcript.next_time(30) == 51
    assert Transcript().next_time(30) == 30


# --- any order, any history ---


def history(steps: list[tuple[int, int]]) -> list[MessageWithParts]:
    """Return a conversation across the wrap: messages some milliseconds apart, each with some parts."""
    clock = HandClock(WRAP_2026 - 5)
    mint = seeded_mint(clock.now)
    stored = []
    for number, (wait, parts) in enumerate(steps):
        clock.turn(wait)
        say = prompt if number % 2 == 0 else answer
        info: AnyMessage = say(mint.message(), clock.now())
        made: list[AnyPart] = []
        for count in range(parts):
            made.append(text_part(info.id, mint.part(), f"{number}.{count}"))
            clock.turn(wait)
        stored.append(MessageWithParts(info=info, parts=tuple(made)))
    return stored


STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=8)


@given(STEPS, st.randoms())
def test_messages_and_parts_may_arrive_in_any_order(steps: list[tuple[int, int]], dice: Random) -> None:
    stored = history(steps)
    events: list[Event] = [MessageUpdated(info=message.info) for message in stored]
    events += [PartUpdated(part=part) for message in stored for part in message.parts]
    dice.shuffle(events)
    assert fold(*events) == stored
    assert Transcript(stored).messages() == stored
    assert Transcript(reversed(stored)).messages() == stored


def list_events(steps: list[tuple[int, int]], dice: Random) -> list[Durable]:
    """Return the events of a conversation: every part is added, grows, is replaced, and some are removed."""
    events: list[Durable] = []
    for message in history(steps):
        events.append(MessageUpdated(info=message.info))
        for part in message.parts:
            events += list_events_of(part, dice)
        if dice.random() < 0.1:
            events.append(MessageRemoved(session_id=SESSION, message_id=message.info.id))
    return events


def list_events_of(part: AnyPart, dice: Random) -> list[Durable]:
    assert isinstance(part, TextPart)
    events: list[Durable] = [PartUpdated(part=replace(part, text=""))]
    events += [growth(part.message_id, part.id, letter, at) for at, letter in enumerate(part.text)]
    ending = dice.random()
    if ending < 0.2:
        events.append(PartRemoved(session_id=SESSION, message_id=part.message_id, part_id=part.id))
    elif ending < 0.7:
        events.append(PartUpdated(part=replace(part, time=Span(start=1, end=2))))
    return events


@given(STEPS, st.randoms(), st.floats(0, 1))
def test_a_stored_history_plus_later_events_equals_all_events(
    steps: list[tuple[int, int]], dice: Random, share: float
) -> None:
    events = list_events(steps, dice)
    cut = int(len(events) * share)
    resumed = Transcript(fold(*events[:cut]))
    resumed.feed(*events[cut:])
    assert resumed.messages() == fold(*events)


@given(STEPS, st.randoms())
def test_a_transcript_can_be_read_between_events(steps: list[tuple[int, int]], dice: Random) -> None:
    events, transcript = list_events(steps, dice), Transcript()
    for number, event in enumerate(events, 1):
        transcript.feed(event)
        assert transcript.messages() == fold(*events[:number])


@given(STEPS, st.randoms())
def test_folding_every_event_twice_equals_folding_it_once(steps: list[tuple[int, int]], dice: Random) -> None:
    events = list_events(steps, dice)
    assert fold(*(event for event in events for _ in range(2))) == fold(*events)


@given(STEPS, st.randoms())
def test_old_growth_does_not_remove_text(steps: list[tuple[int, int]], dice: Random) -> None:
    events = list_events(steps, dice)
    old = [event for event in events if isinstance(event, PartGrew)]
    assert fold(*events, *old) == fold(*events)
    dice.shuffle(old)
    assert fold(*events, *old) == fold(*events)


@pytest.mark.parametrize("seed", range(5))
async def test_the_memory_store_and_a_fold_of_its_events_agree(seed: int) -> None:
    dice = Random(seed)
    events = list_events([(dice.randrange(3), dice.randrange(4)) for _ in range(12)], dice)
    store = MemoryStore()
    for event in events:
        await store.apply(event)
    assert await store.list_messages(SESSION) == fold(*events)
