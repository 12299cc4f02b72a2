"""Content that an API refused is not sent to it again, but still to others."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from given.models import CLAUDE, GPT
from weft.context.exclusions import can_exclude, exclude_refused, make_refusal_mark
from weft.context.history import to_model_messages
from weft.errors import FaultKind
from weft.model.catalog import Model
from weft.model.failure import ApiData, ApiFailure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage, AssistantTime, MessageWithParts, UserMessage
from weft.model.part import (
    AnyPart,
    CallTime,
    CompletedState,
    FilePart,
    ModelRef,
    Moment,
    ReasoningPart,
    RetryPart,
    Span,
    TextPart,
    ToolPart,
)
from weft.provider.contract import MediaContent, UserModelMessage

SESSION = SessionID("ses_1")
KINDS: tuple[FaultKind, ...] = ("media", "signature", "overload")
OTHERS: tuple[FaultKind, ...] = ("overflow", "bad-request", "server")
SIGNED = {"anthropic": {"signature": "sgn"}}
PNG = "data:image/png;base64,iVBORw0KGgo="


def ids(message: str, number: int) -> dict[str, Any]:
    return {
        "id": PartID(f"prt_{message}_{number}"),
        "session_id": SESSION,
        "message_id": MessageID(f"msg_{message}"),
    }


def asked(name: str, *, picture: bool = False) -> MessageWithParts:
    noted = {"weft": {"about": "ours"}}
    parts: list[AnyPart] = [TextPart(**ids(name, 0), text="go", metadata=noted)]
    if picture:
        parts.append(FilePart(**ids(name, 1), mime="image/png", filename="cat.png", url=PNG))
    info = UserMessage(id=MessageID(f"msg_{name}"), session_id=SESSION, time=Moment(created=1), agent="build")
    return MessageWithParts(info=info, parts=tuple(parts))


def answered(name: str, model: Model = CLAUDE, *extra: AnyPart) -> MessageWithParts:
    picture = FilePart(**ids(name, 9), mime="image/png", filename="shot.png", url=PNG)
    state = CompletedState(
        input={},
        output="done",
        title="",
        metadata={},
        time=CallTime(start=1, end=2),
        attachments=(picture,),
    )
    info = AssistantMessage(
        id=MessageID(f"msg_{name}"),
        session_id=SESSION,
        time=AssistantTime(created=1, completed=2),
        provider_id=model.provider_id,
        model_id=model.id,
        finish="stop",
    )
    parts = (
        *extra,
        ReasoningPart(**ids(name, 0), text="hm", metadata=SIGNED, time=Span(start=1, end=2)),
        ToolPart(**ids(name, 1), call_id="c", tool="read", state=state, metadata=SIGNED),
    )
    return MessageWithParts(info=info, parts=parts)


def setback(name: str, kind: FaultKind, model: Model = CLAUDE) -> RetryPart:
    mark = {"url": "http://api.test/v1"} | make_refusal_mark(
        kind, ModelRef(provider_id=model.provider_id, model_id=model.id)
    )
    error = ApiFailure(data=ApiData(message="no", is_retryable=False, metadata=mark))
    return RetryPart(**ids(name, 7), attempt=1, error=error, time=Moment(created=1))


def shown(history: list[MessageWithParts], model: Model = CLAUDE) -> str:
    return str(to_model_messages(exclude_refused(history, model), model))


def test_a_history_that_nobody_refused_is_shown_as_it_is() -> None:
    history = [asked("1", picture=True), answered("2")]

    assert exclude_refused(history, CLAUDE) is history


def test_after_a_refused_signature_the_thoughts_before_it_are_shown_unsigned_and_later_ones_signed() -> None:
    history = [asked("1"), answered("2"), asked("3"), answered("4", CLAUDE, setback("4", "signature"))]
    taken = exclude_refused(history, CLAUDE)

    assert taken[1].parts[0] == ReasoningPart(**ids("2", 0), text="hm", time=Span(start=1, end=2))
    assert taken[3] == history[3]
    assert (taken[0], taken[2]) == (history[0], history[2])


def test_after_refused_media_files_are_named_and_not_shown_and_new_ones_are() -> None:
    history = [
        asked("1", picture=True),
        answered("2"),
        asked("3"),
        answered("4", CLAUDE, setback("4", "media")),
        asked("5", picture=True),
    ]
    turns = to_model_messages(exclude_refused(history, CLAUDE), CLAUDE)

    assert "[cat.png is not shown: the model's API refused it]" in str(turns[0])
    assert "[shot.png is not shown: the model's API refused it]" in str(turns[2])
    newest = turns[-1]
    assert isinstance(newest, UserModelMessage)
    assert newest.content[-1] == MediaContent(url=PNG, mime="image/png", filename="cat.png")


def test_what_one_api_refused_is_shown_to_another() -> None:
    history = [asked("1", picture=True), answered("2", CLAUDE, setback("2", "media"))]

    assert shown(history).count(PNG) == shown(history, GPT).count(PNG) - 1


def test_excluded_content_is_not_excluded_again() -> None:
    history = [asked("1", picture=True), answered("2"), asked("3")]
    failed = MessageWithParts(info=answered("4").info, parts=(setback("4", "media"),))

    assert can_exclude(history, "media", CLAUDE)
    assert not can_exclude([*history, failed], "media", CLAUDE)
    assert can_exclude([*history, failed], "signature", CLAUDE)


def test_signatures_of_another_model_are_not_what_was_refused() -> None:
    assert not can_exclude([asked("1"), answered("2", GPT)], "signature", CLAUDE)


def test_no_other_fault_is_mended_by_leaving_something_out() -> None:
    history = [asked("1", picture=True), answered("2")]

    assert not any(can_exclude(history, kind, CLAUDE) for kind in OTHERS)


@st.composite
def histories(draw: st.DrawFn) -> list[MessageWithParts]:
    made = []
    for number in range(draw(st.integers(0, 8))):
        name, model = str(number), draw(st.sampled_from([CLAUDE, GPT]))
        kinds = draw(st.lists(st.sampled_from(KINDS), max_size=2))
        setbacks = [setback(name, kind, model) for kind in kinds]
        made.append(
            asked(name, picture=draw(st.booleans()))
            if draw(st.booleans())
            else answered(name, model, *setbacks)
        )
    return made


@given(histories(), st.sampled_from([CLAUDE, GPT]), st.sampled_from(["media", "signature"]))
def test_leaving_out_is_done_once_loses_no_message_and_touches_no_words(
    history: list[MessageWithParts], model: Model, kind: FaultKind
) -> None:
    taken = exclude_refused(history, model)
    failed = MessageWithParts(info=answered("z", model).info, parts=(setback("z", kind, model),))

    assert [message.info for message in taken] == [message.info for message in history]
    assert [len(message.parts) for message in taken] == [len(message.parts) for message in history]
    assert list(exclude_refused(taken, model)) == list(taken)
    assert not history or not can_exclude([*history, failed], kind, model)
