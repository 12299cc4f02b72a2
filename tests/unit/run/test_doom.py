"""Going round in circles."""

from hypothesis import given
from hypothesis import strategies as st

from given.conversation import answered, asked, called
from weft.model.message import UserMessage
from weft.run.doom import BLOCKED, Doom, Made, find_doom, hint, made_for, was_blocked


def made(names: str, outcome: str = "same") -> list[Made]:
    return [Made(name, {}, outcome) for name in names]


def test_the_third_same_call_is_one_too_many() -> None:
    assert find_doom(made(""), "a", {}) is None
    assert find_doom(made("a"), "a", {}) is None
    assert find_doom(made("aa"), "a", {}) == Doom(length=1, times=3)


def test_another_input_is_another_call() -> None:
    assert find_doom([Made("a", {"x": 1}, "o"), Made("a", {"x": 2}, "o")], "a", {"x": 3}) is None


def test_what_brings_news_may_be_asked_for_more_often() -> None:
    waiting = [Made("bash", {}, f"{n} %") for n in range(8)]

    assert find_doom(waiting, "bash", {}) is None
    assert find_doom([*waiting, Made("bash", {}, "8 %")], "bash", {}) == Doom(length=1, times=10)


def test_circles_of_up_to_four_calls_are_seen() -> None:
    for cycle in ("ab", "abc", "abcd", "aab"):
        assert find_doom(made((cycle * 3)[:-1]), cycle[-1], {}) == Doom(length=len(cycle), times=3), cycle
    assert find_doom(made(("abcde" * 3)[:-1]), "e", {}) is None


def test_a_circle_that_changes_what_it_finds_is_no_circle() -> None:
    turns = [Made(name, {}, str(n)) for n, name in enumerate("ababa")]

    assert find_doom(turns, "b", {}) is None


def test_calls_are_counted_over_messages_and_only_of_this_prompt() -> None:
    history = [
        asked("U0", 1),
        answered("A0", 2, "U0", called("A0")),
        asked("U1", 3),
        answered("A1", 4, "U1", called("A1")),
        answered("A2", 5, "U1", called("A2")),
    ]
    prompt = history[2].info
    assert isinstance(prompt, UserMessage)
    calls = made_for(history, prompt)

    assert calls == [Made("read", {"x": 1}, "out")] * 2
    assert find_doom(calls, "read", {"x": 1}) == Doom(length=1, times=3)


def test_the_hint_is_known_again_as_one() -> None:
    words = hint(Doom(length=2, times=3))

    assert words.startswith(BLOCKED)
    assert was_blocked([Made("a", {}, words)])
    assert not was_blocked(made("abc"))


@given(st.integers(1, 4), st.integers(0, 12))
def test_no_circle_of_up_to_four_goes_round_more_than_three_times(length: int, before: int) -> None:
    cycle = "wxyz"[:length]
    calls = [Made(f"other{n}", {}, "o") for n in range(before)]
    turns = 0
    while find_doom(calls, cycle[turns % length], {}) is None:
        calls.append(Made(cycle[turns % length], {}, "same"))
        turns += 1

    assert turns == 3 * length - 1
