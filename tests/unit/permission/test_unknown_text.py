"""Rules for texts with unknown parts, and for programs of which nobody knows what they write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from given.examples import examples
from given.gate_harness import rules
from weft.model.permission import mark_unknown
from weft.permission.rules import (
    MAY_CHANGE_FILES,
    MAY_RUN_NAMED,
    add_questions,
    ask_before_writers,
    evaluate,
    judge,
    matches,
    may_match,
    surely_matches,
)


@pytest.mark.parametrize(
    ("text", "pattern", "surely", "maybe"),
    [
        ("⟦x⟧", "*", True, True),
        ("⟦x⟧", "ls *", False, True),
        ("ls ⟦x⟧", "ls *", True, True),
        ("ls ⟦x⟧", "ls ?", False, True),
        ("ls ⟦x⟧", "cat *", False, False),
        ("ls⟦ x⟧", "ls *", True, True),
        ("ls⟦ x⟧", "ls", False, True),
        ("ls⟦x⟧", "ls *", False, True),
        ("ls⟦ x⟧ a⟦ y⟧", "ls *", True, True),
        ("build/⟦x⟧", ".git/*", False, False),
        ("build/⟦x⟧", "build/*", True, True),
        ("build/⟦x⟧", "*/secret", False, True),
        ("⟦x⟧", ".git/hooks/*", False, True),
        ("a⟦never closed", "a*", True, True),
        ("ls", "ls *", True, True),
    ],
)
def test_a_text_with_an_unknown_part_matches_surely_perhaps_or_not_at_all(
    text: str, pattern: str, surely: bool, maybe: bool
) -> None:
    assert (surely_matches(text, pattern), may_match(text, pattern)) == (surely, maybe)


LETTERS = st.text(alphabet="ab ", max_size=4)
PATTERNS = st.text(alphabet="ab *?", max_size=6)


@examples(300)
@given(LETTERS, LETTERS, LETTERS, PATTERNS)
def test_matching_an_unknown_text_is_right_for_every_value(
    before: str, inside: str, after: str, pattern: str
) -> None:
    text, filled = before + mark_unknown("x") + after, before + inside + after
    if surely_matches(text, pattern):
        assert matches(filled, pattern)
    if matches(filled, pattern):
        assert may_match(text, pattern)


@examples(300)
@given(LETTERS, LETTERS, PATTERNS)
def test_matching_an_optional_word_is_right_with_and_without_it(
    before: str, inside: str, pattern: str
) -> None:
    if surely_matches(f"{before}⟦ x⟧", pattern):
        assert matches(before, pattern)
        assert matches(f"{before} {inside}", pattern)


def test_an_unknown_text_asks_if_a_stricter_rule_might_match() -> None:
    ruleset = rules("bash:*:allow", "bash:cat *:deny")
    assert evaluate("bash", "⟦$X⟧ a", ruleset).action == "ask"
    assert evaluate("bash", "ls ⟦$X⟧", ruleset).action == "allow"
    assert evaluate("bash", "cat ⟦$X⟧", ruleset).action == "deny"
    assert evaluate("bash", "⟦$X⟧", rules("bash:*:deny", "bash:cat *:allow")).action == "deny"


def test_without_write_permission_programs_that_may_write_need_permission() -> None:
    reader = (rules("*:*:allow", "edit:*:deny"),)
    watched = ask_before_writers(reader, "bash", ["make", "⟦$X⟧"])
    assert judge("bash", "make", watched).action == "ask"
    assert judge("bash", "⟦$X⟧", watched).action == "ask"
    assert judge("bash", "ls", watched).action == "allow"


def test_with_write_permission_or_a_rule_for_the_program_nothing_is_asked() -> None:
    writer = (rules("*:*:allow"),)
    assert ask_before_writers(writer, "bash", ["make"]) == writer
    knower = (rules("*:*:allow", "edit:*:deny", "bash:make *:allow"),)
    assert ask_before_writers(knower, "bash", ["make test"]) == knower
    assert ask_before_writers(knower, "bash", []) == knower


def test_an_added_question_has_a_reason_and_a_rule_of_the_agent_needs_none() -> None:
    reader = (rules("*:*:allow", "edit:*:deny", "bash:rm *:deny", "bash:ls:ask"),)
    patterns = ("make", "cat x", "ls", "rm x")
    watched = add_questions(reader, "bash", patterns, may_write=["make"], perhaps=[])
    assert watched.reasons == {"make": MAY_CHANGE_FILES}
    named = add_questions(reader, "bash", patterns, may_write=["make"], perhaps=["rm y"])
    assert named.reasons == {"make": MAY_CHANGE_FILES, "cat x": MAY_RUN_NAMED}
    assert judge("bash", "cat x", named.rulesets).action == "ask"
    assert add_questions(reader, "bash", patterns, may_write=[], perhaps=["cp"]).rulesets == reader
