"""Find the text to replace, by the strictest matcher first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ToolError
from weft.tool import edit

FUNCTION = "def one():\n    a = 1\n    b = 2\n    return a + b\n"


@pytest.mark.parametrize(
    ("way", "content", "old", "found"),
    [
        (edit.match_exact, "abc", "b", ["b"]),
        (edit.match_trimmed_lines, "  a\n    b\nc", "a\nb\n", ["  a\n    b"]),
        (
            edit.match_anchored_block,
            FUNCTION,
            "def one():\n    a = 1\n    b = 3\n    return a + b",
            [FUNCTION[:-1]],
        ),
        (edit.match_anchored_block, FUNCTION, "def one():\n    raise SystemExit()\n    return a + b", []),
        (edit.match_anchored_block, "a\nb", "a\nb", []),
        (edit.match_whitespace, "x  =   1", "x = 1", ["x  =   1"]),
        (edit.match_whitespace, "if (x  ==  1) {", "x == 1", ["x  ==  1"]),
        (edit.match_whitespace, "a  b\nc  d", "a b\nc d", ["a  b\nc  d"]),
        (edit.match_indentation, "    if x:\n        y\n", "if x:\n    y", ["    if x:\n        y"]),
        (edit.match_escaped, 'say("hi\n")', 'say(\\"hi\\n\\")', ['say("hi\n")']),
        (edit.match_trimmed, "a word", "\n word \n", ["word"]),
        (edit.match_trimmed, "a word", "word", []),
        (
            edit.match_context,
            "start\none\ntwo\nend",
            "start\none\nother\nend",
            ["start\none\ntwo\nend"],
        ),
        (edit.match_context, "start\none\ntwo\nend", "start\nthree\nother\nend", []),
        (edit.match_every_exact, "a b a", "a", ["a", "a"]),
    ],
)
def test_each_matcher_finds_its_text(way: edit.Matcher, content: str, old: str, found: list[str]) -> None:
    assert list(way(content, old)) == found


def test_there_are_nine_matchers() -> None:
    assert len(edit.MATCHERS) == 9


def test_the_matched_indentation_is_replaced_too() -> None:
    assert edit.replace_match("class A:\n    x = 1\n", "x = 1", "    x = 2") == "class A:\n        x = 2\n"


def test_an_ambiguous_match_is_refused_unless_all_are_replaced() -> None:
    with pytest.raises(ToolError, match="Found multiple matches for oldString"):
        edit.replace_match("a\nb\na\n", "a", "c")
    assert edit.replace_match("a\nb\na\n", "a", "c", replace_all=True) == "c\nb\nc\n"


def test_overlapping_matches_count_as_two() -> None:
    with pytest.raises(ToolError, match="Found multiple matches"):
        edit.replace_match("aaa", "aa", "b")


def test_a_missing_text_is_refused() -> None:
    with pytest.raises(ToolError, match="oldString not found in content"):
        edit.replace_match("abc", "xyz", "b")


def test_a_function_with_only_the_same_first_and_last_line_is_not_replaced() -> None:
    content = "def run():\n    first()\n    second()\n    third()\n    fourth()\n    return True\n"
    with pytest.raises(ToolError, match="not found"):
        edit.replace_match(content, "def run():\n    x = compute(7)\n    return True", "def run(): pass")


def test_a_new_text_is_taken_literally() -> None:
    assert edit.replace_match("a", "a", "\\1 $& \\g<0>") == "\\1 $& \\g<0>"


@given(st.text(), st.text(min_size=1), st.text())
def test_a_single_exact_match_is_always_replaced_exactly(before: str, old: str, after: str) -> None:
    content = before + old + after
    if content.find(old) == content.rfind(old) == len(before):
        assert edit.replace_match(content, old, "NEW") == before + "NEW" + after


@given(st.text(alphabet="ab \n\t"), st.text(alphabet="ab \n\t"), st.booleans())
def test_a_text_is_replaced_or_refused_with_the_reason(content: str, old: str, replace_all: bool) -> None:
    try:
        changed = edit.replace_match(content, old, "X", replace_all=replace_all)
    except ToolError:
        return
    assert "X" in changed


@pytest.mark.timeout(10)
def test_a_long_text_that_is_not_in_a_long_file_is_found_missing_soon() -> None:
    lines = [f'    value_{number} = compute("x\\n", {number})  # why' for number in range(40_000)]
    quoted = "\n".join(lines[9000:10_000]) + "\n    missing()\n "
    with pytest.raises(ToolError, match="not found"):
        edit.replace_match("\n".join(lines), quoted, "x")
