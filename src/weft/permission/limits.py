"""Limits: rulesets that stand beside one another, where the strictest has the say.

Within one ruleset the last match wins, as in OpenCode: they are one person's words, the later over the earlier. Whoever
else has a say can only withhold: a project that nobody has vouched for, and the sessions above this one.
"""

from collections.abc import Iterable, Sequence

from weft.model.agent import Agent
from weft.model.permission import Limits, Rule, Ruleset
from weft.model.session import Session, own_of
from weft.permission.rules import STRICTEST_FIRST, disabled, evaluate


def limits_for(agent: Agent, session: Session) -> Limits:
    """Every ruleset that has a say in what an agent may do in a session."""
    own = session.permission or ()
    person = agent.permission + own
    project = [limit + own for limit in agent.limits]
    # As if the agent were at work in the session above, whose rules are the last word there.
    above = [agent.permission + limit for limit in own_of(session).limits]
    return narrowed((person, *project), above)


def narrowed(own: Iterable[Ruleset], above: Iterable[Ruleset]) -> Limits:
    """What holds for one who has rules of their own and stands below others: never more than either allows."""
    limits: list[Ruleset] = []
    for ruleset in (*own, *above):
        if ruleset not in limits:
            limits.append(ruleset)
    return tuple(limits)


def judge(permission: str, pattern: str, limits: Sequence[Ruleset]) -> Rule:
    """The strictest of what each ruleset says of a thing; where there are none, ask."""
    said = [evaluate(permission, pattern, ruleset) for ruleset in limits or ((),)]
    return strictest(said)


def strictest(rules: Iterable[Rule]) -> Rule:
    return min(rules, key=lambda rule: STRICTEST_FIRST.index(rule.action))


def hidden(tools: Iterable[str], limits: Iterable[Ruleset]) -> set[str]:
    """The tools that one of the rulesets forbids for good."""
    names = tuple(tools)
    return {name for ruleset in limits for name in disabled(names, ruleset)}


def hides_all(prefix: str, limits: Iterable[Ruleset]) -> bool:
    """Whether one of the rulesets forbids for good every tool whose name begins so."""
    return any(
        disabled((f"{prefix}*",), ruleset)
        and not any(rule.permission.startswith(prefix) and rule.action != "deny" for rule in ruleset)
        for ruleset in limits
    )
