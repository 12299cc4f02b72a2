"""Wildcards of permission rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.permission.rules import matches, may_match, surely_matches


@pytest.mark.parametrize(
    ("text", "pattern", "fits"),
    [
        ("file1.txt", "file?.txt", True),
        ("file12.txt", "file?.txt", False),
        ("foo+bar", "foo+bar", True),
        ("fooo+bar", "foo+bar", False),
        ("ls", "ls *", True),
        ("ls -la", "ls *", True),
        ("lstmeval", "ls *", False),
        ("lstmeval", "ls*", True),
        ("git", "git *", True),
        ("src/a/b.ts", "src/*", True),
        ("one\ntwo", "one*", True),
        ("LS", "ls", False),
        ("", "*", True),
        ("", "", True),
        ("x", "", False),
    ],
)
def test_wildcards_match_as_listed(text: str, pattern: str, fits: bool) -> None:
    assert matches(text, pattern) is fits


@given(st.text())
def test_a_text_without_wildcards_matches_itself(text: str) -> None:
    plain = text.replace("*", "").replace("?", "")
    assert matches(plain, plain)


@given(st.text(), st.text(), st.text())
def test_a_star_matches_any_text(before: str, between: str, after: str) -> None:
    assert matches(before + between + after, f"{before}*{after}")


@given(st.text(min_size=1))
def test_a_single_star_matches_everything(text: str) -> None:
    assert matches(text, "*")


def test_many_stars_are_matched_in_bounded_time() -> None:
    assert not matches("a" * 5000, "*" * 200 + "b")


def test_stars_with_text_between_them_are_matched_in_bounded_time() -> None:
    assert not matches("a" * 5000, "*a" * 50 + "*b")
    assert surely_matches("a" * 5000, "*a" * 50 + "*")
    assert not surely_matches("a" * 5000, "*a" * 50 + "*b")


@given(st.text("ab ", max_size=12), st.text("ab *?", max_size=8))
def test_a_text_matches_if_the_wildcards_can_stand_for_some_of_it(text: str, pattern: str) -> None:
    assert matches(text, pattern) == may_match(text, pattern)
