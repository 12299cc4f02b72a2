"""Tool calls that repeat in a loop."""

from hypothesis import given
from hypothesis import strategies as st

from given.conversation import assistant_message, text, tool_part, user_message
from weft.model.ids import MessageID
from weft.model.message import UserMessage
from weft.model.permission import CallRef
from weft.run.doom import (
    BLOCKED_PREFIX,
    CallLoop,
    PastCall,
    describe_loop,
    find_loop,
    list_calls,
    list_recent_texts,
    was_blocked,
)


def made(names: str, outcome: str = "same") -> list[PastCall]:
    return [PastCall(name, {}, outcome) for name in names]


def test_the_third_same_call_is_one_too_many() -> None:
    assert find_loop(made(""), "a", {}) is None
    assert find_loop(made("a"), "a", {}) is None
    assert find_loop(made("aa"), "a", {}) == CallLoop(length=1, times=3)


def test_another_input_is_another_call() -> None:
    assert find_loop([PastCall("a", {"x": 1}, "o"), PastCall("a", {"x": 2}, "o")], "a", {"x": 3}) is None


def test_what_brings_news_may_be_asked_for_more_often() -> None:
    waiting = [PastCall("bash", {}, f"{n} %") for n in range(8)]

    assert find_loop(waiting, "bash", {}) is None
    assert find_loop([*waiting, PastCall("bash", {}, "8 %")], "bash", {}) == CallLoop(length=1, times=10)


def test_circles_of_up_to_four_calls_are_seen() -> None:
    for cycle in ("ab", "abc", "abcd", "aab"):
        assert find_loop(made((cycle * 3)[:-1]), cycle[-1], {}) == CallLoop(length=len(cycle), times=3), cycle
    assert find_loop(made(("abcde" * 3)[:-1]), "e", {}) is None


def test_a_circle_that_changes_what_it_finds_is_no_circle() -> None:
    turns = [PastCall(name, {}, str(n)) for n, name in enumerate("ababa")]

    assert find_loop(turns, "b", {}) is None


def test_calls_that_nobody_can_read_are_told_of_though_each_is_wrong_in_another_way() -> None:
    wrong = [PastCall("invalid", {"error": str(number)}, str(number)) for number in range(4)]

    assert find_loop(wrong, "invalid", {"error": "5"}) == CallLoop(times=5, kind="invalid")
    assert find_loop(wrong, "read", {}) is None
    assert find_loop([*wrong, PastCall("read", {}, "ok")], "invalid", {"error": "5"}) is None
    assert "could not be read" in describe_loop(CallLoop(times=5, kind="invalid"))


def test_calls_that_all_fail_are_told_of_whatever_they_are() -> None:
    failed = [PastCall("edit", {"n": number}, "not found", failed=True) for number in range(10)]

    assert find_loop(failed[:9], "edit", {"n": 10}) is None
    assert find_loop(failed, "edit", {"n": 10}) == CallLoop(times=11, kind="failures")
    assert find_loop([*failed, PastCall("read", {}, "ok")], "edit", {"n": 10}) is None
    failed_call = PastCall("edit", {}, describe_loop(CallLoop(times=11, kind="failures")), failed=True)
    assert find_loop([*failed, failed_call], "edit", {"n": 11}) is None


def test_the_same_words_before_each_call_are_told_of() -> None:
    words = "Let me have a look at that file now."

    assert find_loop([], "read", {}, [words] * 4) == CallLoop(times=4, kind="words")
    assert find_loop([], "read", {}, [words] * 3) is None
    assert find_loop([], "read", {}, ["I see."] * 4) is None
    assert find_loop([], "read", {}, [*[words] * 3, "And another."]) is None
    history = [
        user_message("U1", 1),
        *(assistant_message(f"A{n}", n, "U1", text(f"A{n}", words)) for n in range(2, 8)),
    ]
    prompt = history[0].info
    assert isinstance(prompt, UserMessage)
    assert list_recent_texts(history, prompt) == [words] * 4


def test_calls_are_counted_over_messages_and_only_of_this_prompt() -> None:
    history = [
        user_message("U0", 1),
        assistant_message("A0", 2, "U0", tool_part("A0")),
        user_message("U1", 3),
        assistant_message("A1", 4, "U1", tool_part("A1")),
        assistant_message("A2", 5, "U1", tool_part("A2")),
    ]
    prompt = history[2].info
    assert isinstance(prompt, UserMessage)
    calls = list_calls(history, prompt)

    assert calls == [PastCall("read", {"x": 1}, "out")] * 2
    assert find_loop(calls, "read", {"x": 1}) == CallLoop(length=1, times=3)


def test_calls_of_one_message_count_while_they_are_under_way() -> None:
    running = [PastCall("read", {}, None)] * 2

    assert find_loop(running, "read", {}) == CallLoop(length=1, times=3)
    assert find_loop(running, "read", {"x": 1}) is None
    assert find_loop([PastCall("read", {}, "out"), PastCall("read", {}, None)], "read", {}) == CallLoop(
        length=1, times=3
    )
    assert find_loop(running[:1], "read", {}) is None


def test_only_calls_before_the_one_in_question_are_looked_at() -> None:
    history = [
        user_message("U1", 1),
        assistant_message("A1", 2, "U1", tool_part("A1", 1), tool_part("A1", 2)),
        assistant_message("A2", 3, "U1", tool_part("A2", 1), tool_part("A2", 2), tool_part("A2", 3)),
    ]
    prompt = history[0].info
    assert isinstance(prompt, UserMessage)
    second = CallRef(message_id=MessageID("A2"), call_id="call_2")

    assert list_calls(history, prompt, before=second) == [PastCall("read", {"x": 1}, "out")] * 3


def test_the_hint_is_known_again_as_one() -> None:
    words = describe_loop(CallLoop(length=2, times=3))

    assert words.startswith(BLOCKED_PREFIX)
    assert was_blocked([PastCall("a", {}, words)])
    assert not was_blocked(made("abc"))


@given(st.integers(1, 4), st.integers(0, 12))
def test_no_circle_of_up_to_four_goes_round_more_than_three_times(length: int, before: int) -> None:
    cycle = "wxyz"[:length]
    calls = [PastCall(f"other{n}", {}, "o") for n in range(before)]
    turns = 0
    while find_loop(calls, cycle[turns % length], {}) is None:
        calls.append(PastCall(cycle[turns % length], {}, "same"))
        turns += 1

    assert turns == 3 * length - 1
