"""Convert events to updates for an editor: each piece of text once, also if events were missed."""

from acp.schema import AgentMessageChunk, AgentThoughtChunk, ToolCallProgress, ToolCallStart
from hypothesis import given
from hypothesis import strategies as st

from weft.acp.updates import Update, UpdateStream
from weft.model.event import Event, MessageUpdated, PartGrew, PartRemoved, PartUpdated
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage, AssistantTime, MessageWithParts
from weft.model.part import PendingState, ReasoningPart, Span, TextPart, ToolPart

PLACE = {"session_id": SessionID("ses_1"), "message_id": MessageID("msg_1")}
ANSWER = AssistantMessage(id=MessageID("msg_1"), session_id=SessionID("ses_1"), time=AssistantTime(created=1))


def text(words: str) -> TextPart:
    return TextPart(id=PartID("prt_1"), **PLACE, text=words)


def growth(pieces: list[str]) -> list[Event]:
    """Return the events of an answer while it is streamed."""
    events: list[Event] = [MessageUpdated(info=ANSWER)]
    so_far = ""
    for piece in pieces:
        if not so_far:
            events.append(PartUpdated(part=text(piece), delta=piece))
        else:
            events.append(
                PartGrew(**PLACE, part_id=PartID("prt_1"), field="text", delta=piece, offset=len(so_far))
            )
        so_far += piece
    return [*events, PartUpdated(part=text(so_far))]


def make_updates() -> UpdateStream:
    return UpdateStream("/project", "/project", {})


def join_text(updates: list[Update]) -> str:
    return "".join(each.content.text for each in updates if isinstance(each, AgentMessageChunk))


@given(st.lists(st.text(min_size=1), min_size=1), st.data())
def test_the_full_text_is_sent_once_whichever_events_are_missed(
    pieces: list[str], data: st.DataObject
) -> None:
    events, telling = growth(pieces), make_updates()
    lost = data.draw(st.sets(st.integers(1, len(events) - 1)))
    sent_updates = [
        update for number, event in enumerate(events) if number not in lost for update in telling.feed(event)
    ]
    whole = MessageWithParts(info=ANSWER, parts=(text("".join(pieces)),))
    sent_updates += telling.catch_up([whole])
    assert join_text(sent_updates) == "".join(pieces)
    assert list(telling.catch_up([whole])) == []


def test_text_for_the_model_alone_is_sent_as_a_thought() -> None:
    telling = make_updates()
    summary = AssistantMessage(
        **{**{name: getattr(ANSWER, name) for name in ANSWER.__struct_fields__}, "summary": True}
    )
    telling.feed(MessageUpdated(info=summary))
    [said] = telling.feed(PartUpdated(part=text("in short")))
    assert isinstance(said, AgentThoughtChunk)
    [grown] = telling.feed(PartGrew(**PLACE, part_id=PartID("prt_1"), field="text", delta="er", offset=8))
    assert isinstance(grown, AgentThoughtChunk)


def test_a_call_removed_before_a_retry_is_shown_as_failed() -> None:
    telling = make_updates()
    telling.feed(MessageUpdated(info=ANSWER))
    call = ToolPart(
        id=PartID("prt_2"), **PLACE, call_id="c", tool="read", state=PendingState(input={}, raw="")
    )
    [shown] = telling.feed(PartUpdated(part=call))
    assert isinstance(shown, ToolCallStart)
    [gone] = telling.feed(PartRemoved(**PLACE, part_id=call.id))
    assert isinstance(gone, ToolCallProgress)
    assert gone.status == "failed"
    discarded = ReasoningPart(id=PartID("prt_3"), **PLACE, text="no", ignored=True, time=Span(start=1))
    assert telling.feed(PartUpdated(part=discarded)) == []


def test_the_text_of_a_prompt_is_not_sent_back() -> None:
    assert make_updates().feed(PartUpdated(part=text("what I typed"))) == []
