"""Limits: of several rulesets the strictest decides, and another ruleset never allows more."""

from hypothesis import given
from hypothesis import strategies as st

from given.gate_harness import rules
from weft.model.agent import AgentInfo
from weft.model.ids import SessionID
from weft.model.permission import Rule, Ruleset
from weft.model.session import SessionInfo, SessionTime, WeftSessionData
from weft.permission.rules import STRICTEST_FIRST, evaluate, judge, list_hidden, narrow, to_rulesets

NAMES = st.sampled_from(["*", "bash", "edit", "read", "b*"])
PATTERNS = st.sampled_from(["*", "ls", "ls *", "rm *", "git *", "git push *", "*.env", "src/*"])
THINGS = st.sampled_from(["ls", "ls -la", "rm -rf x", "git status", "git push -f", ".env", "src/a.py"])
ACTIONS = st.sampled_from(["allow", "ask", "deny"])
RULES = st.builds(
    lambda one, two, three: Rule(permission=one, pattern=two, action=three), NAMES, PATTERNS, ACTIONS
)
RULESETS = st.lists(RULES, max_size=8).map(tuple)


def rank(rule: Rule) -> int:
    return STRICTEST_FIRST.index(rule.action)


def session(permission: Ruleset | None = None, *limits: Ruleset) -> SessionInfo:
    return SessionInfo(
        id=SessionID("ses_1"),
        permission=permission,
        time=SessionTime(created=1, updated=1),
        weft=WeftSessionData(limits=limits),
    )


@given(st.lists(RULESETS, min_size=1, max_size=4), RULESETS, THINGS)
def test_another_ruleset_never_allows_more(limits: list[Ruleset], further: Ruleset, thing: str) -> None:
    before, after = judge("bash", thing, limits), judge("bash", thing, [*limits, further])
    assert rank(after) <= rank(before)


@given(RULESETS, RULESETS, THINGS)
def test_narrowed_rules_allow_no_more_than_either(own: Ruleset, above: Ruleset, thing: str) -> None:
    both = judge("bash", thing, narrow([own], [above]))
    assert rank(both) == min(rank(evaluate("bash", thing, own)), rank(evaluate("bash", thing, above)))


@given(RULESETS, RULESETS, RULESETS, THINGS)
def test_an_untrusted_project_can_only_restrict(
    person: Ruleset, project: Ruleset, own: Ruleset, thing: str
) -> None:
    free = AgentInfo(name="a", mode="primary", permission=person)
    bound = AgentInfo(name="a", mode="primary", permission=person, limits=(project,))
    alone = judge("bash", thing, to_rulesets(free, session(own)))
    limited = judge("bash", thing, to_rulesets(bound, session(own)))
    assert rank(limited) <= rank(alone)


@given(RULESETS, RULESETS, RULESETS, THINGS)
def test_a_child_may_never_do_more_than_the_same_agent_above_it(
    agent: Ruleset, parent: Ruleset, child: Ruleset, thing: str
) -> None:
    one = AgentInfo(name="a", mode="all", permission=agent)
    above = judge("bash", thing, to_rulesets(one, session(parent)))
    below = judge("bash", thing, to_rulesets(one, session(child, parent)))
    assert rank(below) <= rank(above)


@given(RULESETS, RULESETS, THINGS)
def test_rules_of_agent_and_session_are_judged_as_one_list(agent: Ruleset, own: Ruleset, thing: str) -> None:
    one = AgentInfo(name="a", mode="all", permission=agent)
    assert judge("bash", thing, to_rulesets(one, session(own))) == evaluate("bash", thing, agent, own)


def test_without_a_rule_the_verdict_is_ask() -> None:
    assert judge("bash", "ls", ()).action == "ask"


def test_a_tool_denied_by_one_ruleset_is_hidden() -> None:
    limits = (rules("*:*:allow"), rules("*:*:allow", "bash:*:deny"))
    assert list_hidden(["bash", "read"], limits) == {"bash"}
