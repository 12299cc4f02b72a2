"""How much fits into a model's context, and which outputs are dropped to make room."""

import pytest
from msgspec.structs import replace

from given.conversation import assistant_message, ids, user_message
from weft.context.compaction import list_prunable_calls
from weft.context.tokens import estimate, find_request_limit, find_usable_tokens
from weft.model.catalog import Limit, Model, ModelApi
from weft.model.message import MessageWithParts
from weft.model.part import CacheTokens, CallTime, CompletedState, Tokens, ToolPart, count_used

MODEL = Model(id="m", provider_id="p", name="M", api=ModelApi(id="m"), limit=Limit(context=0, output=0))
OUTPUT = 32_000


@pytest.mark.parametrize(
    ("context", "most_in", "most_out", "tokens", "full"),
    [
        (100_000, None, 32_000, (75_000, 0, 5_000), True),
        (200_000, None, 32_000, (100_000, 0, 10_000), False),
        (400_000, 272_000, 128_000, (271_000, 2_000, 1_000), True),
        (0, None, 32_000, (10**9, 0, 0), False),
    ],
)
def test_the_context_is_full_if_another_answer_does_not_fit(
    context: int, most_in: int | None, most_out: int, tokens: tuple[int, int, int], full: bool
) -> None:
    model = replace(MODEL, limit=Limit(context=context, input=most_in, output=most_out))
    taken, read, given = tokens
    counted = count_used(Tokens(input=taken, output=given, cache=CacheTokens(read=read)))
    most = find_request_limit(model, OUTPUT)

    assert (most is not None and counted > most) is full


@pytest.mark.parametrize(
    ("threshold", "most"), [(None, 68_000), (0.5, 34_000), (20_000, 20_000), (90_000, 68_000)]
)
def test_a_threshold_is_a_share_or_a_number_and_never_exceeds_the_context(
    threshold: float | None, most: int
) -> None:
    assert (
        find_request_limit(replace(MODEL, limit=Limit(context=100_000, output=32_000)), OUTPUT, threshold)
        == most
    )


def test_the_full_output_limit_is_reserved_if_the_model_states_none() -> None:
    assert find_usable_tokens(replace(MODEL, limit=Limit(context=100_000, output=0)), OUTPUT) == 68_000


def test_estimates_distinguish_prose_code_and_chinese() -> None:
    assert estimate("") == 0
    prose, chinese = "the quick brown fox jumps over the lazy dog " * 10, "会话引擎处理消息和工具调用" * 10
    assert len(prose) / 5 < estimate(prose) < len(prose) / 3.5
    assert estimate(chinese) >= len(chinese) * 0.9
    assert estimate('{"a":[1,2,3],"b":{"c":true}}' * 10) > len('{"a":[1,2,3],"b":{"c":true}}') * 10 / 4


def call(
    message: str, size: int, number: int = 1, *, tool: str = "read", compacted: int | None = None
) -> ToolPart:
    output = "word" * size  # about one token each
    time = CallTime(start=1, end=2, compacted=compacted)
    state = CompletedState(input={}, output=output, title="", metadata={}, time=time)
    return ToolPart(**ids(message, number), call_id=f"c{number}", tool=tool, state=state)


def turn(number: int, *parts: ToolPart) -> list[MessageWithParts]:
    return [
        user_message(f"U{number}", number * 10),
        assistant_message(f"A{number}", number * 10 + 1, f"U{number}", *parts),
    ]


def test_outputs_beyond_forty_thousand_tokens_are_pruned_except_those_of_the_last_two_turns() -> None:
    old, older = call("A2", 45_000), call("A1", 30_000)
    history = [*turn(1, older), *turn(2, old), *turn(3, call("A3", 50_000)), *turn(4, call("A4", 50_000))]

    assert list_prunable_calls(history) == [old, older]
    assert list_prunable_calls(history[:-2]) == []


def test_a_small_gain_is_not_worth_pruning() -> None:
    history = [*turn(1, call("A1", 10_000)), *turn(2, call("A2", 40_000)), *turn(3), *turn(4)]

    assert list_prunable_calls(history) == []


def test_skills_are_never_pruned_and_a_pruned_output_ends_the_search() -> None:
    skill, done = call("A1", 90_000, tool="skill"), call("A2", 90_000, compacted=5)
    old = call("A3", 90_000)

    assert list_prunable_calls([*turn(1, skill), *turn(3, old), *turn(4), *turn(5)]) == [old]
    assert list_prunable_calls(
        [*turn(1, call("A1", 90_000)), *turn(2, done), *turn(3, old), *turn(4), *turn(5)]
    ) == [old]
    summary = assistant_message("A2", 21, "U2", summary=True)
    assert list_prunable_calls([*turn(1, call("A1", 90_000)), summary, *turn(4), *turn(5)]) == []
