"""The parts of the full screen: the words that were searched for stand out."""

import pytest

from weft.tui.full.widgets import mark_words
from weft.tui.text import Line


def list_marked(line: Line) -> list[str]:
    return [text for style, text in line if text and "reverse" in style.split()]


@pytest.mark.parametrize(
    ("text", "words", "marked"),
    [
        ("a Thread, two threads", "thread", ["Thread", "thread"]),
        ("a thread", "THREAD", ["thread"]),
        ("a thread", "needle", []),
        ("a thread", "", []),
        ("İİİ thread, İ thread", "thread", ["thread", "thread"]),
        ("in İzmir", "i\u0307", ["İ"]),
        ("in İzmir", "İzmir", ["İzmir"]),
        ("İİİ", "\u0307i", ["İİ", "İ"]),
    ],
)
def test_words_are_marked_in_either_case(text: str, words: str, marked: list[str]) -> None:
    line = mark_words([("bold", text), ("dim", " ")], words)
    assert list_marked(line) == marked
    assert "".join(text for _, text in line) == f"{text} "
