"""What a run does next."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from given.conversation import assistant_message, ids, text, tool_part, user_message
from weft.model.failure import aborted_failure, unknown_failure
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import SubtaskPart
from weft.run.decide import ModelStep, StopRun, Subtask, decide


def prompt_of(message: object) -> UserMessage:
    info = getattr(message, "info", None)
    assert isinstance(info, UserMessage)
    return info


def test_without_a_prompt_there_is_nothing_to_do() -> None:
    assert decide([]) == StopRun()


def test_a_prompt_without_an_answer_is_a_step() -> None:
    first = user_message("U1", 1)

    assert decide([first]) == ModelStep(prompt_of(first))


def test_an_answer_with_text_alone_ends_the_run() -> None:
    assert decide([user_message("U1", 1), assistant_message("A1", 2, "U1", text("A1", "done"))]) == StopRun()


def test_unseen_results_cause_a_step_whatever_the_finish_reason() -> None:
    first = user_message("U1", 1)
    for finish in ("tool-calls", "stop", "unknown", "length", None):
        history = [first, assistant_message("A1", 2, "U1", tool_part("A1"), finish=finish)]
        assert decide(history) == ModelStep(prompt_of(first)), finish


def test_an_answer_without_a_finish_reason_is_not_requested_again() -> None:
    for finish in ("unknown", None):
        assert (
            decide([user_message("U1", 1), assistant_message("A1", 2, "U1", text("A1", "x"), finish=finish)])
            == StopRun()
        )


def test_a_failed_answer_ends_the_run_even_with_calls() -> None:
    for failure in (aborted_failure(), unknown_failure("boom")):
        assert (
            decide([user_message("U1", 1), assistant_message("A1", 2, "U1", tool_part("A1"), error=failure)])
            == StopRun()
        )


def test_the_order_of_ids_does_not_matter() -> None:
    # As after the wrap of 2026-08-14: the old ids sort after the new ones.
    old = [user_message("msg_fff", 1), assistant_message("msg_ffff", 2, "msg_fff", text("msg_ffff", "then"))]
    new = user_message("msg_000", 3)

    assert decide([*old, new]) == ModelStep(prompt_of(new))
    assert (
        decide([*old, new, assistant_message("msg_0001", 4, "msg_000", text("msg_0001", "now"))]) == StopRun()
    )


def test_an_answer_to_an_earlier_prompt_does_not_answer_the_newest() -> None:
    second = user_message("U2", 3)
    history = [
        user_message("U1", 1),
        assistant_message("A0", 2, "U0"),
        second,
        assistant_message("A1", 4, "U1", text("A1", "late")),
    ]

    assert decide(history) == ModelStep(prompt_of(second))


def test_an_old_answer_without_a_parent_counts_by_its_position() -> None:
    assert decide([user_message("U1", 1), assistant_message("A1", 2, "", text("A1", "old"))]) == StopRun()


def test_the_last_allowed_step_is_marked_and_then_the_run_ends() -> None:
    first = user_message("U1", 1)
    going = [first, assistant_message("A1", 2, "U1", tool_part("A1"))]

    assert decide([first], steps_taken=0, step_limit=2) == ModelStep(prompt_of(first))
    assert decide(going, steps_taken=1, step_limit=2) == ModelStep(prompt_of(first), last=True)
    assert decide(going, steps_taken=2, step_limit=2) == StopRun()


@given(st.integers(1, 5), st.integers(0, 8))
def test_a_run_ends_within_its_step_limit(limit: int, wants: int) -> None:
    """However many calls a model makes, it gets at most `limit` steps."""
    history = [user_message("U1", 1)]
    taken = 0
    while isinstance(decide(history, steps_taken=taken, step_limit=limit), ModelStep):
        taken += 1
        more = taken <= wants
        id = f"A{taken}"
        history.append(assistant_message(id, taken + 1, "U1", tool_part(id) if more else text(id, "done")))

    assert taken == min(limit, wants + 1)


# --- subtasks ---


def subtask(message: str, number: int) -> SubtaskPart:
    return SubtaskPart(**ids(message, number), prompt=f"do {number}", description="", agent="general")


def delegated(id: str, at: int, to: str, part: SubtaskPart, **more: Any) -> MessageWithParts:
    """Return the message of a subtask that was delegated."""
    call = replace(tool_part(id, tool="task"), call_id=part.id)
    return assistant_message(id, at, to, call, finish="tool-calls", **more)


@given(st.integers(1, 6))
def test_all_subtasks_of_a_prompt_run_in_order_before_the_model_is_asked(count: int) -> None:
    parts = [subtask("U1", number) for number in range(1, count + 1)]
    prompt = user_message("U1", 1, *parts)
    history = [prompt]
    ran: list[SubtaskPart] = []
    while isinstance(next := decide(history), Subtask):
        ran.append(next.part)
        history.append(delegated(f"A{len(ran)}", 1 + len(ran), "U1", next.part))

    assert ran == parts
    assert next == ModelStep(prompt_of(prompt))


def test_a_later_prompt_waits_for_earlier_subtasks() -> None:
    one, two = subtask("U1", 1), subtask("U1", 2)
    first, second = user_message("U1", 1, one, two), user_message("U2", 3)
    history = [first, delegated("A1", 2, "U1", one), second]

    assert decide(history) == Subtask(prompt_of(first), two)
    assert decide([*history, delegated("A2", 4, "U1", two)]) == ModelStep(prompt_of(second))


def test_subtasks_of_several_prompts_run_oldest_first() -> None:
    one, two = subtask("U1", 1), subtask("U2", 1)
    first, second = user_message("U1", 1, one), user_message("U2", 2, two)

    assert decide([first, second]) == Subtask(prompt_of(first), one)
    assert decide([first, second, delegated("A1", 3, "U1", one)]) == Subtask(prompt_of(second), two)


def test_a_failed_subtask_does_not_stop_the_others_but_an_aborted_answer_does() -> None:
    one, two = subtask("U1", 1), subtask("U1", 2)
    first = user_message("U1", 1, one, two)

    assert decide([first, delegated("A1", 2, "U1", one)]) == Subtask(prompt_of(first), two)
    assert decide([first, delegated("A1", 2, "U1", one, error=aborted_failure())]) == StopRun()


def test_subtasks_answered_by_another_program_are_not_run_again() -> None:
    # OpenCode gives the call a name of its own; a fork gives the part another.
    first = user_message("U1", 1, subtask("U1", 1), subtask("U1", 2))
    foreign = assistant_message("A1", 2, "U1", tool_part("A1", tool="task"), finish="tool-calls")

    assert decide([first, foreign]) == ModelStep(prompt_of(first))
    assert decide([first, foreign, assistant_message("A2", 3, "U1", text("A2", "done"))]) == StopRun()


def test_subtasks_skipped_for_a_later_prompt_are_not_run() -> None:
    passed = user_message("U1", 1, subtask("U1", 1))

    assert (
        decide([passed, user_message("U2", 2), assistant_message("A2", 3, "U2", text("A2", "done"))])
        == StopRun()
    )
