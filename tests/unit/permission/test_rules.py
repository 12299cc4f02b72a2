"""Rules: the last matching rule decides, and of several patterns the strictest rule."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weft.model.permission import Action, Rule, Ruleset
from weft.permission.rules import (
    STRICTEST_FIRST,
    choose_strictest,
    evaluate,
    judge,
    list_disabled,
    merge,
    permission_of,
    switch_tools,
)


def rules(*ruleset_lines: str) -> Ruleset:
    """Parse rules such as `bash:rm *:deny`."""
    made = []
    for each in ruleset_lines:
        permission, pattern, action = each.split(":")
        made.append(Rule(permission=permission, pattern=pattern, action=action))  # type: ignore[arg-type]
    return tuple(made)


@pytest.mark.parametrize(
    ("ruleset_lines", "asked", "action"),
    [
        (("bash:*:allow", "bash:rm:deny"), ("bash", "rm"), "deny"),
        (("bash:rm:deny", "bash:*:allow"), ("bash", "rm"), "allow"),
        (("*:*:deny", "bash:*:allow"), ("bash", "ls"), "allow"),
        (("bash:*:allow", "*:*:deny"), ("bash", "ls"), "deny"),
        (("mcp_*:*:allow",), ("mcp_x", "*"), "allow"),
        ((), ("bash", "ls"), "ask"),
        (("edit:*:deny",), ("bash", "ls"), "ask"),
    ],
)
def test_the_last_matching_rule_decides(
    ruleset_lines: tuple[str, ...], asked: tuple[str, str], action: Action
) -> None:
    assert evaluate(*asked, rules(*ruleset_lines)).action == action


def test_the_deciding_rule_is_returned() -> None:
    ruleset = rules("bash:*:allow", "bash:rm *:deny")
    assert evaluate("bash", "rm x", ruleset) == ruleset[1]


def test_several_rulesets_are_concatenated() -> None:
    first, second = rules("bash:*:deny"), rules("bash:ls:allow")
    assert evaluate("bash", "ls", first, second) == evaluate("bash", "ls", merge(first, second)) == second[0]


@pytest.mark.parametrize(
    ("ruleset_lines", "tools", "hidden"),
    [
        (
            ("*:*:allow", "edit:*:deny"),
            ("edit", "write", "patch", "multiedit", "apply_patch", "bash"),
            {"edit", "write", "patch", "multiedit", "apply_patch"},
        ),
        (("bash:*:deny", "bash:echo *:allow"), ("bash",), set()),
        (("bash:*:allow", "bash:rm *:deny"), ("bash",), set()),
        (("*:*:deny", "bash:*:allow"), ("bash", "edit", "read"), {"edit", "read"}),
        ((), ("bash",), set()),
    ],
)
def test_a_completely_denied_tool_is_hidden(
    ruleset_lines: tuple[str, ...], tools: tuple[str, ...], hidden: set[str]
) -> None:
    assert list_disabled(tools, rules(*ruleset_lines)) == hidden


def judge_all(patterns: list[str], ruleset: Ruleset) -> Action:
    """Judge commands as the gate does: the strictest rule of all patterns decides."""
    return choose_strictest(judge("bash", pattern, (ruleset,)) for pattern in patterns).action


def test_the_strictest_verdict_of_several_patterns_counts() -> None:
    assert judge_all(["ls", "rm x"], rules("bash:*:ask", "bash:rm *:deny")) == "deny"


names = st.sampled_from(["bash", "edit", "read", "*", "ba*"])
patterns = st.sampled_from(["*", "ls", "rm *", "rm x", "src/*", "?s"])
some_rules = st.lists(
    st.builds(
        Rule, permission=names, pattern=patterns, action=st.sampled_from(STRICTEST_FIRST), extra_=st.just({})
    ),
    max_size=6,
).map(tuple)
commands = st.lists(st.sampled_from(["ls", "rm x", "src/a", "pwd"]), min_size=1, max_size=4)


@given(some_rules, commands, commands)
def test_a_request_with_more_patterns_is_never_more_permitted(
    ruleset: Ruleset, some: list[str], others: list[str]
) -> None:
    strictness = STRICTEST_FIRST.index
    whole = judge_all(some + others, ruleset)
    assert strictness(whole) == min(
        strictness(judge_all(some, ruleset)), strictness(judge_all(others, ruleset))
    )


@given(some_rules, commands)
def test_the_order_of_patterns_does_not_matter(ruleset: Ruleset, wanted: list[str]) -> None:
    assert judge_all(wanted, ruleset) == judge_all(wanted[::-1], ruleset)


def test_a_later_rule_for_every_tool_shows_a_hidden_one_again() -> None:
    ruleset = rules("bash:*:deny", "*:*:ask")
    assert list_disabled(["bash"], ruleset) == set()


@given(some_rules)
@example(rules("*:*:allow", "bash:*:deny"))
def test_a_hidden_tool_would_always_be_denied(ruleset: Ruleset) -> None:
    for tool in list_disabled(["bash", "write"], ruleset):
        assert evaluate(permission_of(tool), "anything", ruleset).action == "deny"


def test_a_rule_that_names_a_tool_disables_only_that_tool() -> None:
    tools = ("edit", "write", "bash")
    off = (Rule(permission="write", pattern="*", action="deny"),)
    on_again = (*off, Rule(permission="write", pattern="*", action="allow"))
    all_but_edit = (
        Rule(permission="*", pattern="*", action="deny"),
        Rule(permission="edit", pattern="*", action="allow"),
    )

    assert list_disabled(tools, off) == {"write"}
    assert list_disabled(tools, (*off, Rule(permission="edit", pattern="*", action="allow"))) == {"write"}
    assert list_disabled(tools, on_again) == set()
    assert list_disabled(tools, all_but_edit) == {"bash"}
    assert list_disabled(tools, (Rule(permission="edit", pattern="*", action="deny"),)) == {"edit", "write"}


def test_switching_a_tool_replaces_its_rules_and_keeps_the_others() -> None:
    rm = Rule(permission="bash", pattern="rm *", action="deny")
    read = Rule(permission="read", pattern="*", action="ask")

    assert switch_tools((rm, read), {"read": True, "write": False}) == (
        rm,
        Rule(permission="read", pattern="*", action="allow"),
        Rule(permission="write", pattern="*", action="deny"),
    )
    assert switch_tools((rm, read), {}) == (rm, read)
