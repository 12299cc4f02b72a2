"""What a child may do: never more than the session that sent it, and without what is its parent's alone (pure)."""

from msgspec.structs import replace

from weft.model.agent import Agent
from weft.model.permission import Limits, Rule, Ruleset
from weft.model.session import Session, own_of, with_own
from weft.session.child import child_rules

# A parent's list is its own to keep, and who is handed a task does not hand it on.
PARENTS_ALONE = ("todowrite", "todoread", "task")


def denied_below(agent: Agent, primary_tools: tuple[str, ...], *, deepest: bool) -> Ruleset:
    """What an agent is denied in a child beyond its own rules.

    An agent whose rules speak of a thing by name has been thought about, and keeps it; but at the `deepest` level
    nobody hands a task on. OpenCode sets no such level, and denies the list whatever the rules say.
    """
    named = {rule.permission for rule in agent.permission}
    denied = [each for each in PARENTS_ALONE if each not in named]
    denied += ["task"] * (deepest and "task" not in denied)
    return tuple(Rule(permission=each, pattern="*", action="deny") for each in (*denied, *primary_tools))


def narrow(child: Session, parent: Session, denied: Ruleset, sender: Agent | None) -> Session:
    """The child with all that it is denied, and with all that those above it are. Done again, it changes nothing.

    What is denied stays denied; whose rules on files hold is a matter of who sends it this time.
    """
    own = own_of(child)
    above = (*own_of(parent).limits, *files_withheld(sender))
    given = tuple(dict.fromkeys((*(child.permission or ()), *denied)))
    narrowed = replace(child, permission=child_rules(given, parent))
    return with_own(narrowed, replace(own, limits=tuple(dict.fromkeys(above))))


def files_withheld(agent: Agent | None) -> Limits:
    """What an agent's rules say of changing files, if they withhold any: who plans must not write by another's hand.

    Of its other rules the child is free, as in OpenCode: an agent that may do little and hands all on is a common
    arrangement. OpenCode 1.1.34 passes on nothing at all.
    """
    rules = tuple(rule for rule in (agent.permission if agent else ()) if rule.permission == "edit")
    return (rules,) if any(rule.action == "deny" for rule in rules) else ()
