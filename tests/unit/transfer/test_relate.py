"""Comparing two states of a session: which one is ahead, and when they are apart."""

from msgspec.structs import replace

from given.session_exports import AT, export, with_text
from weft.model.message import AssistantMessage, UserMessage, UserSummary
from weft.model.part import CompletedState, PendingState, RunningState, Span, TextPart, ToolPart
from weft.transfer.session_import import compare_states, find_first_difference

SHORT, LONG = export(turns=1), export(turns=2)


def test_a_session_equals_itself() -> None:
    assert compare_states(SHORT, SHORT) == "same"


def test_the_state_with_more_messages_is_ahead() -> None:
    assert compare_states(LONG, SHORT) == "ahead"
    assert compare_states(SHORT, LONG) == "behind"


def test_states_with_different_texts_have_diverged() -> None:
    assert compare_states(with_text(SHORT, "other words"), SHORT) == "apart"
    assert compare_states(with_text(LONG, "other words"), SHORT) == "apart"


def test_two_states_that_both_continued_have_diverged() -> None:
    here = replace(LONG, messages=LONG.messages[:3])
    there = replace(LONG, messages=(*LONG.messages[:2], LONG.messages[3]))
    assert compare_states(there, here) == "apart"
    assert find_first_difference(there, here) == LONG.messages[3]


def test_an_unfinished_answer_may_have_grown() -> None:
    prompt, answer = SHORT.messages
    call, said = answer.parts
    assert isinstance(answer.info, AssistantMessage)
    assert isinstance(said, TextPart)
    assert isinstance(call, ToolPart)
    info = replace(answer.info, time=replace(answer.info.time, completed=None), finish=None)
    half = replace(said, text=said.text[:3], time=Span(start=AT))
    for state in (PendingState(input={}, raw=""), RunningState(input={}, time=Span(start=AT))):
        open_answer = replace(answer, info=info, parts=(replace(call, state=state), half))
        earlier = replace(SHORT, messages=(prompt, open_answer))
        assert compare_states(SHORT, earlier) == "ahead"
        assert compare_states(earlier, SHORT) == "behind"


def test_summaries_and_pruned_outputs_do_not_make_states_diverge() -> None:
    prompt, answer = SHORT.messages
    call, said = answer.parts
    assert isinstance(prompt.info, UserMessage)
    assert isinstance(call, ToolPart)
    assert isinstance(call.state, CompletedState)
    state = replace(call.state, time=replace(call.state.time, compacted=AT))
    summed = replace(prompt, info=replace(prompt.info, summary=UserSummary(title="t")))
    later = replace(SHORT, messages=(summed, replace(answer, parts=(replace(call, state=state), said))))
    assert compare_states(later, SHORT) == "ahead"
