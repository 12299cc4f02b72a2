"""Content that an API refused is not sent to it again, but still to others."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from given.models import CLAUDE, GPT
from weft.context.exclusions import can_exclude, exclude_refused, make_attempt_mark
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


def prompt_message(name: str, *, picture: bool = False) -> MessageWithParts:
    noted = {"weft": {"about": "ours"}}
    parts: list[AnyPart] = [TextPart(**ids(name, 0), text="go", metadata=noted)]
    if picture:
        parts.append(FilePart(**ids(name, 1), mime="image/png", filename="cat.png", url=PNG))
    info = UserMessage(id=MessageID(f"msg_{name}"), session_id=SESSION, time=Moment(created=1), agent="build")
    return MessageWithParts(info=info, parts=tuple(parts))


def answer_message(name: str, model: Model = CLAUDE, *extra: AnyPart) -> MessageWithParts:
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


def refusal_part(name: str, kind: FaultKind, model: Model = CLAUDE) -> RetryPart:
    mark = {"url": "http://api.test/v1"} | make_attempt_mark(
        kind, ModelRef(provider_id=model.provider_id, model_id=model.id)
    )
    error = ApiFailure(data=ApiData(message="no", is_retryable=False, metadata=mark))
    return RetryPart(**ids(name, 7), attempt=1, error=error, time=Moment(created=1))


def show(history: list[MessageWithParts], model: Model = CLAUDE) -> str:
    return str(to_model_messages(exclude_refused(history, model), model))


def test_a_history_without_refusals_is_shown_unchanged() -> None:
    history = [prompt_message("1", picture=True), answer_message("2")]

    assert exclude_refused(history, CLAUDE) is history


def test_after_a_refused_signature_earlier_thoughts_are_shown_unsigned_and_later_ones_signed() -> None:
    history = [
        prompt_message("1"),
        answer_message("2"),
        prompt_message("3"),
        answer_message("4", CLAUDE, refusal_part("4", "signature")),
    ]
    taken = exclude_refused(history, CLAUDE)

    assert taken[1].parts[0] == ReasoningPart(**ids("2", 0), text="hm", time=Span(start=1, end=2))
    assert taken[3] == history[3]
    assert (taken[0], taken[2]) == (history[0], history[2])


def test_after_refused_media_old_files_are_only_named_and_new_ones_shown() -> None:
    history = [
        prompt_message("1", picture=True),
        answer_message("2"),
        prompt_message("3"),
        answer_message("4", CLAUDE, refusal_part("4", "media")),
        prompt_message("5", picture=True),
    ]
    turns = to_model_messages(exclude_refused(history, CLAUDE), CLAUDE)

    assert "[cat.png is not shown: the model's API refused it]" in str(turns[0])
    assert "[shot.png is not shown: the model's API refused it]" in str(turns[2])
    newest = turns[-1]
    assert isinstance(newest, UserModelMessage)
    assert newest.content[-1] == MediaContent(url=PNG, mime="image/png", filename="cat.png")


def test_content_refused_by_one_api_is_shown_to_another() -> None:
    history = [prompt_message("1", picture=True), answer_message("2", CLAUDE, refusal_part("2", "media"))]

    assert show(history).count(PNG) == show(history, GPT).count(PNG) - 1


def test_excluded_content_is_not_excluded_again() -> None:
    history = [prompt_message("1", picture=True), answer_message("2"), prompt_message("3")]
    failed = MessageWithParts(info=answer_message("4").info, parts=(refusal_part("4", "media"),))

    assert can_exclude(history, "media", CLAUDE)
    assert not can_exclude([*history, failed], "media", CLAUDE)
    assert can_exclude([*history, failed], "signature", CLAUDE)


def test_signatures_of_another_model_are_not_excluded() -> None:
    assert not can_exclude([prompt_message("1"), answer_message("2", GPT)], "signature", CLAUDE)


def test_other_faults_exclude_nothing() -> None:
    history = [prompt_message("1", picture=True), answer_message("2")]

    assert not any(can_exclude(history, kind, CLAUDE) for kind in OTHERS)


@st.composite
def histories(draw: st.DrawFn) -> list[MessageWithParts]:
    made = []
    for number in range(draw(st.integers(0, 8))):
        name, model = str(number), draw(st.sampled_from([CLAUDE, GPT]))
        kinds = draw(st.lists(st.sampled_from(KINDS), max_size=2))
        setbacks = [refusal_part(name, kind, model) for kind in kinds]
        made.append(
            prompt_message(name, picture=draw(st.booleans()))
            if draw(st.booleans())
            else answer_message(name, model, *setbacks)
        )
    return made


@given(histories(), st.sampled_from([CLAUDE, GPT]), st.sampled_from(["media", "signature"]))
def test_excluding_is_idempotent_and_keeps_every_message_and_text(
    history: list[MessageWithParts], model: Model, kind: FaultKind
) -> None:
    taken = exclude_refused(history, model)
    failed = MessageWithParts(info=answer_message("z", model).info, parts=(refusal_part("z", kind, model),))

    assert [message.info for message in taken] == [message.info for message in history]
    assert [len(message.parts) for message in taken] == [len(message.parts) for message in history]
    assert list(exclude_refused(taken, model)) == list(taken)
    assert not history or not can_exclude([*history, failed], kind, model)
