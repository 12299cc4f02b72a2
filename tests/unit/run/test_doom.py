"""Tool calls that repeat in a loop."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from given.conversation import assistant_message, text, tool_part, user_message
from weft.model.ids import MessageID
from weft.model.message import UserMessage
from weft.model.part import ToolPart
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


def past_calls(names: str, outcome: str = "same") -> list[PastCall]:
    return [PastCall(name, {}, outcome) for name in names]


def test_the_third_identical_call_is_reported() -> None:
    assert find_loop(past_calls(""), "a", {}) is None
    assert find_loop(past_calls("a"), "a", {}) is None
    assert find_loop(past_calls("aa"), "a", {}) == CallLoop(length=1, times=3)


def test_a_call_with_another_input_is_different() -> None:
    assert find_loop([PastCall("a", {"x": 1}, "o"), PastCall("a", {"x": 2}, "o")], "a", {"x": 3}) is None


def test_calls_with_changing_results_may_be_repeated_more_often() -> None:
    waiting = [PastCall("bash", {}, f"{n} %") for n in range(8)]

    assert find_loop(waiting, "bash", {}) is None
    assert find_loop([*waiting, PastCall("bash", {}, "8 %")], "bash", {}) == CallLoop(length=1, times=10)


def test_cycles_of_up_to_four_calls_are_detected() -> None:
    for cycle in ("ab", "abc", "abcd", "aab"):
        assert find_loop(past_calls((cycle * 3)[:-1]), cycle[-1], {}) == CallLoop(
            length=len(cycle), times=3
        ), cycle
    assert find_loop(past_calls(("abcde" * 3)[:-1]), "e", {}) is None


def test_a_cycle_whose_results_change_is_not_reported() -> None:
    turns = [PastCall(name, {}, str(n)) for n, name in enumerate("ababa")]

    assert find_loop(turns, "b", {}) is None


def test_consecutive_invalid_calls_are_reported_even_if_they_differ() -> None:
    wrong = [PastCall("invalid", {"error": str(number)}, str(number)) for number in range(4)]

    assert find_loop(wrong, "invalid", {"error": "5"}) == CallLoop(times=5, kind="invalid")
    assert find_loop(wrong, "read", {}) is None
    assert find_loop([*wrong, PastCall("read", {}, "ok")], "invalid", {"error": "5"}) is None
    assert "could not be read" in describe_loop(CallLoop(times=5, kind="invalid"))


def test_consecutive_failed_calls_are_reported() -> None:
    failed = [PastCall("edit", {"n": number}, "not found", failed=True) for number in range(10)]

    assert find_loop(failed[:9], "edit", {"n": 10}) is None
    assert find_loop(failed, "edit", {"n": 10}) == CallLoop(times=11, kind="failures")
    assert find_loop([*failed, PastCall("read", {}, "ok")], "edit", {"n": 10}) is None
    failed_call = PastCall("edit", {}, describe_loop(CallLoop(times=11, kind="failures")), failed=True)
    assert find_loop([*failed, failed_call], "edit", {"n": 11}) is None


def test_identical_text_before_each_call_is_reported() -> None:
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


def test_calls_are_counted_across_messages_and_only_for_this_prompt() -> None:
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


def test_a_command_that_is_only_described_anew_is_the_same_call() -> None:
    def run(number: int) -> ToolPart:
        input = {"command": "make", "description": f"Tries again ({number})"}
        part = tool_part(f"A{number}", tool="bash")
        return replace(part, state=replace(part.state, input=input))

    history = [user_message("U1", 1), *(assistant_message(f"A{n}", n, "U1", run(n)) for n in (2, 3))]
    prompt = history[0].info
    assert isinstance(prompt, UserMessage)
    calls = list_calls(history, prompt)

    assert find_loop(calls, "bash", {"command": "make", "description": "Once more"}) == CallLoop(times=3)
    assert find_loop(calls, "bash", {"command": "make test", "description": "Once more"}) is None
    described = [PastCall("issue", {"description": str(number)}, "done") for number in range(2)]
    assert find_loop(described, "issue", {"description": "2"}) is None


def test_calls_of_one_message_count_while_they_run() -> None:
    running = [PastCall("read", {}, None)] * 2

    assert find_loop(running, "read", {}) == CallLoop(length=1, times=3)
    assert find_loop(running, "read", {"x": 1}) is None
    assert find_loop([PastCall("read", {}, "out"), PastCall("read", {}, None)], "read", {}) == CallLoop(
        length=1, times=3
    )
    assert find_loop(running[:1], "read", {}) is None


def test_only_earlier_calls_are_considered() -> None:
    history = [
        user_message("U1", 1),
        assistant_message("A1", 2, "U1", tool_part("A1", 1), tool_part("A1", 2)),
        assistant_message("A2", 3, "U1", tool_part("A2", 1), tool_part("A2", 2), tool_part("A2", 3)),
    ]
    prompt = history[0].info
    assert isinstance(prompt, UserMessage)
    second = CallRef(message_id=MessageID("A2"), call_id="call_2")

    assert list_calls(history, prompt, before=second) == [PastCall("read", {"x": 1}, "out")] * 3


def test_the_hint_is_recognised_in_a_result() -> None:
    words = describe_loop(CallLoop(length=2, times=3))

    assert words.startswith(BLOCKED_PREFIX)
    assert was_blocked([PastCall("a", {}, words)])
    assert not was_blocked(past_calls("abc"))


@given(st.integers(1, 4), st.integers(0, 12))
def test_a_cycle_of_up_to_four_calls_is_reported_before_its_third_round_ends(
    length: int, before: int
) -> None:
    cycle = "wxyz"[:length]
    calls = [PastCall(f"other{n}", {}, "o") for n in range(before)]
    turns = 0
    while find_loop(calls, cycle[turns % length], {}) is None:
        calls.append(PastCall(cycle[turns % length], {}, "same"))
        turns += 1

    assert turns == 3 * length - 1
