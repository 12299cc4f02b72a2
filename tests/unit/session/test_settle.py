"""Settling what a dead run left open."""

from decimal import Decimal
from typing import Any

from msgspec.structs import replace

from given.conversation import SESSION, assistant_message, ids, text, tool_part, user_message
from weft.model.event import MessageUpdated, PartUpdated
from weft.model.failure import aborted_failure
from weft.model.message import AssistantMessage, AssistantTime, MessageWithParts
from weft.model.part import (
    CallTime,
    ErrorState,
    PendingState,
    ReasoningPart,
    RunningState,
    Span,
    StepStartPart,
    ToolPart,
)
from weft.model.transcript import Transcript
from weft.session.settle import INTERRUPTED, INTERRUPTED_ANSWER, ClosedHistories, to_settling_events

BEGUN = 2


def unfinished_answer(*parts: Any, finish: str | None = None) -> MessageWithParts:
    message = assistant_message("A1", 2, "U1", *parts, finish=finish)
    assert isinstance(message.info, AssistantMessage)
    return replace(message, info=replace(message.info, time=replace(message.info.time, completed=None)))


def test_a_complete_history_is_unchanged() -> None:
    assert (
        to_settling_events(
            [user_message("U1", 1), assistant_message("A1", 2, "U1", text("A1", "done"), tool_part("A1", 2))]
        )
        == []
    )


def test_an_open_answer_gets_an_end_and_the_reason() -> None:
    (event,) = to_settling_events([user_message("U1", 1), unfinished_answer(StepStartPart(**ids("A1", 1)))])

    assert isinstance(event, MessageUpdated)
    assert isinstance(event.info, AssistantMessage)
    assert event.info.time.completed == BEGUN
    assert event.info.error == aborted_failure(INTERRUPTED_ANSWER)


def test_a_complete_but_unclosed_answer_is_closed_without_an_error() -> None:
    (event,) = to_settling_events([unfinished_answer(text("A1", "whole"), finish="stop")])

    assert isinstance(event, MessageUpdated)
    assert isinstance(event.info, AssistantMessage)
    assert (event.info.error, event.info.time.completed) == (None, BEGUN)


def test_the_cost_of_an_answer_that_a_death_cut_off_is_unknown() -> None:
    answer = unfinished_answer(text("A1", "half a sent", time=Span(start=3)))
    paid = replace(
        answer, info=replace(answer.info, cost=Decimal("0.25"))
    )  # for an earlier piece of a summary
    events = to_settling_events([paid])

    assert isinstance(answer.info, AssistantMessage)
    assert events[-1] == MessageUpdated(
        info=replace(
            answer.info,
            time=AssistantTime(created=BEGUN, completed=3),
            error=aborted_failure(INTERRUPTED_ANSWER),
            cost=Decimal("0.25"),
            priced=False,
            counted=False,
        )
    )


def test_the_cost_of_a_complete_but_unclosed_answer_stays_known() -> None:
    (event,) = to_settling_events([unfinished_answer(text("A1", "whole"), finish="stop")])

    assert isinstance(event, MessageUpdated)
    assert isinstance(event.info, AssistantMessage)
    assert (event.info.priced, event.info.counted) == (True, True)


def test_running_calls_are_interrupted_and_keep_their_metadata() -> None:
    running = RunningState(input={"command": "make"}, metadata={"output": "half"}, time=Span(start=7))
    first = ToolPart(**ids("A1", 1), call_id="c1", tool="bash", state=running)
    second = ToolPart(**ids("A1", 2), call_id="c2", tool="read", state=PendingState(input={}, raw=""))
    events = to_settling_events([unfinished_answer(first, second)])

    assert events[:2] == [
        PartUpdated(
            part=replace(
                first,
                state=ErrorState(
                    input={"command": "make"},
                    error=INTERRUPTED,
                    metadata={"output": "half"},
                    time=CallTime(start=7, end=7),
                ),
            )
        ),
        PartUpdated(
            part=replace(second, state=ErrorState(input={}, error=INTERRUPTED, time=CallTime(start=7, end=7)))
        ),
    ]


def test_streamed_text_is_kept_and_closed() -> None:
    thought = ReasoningPart(**ids("A1", 1), text="half a th", time=Span(start=3))
    said = text("A1", "half a sent", 2, time=Span(start=5))
    events = to_settling_events([unfinished_answer(thought, said)])

    assert [event.part for event in events if isinstance(event, PartUpdated)] == [
        replace(thought, time=Span(start=3, end=5)),
        replace(said, time=Span(start=5, end=5)),
    ]


def test_settling_twice_equals_settling_once() -> None:
    running = ToolPart(
        **ids("A1", 1), call_id="c", tool="bash", state=RunningState(input={}, time=Span(start=1))
    )
    kept = Transcript(
        [user_message("U1", 1), unfinished_answer(running, text("A1", "x", 2, time=Span(start=1)))]
    )
    kept.feed(*to_settling_events(kept.messages()))

    assert to_settling_events(kept.messages()) == []
    assert all(message.info.session_id == SESSION for message in kept.messages())


def test_parts_left_open_by_an_ended_answer_end_with_it() -> None:
    said = text("A1", "half a sent", 1, time=Span(start=5))
    running = RunningState(input={}, time=Span(start=7))
    call = ToolPart(**ids("A1", 2), call_id="c1", tool="bash", state=running)
    message = assistant_message("A1", BEGUN, "U1", said, call)
    assert isinstance(message.info, AssistantMessage)
    time = replace(message.info.time, completed=20)
    old = replace(message, info=replace(message.info, time=time, error=aborted_failure()))

    assert to_settling_events([user_message("U1", 1), old]) == [
        PartUpdated(part=replace(said, time=Span(start=5, end=20))),
        PartUpdated(
            part=replace(call, state=ErrorState(input={}, error=INTERRUPTED, time=CallTime(start=7, end=20)))
        ),
    ]


def test_an_open_answer_ends_at_its_last_known_time() -> None:
    done = tool_part("A1", 1)
    said = text("A1", "half a sent", 2, time=Span(start=9_000))
    *_, event = to_settling_events([unfinished_answer(done, said)])

    assert isinstance(event, MessageUpdated)
    assert isinstance(event.info, AssistantMessage)
    assert event.info.time.completed == 9_000


def test_an_open_answer_is_found_after_and_among_messages_known_as_closed() -> None:
    histories = ClosedHistories()
    closed = [user_message("U1", 1), assistant_message("A1", 2, "U1", text("A1", "done"))]
    more = [*closed, user_message("U2", 3), assistant_message("A2", 4, "U2", text("A2", "done"))]
    begun = StepStartPart(**ids("A1", 1))

    found = [
        histories.has_open(SESSION, history)
        for history in (
            closed,
            [*closed, unfinished_answer(begun)],
            closed,
            more,
            [more[0], unfinished_answer(begun), *more[2:]],
            more[:1],
        )
    ]

    assert found == [False, True, False, False, True, False]
