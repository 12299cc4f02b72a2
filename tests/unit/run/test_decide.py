"""What a run does next."""

from hypothesis import given
from hypothesis import strategies as st

from given.conversation import answered, asked, called, text
from weft.model.failure import aborted, unknown
from weft.model.message import UserMessage
from weft.run.decide import Step, Stop, decide


def prompt_of(message: object) -> UserMessage:
    info = getattr(message, "info", None)
    assert isinstance(info, UserMessage)
    return info


def test_nothing_asked_is_nothing_to_do() -> None:
    assert decide([]) == Stop()


def test_a_prompt_without_an_answer_is_a_step() -> None:
    first = asked("U1", 1)

    assert decide([first]) == Step(prompt_of(first))


def test_an_answer_in_words_ends_the_run() -> None:
    assert decide([asked("U1", 1), answered("A1", 2, "U1", text("A1", "done"))]) == Stop()


def test_results_the_model_has_not_seen_are_a_step_whatever_the_finish_word() -> None:
    first = asked("U1", 1)
    for finish in ("tool-calls", "stop", "unknown", "length", None):
        history = [first, answered("A1", 2, "U1", called("A1"), finish=finish)]
        assert decide(history) == Step(prompt_of(first)), finish


def test_an_answer_without_a_finish_word_is_not_asked_for_again_for_ever() -> None:
    for finish in ("unknown", None):
        assert decide([asked("U1", 1), answered("A1", 2, "U1", text("A1", "x"), finish=finish)]) == Stop()


def test_a_failed_answer_ends_the_run_also_with_calls_in_it() -> None:
    for failure in (aborted(), unknown("boom")):
        assert decide([asked("U1", 1), answered("A1", 2, "U1", called("A1"), error=failure)]) == Stop()


def test_the_ids_of_messages_say_nothing_about_their_order() -> None:
    # As after the wrap of 2026-08-14: the old ids sort after the new ones.
    old = [asked("msg_fff", 1), answered("msg_ffff", 2, "msg_fff", text("msg_ffff", "then"))]
    new = asked("msg_000", 3)

    assert decide([*old, new]) == Step(prompt_of(new))
    assert decide([*old, new, answered("msg_0001", 4, "msg_000", text("msg_0001", "now"))]) == Stop()


def test_an_answer_to_an_earlier_prompt_does_not_answer_the_newest() -> None:
    second = asked("U2", 3)
    history = [asked("U1", 1), answered("A0", 2, "U0"), second, answered("A1", 4, "U1", text("A1", "late"))]

    assert decide(history) == Step(prompt_of(second))


def test_an_answer_from_before_answers_named_their_prompt_counts_by_its_place() -> None:
    assert decide([asked("U1", 1), answered("A1", 2, "", text("A1", "old"))]) == Stop()


def test_the_last_step_an_agent_may_take_is_marked_and_then_it_ends() -> None:
    first = asked("U1", 1)
    going = [first, answered("A1", 2, "U1", called("A1"))]

    assert decide([first], taken=0, limit=2) == Step(prompt_of(first))
    assert decide(going, taken=1, limit=2) == Step(prompt_of(first), last=True)
    assert decide(going, taken=2, limit=2) == Stop()


@given(st.integers(1, 5), st.integers(0, 8))
def test_a_run_ends_by_itself_within_its_limit(limit: int, wants: int) -> None:
    """However many calls a model makes, it gets `limit` steps and no more."""
    history = [asked("U1", 1)]
    taken = 0
    while isinstance(decide(history, taken=taken, limit=limit), Step):
        taken += 1
        more = taken <= wants
        id = f"A{taken}"
        history.append(answered(id, taken + 1, "U1", called(id) if more else text(id, "done")))

    assert taken == min(limit, wants + 1)
