"""Programs of which nobody knows what they do, held against what is forbidden: to write, or to run just this."""

from collections.abc import Iterable

from weft.model.permission import Limits, Rule, Ruleset
from weft.permission.rules import evaluate

_EVERYTHING = "*"
_ALLOW = Rule(permission=_EVERYTHING, pattern=_EVERYTHING, action="allow")


def watch_writers(limits: Limits, permission: str, patterns: Iterable[str]) -> Limits:
    """The limits, and where `edit` is denied on the whole, a question before each of these.

    OpenCode's plan agent may edit nothing, and runs any program that does. A rule that allows a command by more than a
    bare star has somebody behind it who knows the command: that one runs unasked.
    """
    watched = tuple(
        pattern for pattern in patterns if any(_is_watched(permission, pattern, each) for each in limits)
    )
    if not watched:
        return limits
    return (*limits, (_ALLOW, *(Rule(permission=permission, pattern=each, action="ask") for each in watched)))


def _is_watched(permission: str, pattern: str, ruleset: Ruleset) -> bool:
    if evaluate("edit", _EVERYTHING, ruleset).action != "deny":
        return False
    return evaluate(permission, pattern, ruleset).pattern == _EVERYTHING


def watch_named(limits: Limits, permission: str, patterns: Iterable[str]) -> Limits:
    """The limits, and a question before everything if one of the patterns is withheld by a rule that names it.

    They are what may be run: where a rule withholds all but a list, that says nothing of them.
    """
    if not any(_is_named(permission, pattern, each) for pattern in patterns for each in limits):
        return limits
    return (*limits, (_ALLOW, Rule(permission=permission, pattern=_EVERYTHING, action="ask")))


def _is_named(permission: str, pattern: str, ruleset: Ruleset) -> bool:
    rule = evaluate(permission, pattern, ruleset)
    return rule.action != "allow" and rule.pattern != _EVERYTHING
