"""Folding the chunks of an answer into events."""

from decimal import Decimal
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from given.conversation import SESSION
from weft.model.event import Event, MessageUpdated, PartGrew, PartUpdated
from weft.model.failure import aborted_failure
from weft.model.ids import MessageID
from weft.model.message import AssistantMessage, AssistantTime
from weft.model.part import (
    CallTime,
    CompletedState,
    ErrorState,
    ReasoningPart,
    RunningState,
    Span,
    StepFinishPart,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.model.transcript import Transcript
from weft.provider.chunk import (
    Finished,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Started,
    TextDelta,
    TextEnd,
    TextStart,
    ToolInputStart,
    Usage,
)
from weft.run.processor import (
    INCOMPLETE_CALL,
    AnswerInput,
    CallDone,
    CallFailed,
    CallReported,
    CallStarted,
    Processor,
)
from weft.run.usage import AnswerUsage
from weft.testing.ids import seeded_mint

NOW = 1_790_000_000_000
MESSAGE = AssistantMessage(
    id=MessageID("msg_1"), session_id=SESSION, time=AssistantTime(created=NOW), parent_id=MessageID("msg_0")
)
USAGE = AnswerUsage(tokens=Tokens(input=10, output=2), cost=Decimal("0.5"))


def processor() -> Processor:
    ticks = count(NOW)
    return Processor(MESSAGE, seeded_mint(lambda: NOW), lambda: next(ticks))


def parts(events: list[Event]) -> list[object]:
    heard = Transcript()
    heard.feed(MessageUpdated(info=MESSAGE), *events)
    return list(heard.messages()[0].parts)


def feed_all(*feeds: AnswerInput) -> tuple[Processor, list[Event]]:
    making = processor()
    return making, [event for feed in feeds for event in making.feed(feed)]


def test_text_is_published_whole_then_as_growth_then_whole_and_trimmed() -> None:
    _, events = feed_all(
        TextStart(id="t"), TextDelta(id="t", text="Hel"), TextDelta(id="t", text="lo \n"), TextEnd(id="t")
    )
    first, grew, last = events

    assert isinstance(first, PartUpdated)
    assert isinstance(first.part, TextPart)
    assert (first.part.text, first.delta, first.part.time) == ("Hel", "Hel", Span(start=NOW))
    assert isinstance(grew, PartGrew)
    assert (grew.part_id, grew.delta, grew.offset) == (first.part.id, "lo \n", 3)
    assert isinstance(last, PartUpdated)
    assert isinstance(last.part, TextPart)
    assert (last.part.id, last.part.text, last.delta) == (first.part.id, "Hello", None)
    assert last.part.time == Span(start=NOW, end=NOW + 1)


def test_an_empty_text_leaves_no_part() -> None:
    assert feed_all(TextStart(id="t"), TextDelta(id="t", text=""), TextEnd(id="t"))[1] == []


def test_a_thought_without_text_is_kept_for_its_metadata() -> None:
    _, events = feed_all(ReasoningStart(id="r"), ReasoningEnd(id="r", metadata={"p": {"redacted": "x"}}))

    (thought,) = parts(events)
    assert isinstance(thought, ReasoningPart)
    assert (thought.text, thought.metadata) == ("", {"p": {"redacted": "x"}})


def test_a_delta_without_a_start_is_kept() -> None:
    making, events = feed_all(TextDelta(id="t", text="out of the blue"))

    (text,) = parts(events + making.settle(aborted_failure()))
    assert isinstance(text, TextPart)
    assert text.text == "out of the blue"


def test_a_call_goes_from_pending_to_running_to_completed_and_keeps_its_id_and_start() -> None:
    making, events = feed_all(
        ToolInputStart(call_id="c", tool="echo"),
        CallStarted(call_id="c", tool="echo", input={"words": "x"}),
        CallReported(call_id="c", title="working", metadata={"done": 1}),
        CallDone(call_id="c", title="Echo", output="x", metadata={"done": 2}),
    )
    produced = [
        event.part for event in events if isinstance(event, PartUpdated) and isinstance(event.part, ToolPart)
    ]

    assert len({part.id for part in produced}) == 1
    assert [part.state.__struct_config__.tag for part in produced] == [
        "pending",
        "running",
        "running",
        "completed",
    ]
    assert produced[2].state == RunningState(
        input={"words": "x"}, title="working", metadata={"done": 1}, time=Span(start=NOW)
    )
    assert produced[3].state == CompletedState(
        input={"words": "x"},
        output="x",
        title="Echo",
        metadata={"done": 2},
        time=CallTime(start=NOW, end=NOW + 1),
    )
    assert making.settle(aborted_failure())[:-1] == []


def test_a_report_for_a_settled_call_changes_nothing() -> None:
    _, events = feed_all(
        CallStarted(call_id="c", tool="echo", input={}),
        CallFailed(call_id="c", error="no"),
        CallReported(call_id="c", title="late", metadata={}),
    )

    assert len(events) == 2


def test_the_end_stores_the_usage_on_the_message_and_completes_it() -> None:
    making, _ = feed_all(Started())
    finish, message = making.finish(Finished(reason="stop", usage=Usage()), USAGE)

    assert isinstance(finish, PartUpdated)
    assert isinstance(finish.part, StepFinishPart)
    assert (finish.part.reason, finish.part.cost, finish.part.tokens) == (
        "stop",
        Decimal("0.5"),
        USAGE.tokens,
    )
    assert isinstance(message, MessageUpdated)
    assert message.info == making.message
    assert (making.message.finish, making.message.cost, making.message.tokens) == (
        "stop",
        Decimal("0.5"),
        USAGE.tokens,
    )
    assert making.message.time.completed is not None


def test_an_incomplete_call_is_a_failed_call() -> None:
    making, events = feed_all(Started(), ToolInputStart(call_id="c", tool="echo"))
    ended = making.finish(Finished(reason="length", usage=Usage()), USAGE)
    [call] = [part for part in parts([*events, *ended]) if isinstance(part, ToolPart)]

    assert isinstance(call.state, ErrorState)
    assert call.state.error == INCOMPLETE_CALL


words = st.text(alphabet=st.characters(codec="utf-8"), max_size=5)
feeds = st.one_of(
    st.just(Started()),
    st.builds(TextStart, id=st.sampled_from("ab")),
    st.builds(TextDelta, id=st.sampled_from("ab"), text=words),
    st.builds(TextEnd, id=st.sampled_from("ab")),
    st.builds(ReasoningStart, id=st.sampled_from("ab")),
    st.builds(ReasoningDelta, id=st.sampled_from("ab"), text=words),
    st.builds(ReasoningEnd, id=st.sampled_from("ab")),
    st.builds(ToolInputStart, call_id=st.sampled_from("cd"), tool=st.just("echo")),
    st.builds(CallStarted, call_id=st.sampled_from("cd"), tool=st.just("echo"), input=st.just({})),
    st.builds(CallReported, call_id=st.sampled_from("cd"), title=words, metadata=st.just({})),
)


@given(st.lists(feeds, max_size=40))
def test_settling_closes_everything_and_loses_no_text(sequence: list[AnswerInput]) -> None:
    making, events = feed_all(*sequence)
    left = parts(events + making.settle(aborted_failure()))
    said = [feed.text for feed in sequence if isinstance(feed, TextDelta | ReasoningDelta)]
    kept = [part.text for part in left if isinstance(part, TextPart | ReasoningPart)]

    assert all(
        isinstance(part.state, CompletedState | ErrorState) for part in left if isinstance(part, ToolPart)
    )
    assert all(part.time and part.time.end for part in left if isinstance(part, TextPart | ReasoningPart))
    assert sorted("".join("".join(said).split())) == sorted("".join("".join(kept).split()))
    assert making.message.error == aborted_failure()
    assert making.message.time.completed is not None
