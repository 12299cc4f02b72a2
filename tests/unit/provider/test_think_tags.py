"""Separate reasoning in tags from the text."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.provider.openai_chat.stream import ThinkSplitter


def split(*pieces: str) -> tuple[str, str]:
    """Return reasoning and text."""
    splitter = ThinkSplitter()
    found = [*(piece for text in pieces for piece in splitter.feed(text)), *splitter.end()]
    thought = "".join(text for kind, text in found if kind == "reasoning")
    return thought, "".join(text for kind, text in found if kind == "text")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", ("", "hello")),
        ("<think>hm</think>hello", ("hm", "hello")),
        ("\n<think>\nhm\n</think>\n\nhello", ("hm\n", "hello")),
        ("<think>a</think><think>b</think>c", ("ab", "c")),
        ("<think>never closed", ("never closed", "")),
        ("the tag <think>x</think> is a tag", ("", "the tag <think>x</think> is a tag")),
        ("<thing>", ("", "<thing>")),
        ("<thin", ("", "<thin")),
        ("  indented", ("", "  indented")),
        ("<think></think>", ("", "")),
        ("", ("", "")),
    ],
)
def test_thoughts_and_text_are_separated(text: str, expected: tuple[str, str]) -> None:
    assert split(text) == expected
    assert split(*text) == expected


@given(st.text("<think>/ab \n", max_size=60), st.lists(st.integers(0, 60), max_size=5))
def test_the_result_is_the_same_wherever_the_text_is_split(text: str, cuts: list[int]) -> None:
    places = sorted({0, *cuts, 60})
    assert split(*(text[a:b] for a, b in pairwise(places))) == split(text)
