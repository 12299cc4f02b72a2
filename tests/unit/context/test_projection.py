"""The size of the next request, estimated before it is sent."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from given.conversation import assistant_message, ids, text, tool_part, user_message
from weft.context.tokens import IMAGE_TOKENS, estimate_bias, project_tokens
from weft.model.failure import unknown_failure
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import AnyPart, CallTime, CompletedState, FilePart, Tokens, ToolPart


def answer_with_tokens(id: str, at: int, tokens: Tokens, *parts: AnyPart) -> MessageWithParts:
    message = assistant_message(id, at, "U1", *parts)
    assert isinstance(message.info, AssistantMessage)
    return replace(message, info=replace(message.info, tokens=tokens))


def call_with_output(message: str, output: str) -> ToolPart:
    part = tool_part(message)
    time = CallTime(start=1, end=2)
    return replace(part, state=CompletedState(input={}, output=output, title="", metadata={}, time=time))


def test_without_counts_everything_is_estimated_with_the_overhead() -> None:
    alone = project_tokens([user_message("U1", 1)])
    assert 0 < alone < 10
    assert project_tokens([user_message("U1", 1)], overhead=9_000) == 9_000 + alone


def test_after_the_first_count_the_overhead_is_included_in_it() -> None:
    answer = answer_with_tokens("A1", 2, Tokens(input=5_000, output=10), text("A1", "words " * 500))
    assert project_tokens([user_message("U1", 1), answer], overhead=9_000) == 5_010


def test_estimates_are_corrected_by_their_past_error() -> None:
    output = "word " * 1_000
    estimate = project_tokens([answer_with_tokens("A1", 1, Tokens(), call_with_output("A1", output))])
    first = answer_with_tokens("A1", 1, Tokens(input=1_000, output=0), call_with_output("A1", output))
    # The provider counted three times what we had estimated for the result of the first answer.
    second = answer_with_tokens(
        "A2", 2, Tokens(input=1_000 + 3 * estimate, output=0), call_with_output("A2", output)
    )

    assert estimate_bias([first]) == 1.0
    assert 2.8 < estimate_bias([first, second]) < 3.2
    assert project_tokens([first, second]) > 1_000 + 3 * estimate + 2.8 * estimate * 0.9


def test_an_answer_with_fewer_input_tokens_than_before_is_not_used_as_a_sample() -> None:
    first = answer_with_tokens("A1", 1, Tokens(input=9_000), call_with_output("A1", "word " * 1_000))
    second = answer_with_tokens("A2", 2, Tokens(input=100), call_with_output("A2", "word"))
    assert estimate_bias([first, second]) == 1.0


def test_images_count_and_failed_answers_do_not() -> None:
    picture = FilePart(**ids("U1", 1), mime="image/png", url="data:image/png;base64,AAAA")
    failure = unknown_failure("no")
    broken = assistant_message("A1", 2, "U1", text("A1", "never shown " * 100), error=failure)
    assert project_tokens([user_message("U1", 1, picture), broken]) == IMAGE_TOKENS


@given(st.lists(st.tuples(st.integers(0, 10**6), st.text(max_size=200)), max_size=12))
def test_a_projection_is_never_below_the_counted_tokens(answers: list[tuple[int, str]]) -> None:
    window = [
        answer_with_tokens(f"A{number}", number, Tokens(input=taken), call_with_output(f"A{number}", output))
        for number, (taken, output) in enumerate(answers)
    ]
    last = next((taken for taken, _ in reversed(answers) if taken), 0)
    assert 0.5 <= estimate_bias(window) <= 4.0
    assert project_tokens(window) >= last
