"""What a model said in an attempt that failed is stored, and marked as ignored. It is no part of its answer."""

import io
from typing import Any

import pytest
from msgspec.structs import replace

from given.conversation import SESSION, assistant_message, ids, text, user_message
from weft.cli.output import Paint
from weft.cli.session_show import format_transcript
from weft.dataset.tables import STEPS, to_session_rows
from weft.local.history import ProjectHistory
from weft.local.replay import to_prompt_input
from weft.model.event import MessageUpdated, PartUpdated, SessionCreated
from weft.model.failure import ApiData, ApiFailure
from weft.model.ids import SessionID
from weft.model.input import TextInput
from weft.model.message import JsonFormat, UserMessage
from weft.model.part import Moment, ReasoningPart, RetryPart, Span
from weft.model.spending import Spending, Spent
from weft.provider.chunk import ReasoningDelta, TextDelta
from weft.provider.session_tape import to_chunks
from weft.run.decide import ModelStep
from weft.run.json_schema import find_value_failure
from weft.session.steps import list_steps
from weft.store.memory import MemoryStore
from weft.testing.store_samples import PROJECT, session
from weft.transfer.atif import to_trajectory


def thought(number: int, words: str, **more: Any) -> ReasoningPart:
    return ReasoningPart(**ids("msg_A1", number), text=words, time=Span(start=1, end=2), **more)


RETRY = RetryPart(
    **ids("msg_A1", 3),
    attempt=1,
    error=ApiFailure(data=ApiData(message="it broke off", is_retryable=True)),
    time=Moment(created=2),
)
PROMPT = user_message("msg_U1", 1)
ANSWER = assistant_message(
    "msg_A1",
    2,
    "msg_U1",
    thought(1, "Half a thought", ignored=True),
    text("msg_A1", "Half an", 2, ignored=True),
    RETRY,
    thought(4, "A whole thought"),
    text("msg_A1", "A whole answer", 5),
)
HISTORY = [PROMPT, ANSWER]


def test_a_step_has_the_text_of_its_answer_alone() -> None:
    assert list_steps(HISTORY)[0].text == "A whole answer"


def test_a_row_of_a_step_has_the_answer_alone() -> None:
    (row,) = to_session_rows(session(SESSION), HISTORY).steps
    names = [column.name for column in STEPS.columns]
    assert row[names.index("text")] == "A whole answer"
    assert row[names.index("reasoning")] == "A whole thought"


def test_a_trajectory_has_the_answer_alone() -> None:
    step = to_trajectory(session(SESSION), HISTORY)["steps"][1]
    assert (step["message"], step["reasoning_content"]) == ("A whole answer", "A whole thought")


def test_a_tape_of_a_session_plays_the_answer_alone() -> None:
    said = [chunk.text for chunk in to_chunks(ANSWER) if isinstance(chunk, TextDelta | ReasoningDelta)]
    assert said == ["A whole thought", "A whole answer"]


async def test_a_model_that_reads_a_message_of_another_session_is_shown_the_answer_alone() -> None:
    store = MemoryStore()
    await store.apply(SessionCreated(info=session(SESSION)))
    for message in HISTORY:
        await store.apply(
            MessageUpdated(info=message.info), *(PartUpdated(part=part) for part in message.parts)
        )
    found = await ProjectHistory(store, PROJECT, SessionID("ses_other")).read(SESSION, "msg_A1")
    assert found.excerpt == "A whole answer"


def test_a_printed_session_says_that_the_attempt_failed() -> None:
    spending = Spending(own=Spent(), tree=Spent())
    shown = format_transcript(session(SESSION), HISTORY, spending, Paint(io.StringIO()), now=3)
    lines = [line for line in shown if line]
    first = lines.index("Half a thought")
    assert lines[first : first + 5] == [
        "Half a thought",
        "Half an",
        "Attempt 1 failed and was repeated: it broke off",
        "A whole thought",
        "A whole answer",
    ]


def test_the_reason_for_a_missing_value_is_found_in_the_answer_alone() -> None:
    assert isinstance(PROMPT.info, UserMessage)
    prompt = replace(PROMPT.info, format=JsonFormat(schema={"type": "object", "required": ["name"]}))
    broken = replace(ANSWER, parts=(text("msg_A1", '{"na', 1, ignored=True), text("msg_A1", "{}", 2)))
    failure = find_value_failure([replace(PROMPT, info=prompt), broken], ModelStep(prompt, last=True))
    assert failure is not None
    assert "does not match the schema" in failure.data.message


@pytest.mark.parametrize("ignored", [True, False])
def test_a_prompt_is_replayed_as_it_was_sent(ignored: bool) -> None:
    prompt = replace(PROMPT, parts=(text("msg_U1", "For people only", ignored=ignored),))
    assert to_prompt_input(prompt).parts == (TextInput(text="For people only", ignored=ignored),)
