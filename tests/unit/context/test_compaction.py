"""Smaller requests, and long histories split into pieces."""

from hypothesis import example, given
from hypothesis import strategies as st

from given.conversation import assistant_message, text, user_message
from weft.context.compaction import (
    MAX_SHORTENED_CHARS,
    MIN_PIECE_SHARE,
    SAFE_SHARE,
    list_smaller_versions,
    shorten_messages,
    split_history,
)
from weft.context.history import CLEARED
from weft.context.tokens import estimate_message
from weft.model.message import MessageWithParts, UserMessage
from weft.provider.contract import (
    AssistantModelMessage,
    CallContent,
    MediaContent,
    ModelMessage,
    ResultContent,
    TextContent,
    ToolModelMessage,
    UserModelMessage,
)

PICTURE = MediaContent(url="data:image/png;base64,AAAA", mime="image/png", filename="loom.png")


def call(number: int, output: str = "out") -> list[ModelMessage]:
    id = f"c{number}"
    result = ResultContent(call_id=id, tool="read", output=output)
    return [
        AssistantModelMessage(content=(CallContent(call_id=id, tool="read", input={}),)),
        ToolModelMessage(content=(result,)),
    ]


def outputs(turns: tuple[ModelMessage, ...]) -> list[str]:
    return [result.output for turn in turns if isinstance(turn, ToolModelMessage) for result in turn.content]


def test_images_are_removed_first_and_then_old_results() -> None:
    turns = [UserModelMessage(content=(TextContent(text="look"), PICTURE)), *call(1), *call(2), *call(3)]
    first, second = list_smaller_versions(turns)

    assert "loom.png" in str(first[0])
    assert "base64" not in str(first)
    assert outputs(first) == ["out", "out", "out"]
    assert outputs(second) == [CLEARED, "out", "out"]


def test_a_version_that_is_not_smaller_is_skipped() -> None:
    assert list(list_smaller_versions([UserModelMessage(content=(TextContent(text="hi"),)), *call(1)])) == []


def test_the_smallest_version_keeps_the_beginning_of_each_prompt_and_result() -> None:
    beginning = "x" * MAX_SHORTENED_CHARS
    long, short = f"{beginning}y", f"{beginning} […]"
    made = shorten_messages([UserModelMessage(content=(TextContent(text=long),)), *call(1, long)])
    assert made == (UserModelMessage(content=(TextContent(text=short),)), *call(1, short))


def turn(number: int, words: int) -> list[MessageWithParts]:
    prompt, answer = f"U{number}", f"A{number}"
    return [
        user_message(prompt, number * 10, text(prompt, "word " * words)),
        assistant_message(answer, number * 10 + 1, prompt, text(answer, "word " * words)),
    ]


def test_a_history_that_fits_is_one_piece() -> None:
    window = turn(1, 10)
    assert split_history(window, None) == [window]
    assert split_history(window, 10_000) == [window]


def test_pieces_begin_with_a_prompt_if_possible() -> None:
    window = [message for number in range(1, 9) for message in turn(number, 100)]
    made = split_history(window, 600)
    assert len(made) > 2
    assert all(isinstance(piece[0].info, UserMessage) for piece in made)


@given(st.lists(st.integers(0, 400), max_size=20), st.integers(50, 2_000))
@example([1, 82], 280)  # a turn that would have fitted alone, after a tiny one
def test_pieces_cover_the_history_and_none_is_larger_than_necessary(sizes: list[int], most: int) -> None:
    window = [message for number, words in enumerate(sizes, 1) for message in turn(number, words)]
    made = split_history(window, most)
    assert [message for piece in made for message in piece] == window
    limit = most * SAFE_SHARE
    for piece in made:
        *before, _ = [0, *map(estimate_message, piece)]
        # A small piece may come before a turn that would have fitted alone, or before a message that is too long.
        assert (
            sum(map(estimate_message, piece)) <= limit * (1 + MIN_PIECE_SHARE)
            or sum(before) <= limit * MIN_PIECE_SHARE
        )
