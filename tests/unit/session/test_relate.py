"""Two states of one session: which is ahead, and when neither is."""

from msgspec.structs import replace

from given.parcels import AT, parcel, with_text
from weft.model.message import AssistantMessage, UserMessage, UserSummary
from weft.model.part import CompletedState, PendingState, RunningState, Span, TextPart, ToolPart
from weft.transfer.intake import parting, relate

SHORT, LONG = parcel(turns=1), parcel(turns=2)


def test_a_session_is_the_same_as_itself() -> None:
    assert relate(SHORT, SHORT) == "same"


def test_who_has_said_more_is_ahead() -> None:
    assert relate(LONG, SHORT) == "ahead"
    assert relate(SHORT, LONG) == "behind"


def test_who_says_it_in_other_words_has_gone_apart() -> None:
    assert relate(with_text(SHORT, "other words"), SHORT) == "apart"
    assert relate(with_text(LONG, "other words"), SHORT) == "apart"


def test_two_that_went_on_each_their_own_way_are_apart() -> None:
    here = replace(LONG, messages=LONG.messages[:3])
    there = replace(LONG, messages=(*LONG.messages[:2], LONG.messages[3]))
    assert relate(there, here) == "apart"
    assert parting(there, here) == LONG.messages[3]


def test_an_answer_that_was_not_over_may_have_gone_on() -> None:
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
        assert relate(SHORT, earlier) == "ahead"
        assert relate(earlier, SHORT) == "behind"


def test_a_summary_of_a_prompt_and_a_forgotten_output_are_no_other_words() -> None:
    prompt, answer = SHORT.messages
    call, said = answer.parts
    assert isinstance(prompt.info, UserMessage)
    assert isinstance(call, ToolPart)
    assert isinstance(call.state, CompletedState)
    state = replace(call.state, time=replace(call.state.time, compacted=AT))
    summed = replace(prompt, info=replace(prompt.info, summary=UserSummary(title="t")))
    later = replace(SHORT, messages=(summed, replace(answer, parts=(replace(call, state=state), said))))
    assert relate(later, SHORT) == "ahead"
