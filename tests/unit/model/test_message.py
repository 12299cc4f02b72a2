"""The order of messages and parts: by time, then by unwrapped id, never by raw id."""

from collections.abc import Iterable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import (
    AnyMessage,
    AssistantMessage,
    AssistantTime,
    UserMessage,
    message_sort_key,
    sort_parts,
)
from weft.model.part import Moment, TextPart
from weft.testing.clock import HandClock
from weft.testing.ids import seeded_mint

SESSION = SessionID("ses_1")
# The time (ms) at which the numbers in ids wrapped to zero: later ids sort before earlier ones (`weft.model.ids`).
WRAP_2026 = 1786706395136


def prompt(id: str, created: int) -> UserMessage:
    return UserMessage(id=MessageID(id), session_id=SESSION, time=Moment(created=created))


def answer(id: str, created: int) -> AssistantMessage:
    return AssistantMessage(id=MessageID(id), session_id=SESSION, time=AssistantTime(created=created))


def sort_messages(messages: Iterable[AnyMessage]) -> list[AnyMessage]:
    return sorted(messages, key=message_sort_key)


def text_part(id: str) -> TextPart:
    return TextPart(id=PartID(id), session_id=SESSION, message_id=MessageID("msg_1"), text=id)


def test_a_message_after_the_wrap_is_sorted_after_one_before_it() -> None:
    before = prompt("msg_fffffffff001AAAAAAAAAAAAAA", WRAP_2026 - 1)
    after = answer("msg_000000000001AAAAAAAAAAAAAA", WRAP_2026)
    assert sort_messages([after, before]) == [before, after]


def test_messages_of_one_millisecond_are_sorted_by_creation_even_across_the_wrap() -> None:
    made = seeded_mint(lambda: WRAP_2026)
    messages = [prompt(made.message(), WRAP_2026) for _ in range(5)]
    assert sort_messages(reversed(messages)) == messages


def test_a_message_with_a_handwritten_id_is_sorted_by_its_time() -> None:
    messages = [prompt("msg_zzz", 1), prompt("msg_hello", 2), prompt("msg_aaa", 3)]
    assert sort_messages([messages[2], messages[0], messages[1]]) == messages


def test_parts_are_sorted_by_unwrapped_id() -> None:
    clock = HandClock(WRAP_2026 - 2)
    mint = seeded_mint(clock.now)
    parts = []
    for _ in range(4):
        parts.append(text_part(mint.part()))
        clock.turn(1)
    assert sort_parts(reversed(parts), prompt("msg_1", WRAP_2026 - 2)) == tuple(parts)


@given(st.lists(st.integers(0, 3), max_size=12), st.randoms())
def test_the_order_does_not_depend_on_the_order_of_reading(steps: list[int], dice: Random) -> None:
    clock = HandClock(WRAP_2026 - 3)
    mint = seeded_mint(clock.now)
    messages = []
    for step in steps:
        clock.turn(step)
        messages.append(prompt(mint.message(), clock.now()))
    read = messages.copy()
    dice.shuffle(read)
    assert sort_messages(read) == messages
