"""The view caches, and shows the same as without a cache."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from given.history_strategies import histories
from given.models import CLAUDE, GPT
from weft.context.exclusions import MEDIA, SIGNATURE, exclude_refused, make_attempt_mark
from weft.context.history import since_compaction, to_model_messages
from weft.context.notes import list_note_parts
from weft.context.reminders import add_reminders
from weft.context.view import MAX_CACHED_VIEWS, View, Views
from weft.model.failure import ApiData, ApiFailure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage, JsonFormat, MessageWithParts, UserMessage
from weft.model.part import ModelRef, Moment, RetryPart, TextPart
from weft.provider.contract import TextContent, UserModelMessage

MODELS = ((CLAUDE.provider_id, CLAUDE.id), (GPT.provider_id, GPT.id))
FORMAT = JsonFormat(schema={"type": "object"})


@st.composite
def conversations(draw: st.DrawFn) -> list[MessageWithParts]:
    """Generate ordered histories of every kind: with answers, compactions, refusals and structured values."""
    dice = draw(st.randoms(use_true_random=False))
    made: list[MessageWithParts] = []
    asked = MessageID("")
    for number, message in enumerate(draw(histories(*MODELS))):
        id = MessageID(f"msg_{number:04}")
        if isinstance(message.info, UserMessage):
            format, asked = (FORMAT if dice.random() < 0.3 else None), id
            info = replace(message.info, id=id, time=Moment(created=number), format=format)
            made.append(replace(message, info=info))
        else:
            made.append(
                replace(
                    message, info=_answer(message.info, id, asked, number, dice), parts=_parts(message, dice)
                )
            )
    return made


def _answer(
    info: AssistantMessage, id: MessageID, asked: MessageID, at: int, dice: Random
) -> AssistantMessage:
    completed = dice.choice((None, at, at + 3))
    finish = dice.choice((None, "stop"))
    time = replace(info.time, created=at, completed=completed)
    return replace(info, id=id, parent_id=asked, time=time, finish=finish, summary=dice.random() < 0.4)


def _parts(message: MessageWithParts, dice: Random) -> tuple[object, ...]:
    if dice.random() > 0.2:
        return message.parts
    mark = make_attempt_mark(
        dice.choice((SIGNATURE, MEDIA)), ModelRef(provider_id=CLAUDE.provider_id, model_id=CLAUDE.id)
    )
    failure = ApiFailure(data=ApiData(message="no", is_retryable=False, metadata=mark))
    info = message.info
    retry = RetryPart(
        id=PartID("prt_r"),
        session_id=info.session_id,
        message_id=info.id,
        attempt=1,
        error=failure,
        time=Moment(created=1),
    )
    return (*message.parts, retry)


@given(conversations(), st.booleans(), st.randoms(use_true_random=False))
def test_a_cached_view_equals_a_new_one(
    history: list[MessageWithParts], plan_files: bool, dice: Random
) -> None:
    view = View()
    for many in sorted(dice.choices(range(len(history) + 1), k=4)):
        seen, model = list(history[:many]), dice.choice((CLAUDE, CLAUDE, CLAUDE, GPT))
        if seen and dice.random() < 0.3:  # one of them changes, as by a prune or an undo
            at = dice.randrange(len(seen))
            seen[at] = replace(seen[at], parts=seen[at].parts[:1])
        assert view.show(seen, model, plan_files=plan_files) == View().show(
            seen, model, plan_files=plan_files
        )


def without_values(history: Sequence[MessageWithParts]) -> list[MessageWithParts]:
    return [
        replace(each, info=replace(each.info, format=None)) if isinstance(each.info, UserMessage) else each
        for each in history
    ]


@given(conversations(), st.booleans())
def test_the_view_equals_the_history_after_all_transformations(
    history: list[MessageWithParts], plan_files: bool
) -> None:
    history = without_values(history)
    window = since_compaction(add_reminders(exclude_refused(history, CLAUDE), plan_files=plan_files))
    shown = View().show(history, CLAUDE, plan_files=plan_files)
    assert shown.messages == to_model_messages(window, CLAUDE)
    cut = history[: len(history) - len(window)]
    assert (shown.is_cut, list(shown.notes)) == (
        bool(cut),
        [note for each in cut for note in list_note_parts(each)],
    )


def test_an_unchanged_message_gives_the_same_model_messages() -> None:
    def prompt_message(number: int) -> MessageWithParts:
        id = MessageID(f"msg_{number}")
        info = UserMessage(id=id, session_id="ses_1", time=Moment(created=number))  # type: ignore[arg-type]
        words = TextPart(id=PartID("prt_1"), session_id="ses_1", message_id=id, text=str(number))  # type: ignore[arg-type]
        return MessageWithParts(info=info, parts=(words,))

    view, history = View(), [prompt_message(number) for number in range(3)]
    first = view.show(history, CLAUDE, plan_files=True)
    second = view.show([*history, prompt_message(3)], CLAUDE, plan_files=True)

    assert [one is other for one, other in zip(first.messages, second.messages, strict=False)] == [True] * 3
    assert second.messages[3] == UserModelMessage(content=(TextContent(text="3"),))


def test_a_run_continues_with_the_view_of_the_previous_run() -> None:
    views = Views()
    with views.lend(SessionID("ses_1")) as first:
        pass
    with views.lend(SessionID("ses_1")) as again, views.lend(SessionID("ses_2")) as other:
        assert again is first
        assert other is not first


def test_only_the_most_recent_views_are_cached() -> None:
    views = Views()
    kept = []
    for number in range(MAX_CACHED_VIEWS + 1):
        with views.lend(SessionID(f"ses_{number}")) as view:
            kept.append(view)
    with views.lend(SessionID("ses_1")) as second, views.lend(SessionID("ses_0")) as first:
        assert second is kept[1]
        assert first is not kept[0]


def test_a_failed_run_leaves_no_view() -> None:
    views, left = Views(), []

    def break_off() -> None:
        with views.lend(SessionID("ses_1")) as view:
            left.append(view)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        break_off()
    with views.lend(SessionID("ses_1")) as next_one:
        assert next_one is not left[0]
