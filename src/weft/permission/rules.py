"""Evaluate and merge rulesets: what the rules say of a thing, before anybody is asked."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from weft.model.permission import Action, Rule, Ruleset
from weft.permission.holes import has_hole, may_match, surely_matches
from weft.permission.wildcard import matches

STRICTEST_FIRST: tuple[Action, ...] = ("deny", "ask", "allow")

# One permission for every tool that changes files. OpenCode leaves apply_patch out: there an agent whose `edit` is
# denied is still shown it.
_EDITING = frozenset({"edit", "write", "patch", "multiedit", "apply_patch"})


def permission_of(tool: str) -> str:
    """The permission that a tool is asked for under."""
    return "edit" if tool in _EDITING else tool


def merge(*rulesets: Iterable[Rule]) -> Ruleset:
    """One after the other: what comes later overrules what came before."""
    return tuple(rule for ruleset in rulesets for rule in ruleset)


def evaluate(permission: str, pattern: str, *rulesets: Iterable[Rule]) -> Rule:
    """The last rule that fits; when none does, a rule that says ask.

    A text with holes in it is held against what it may turn out to be.
    """
    unknown: list[Rule] = []
    for rule in reversed(merge(*rulesets)):
        if not matches(permission, rule.permission):
            continue
        if has_hole(pattern):
            if not surely_matches(pattern, rule.pattern):
                unknown += [rule] if may_match(pattern, rule.pattern) else []
                continue
        elif not matches(pattern, rule.pattern):
            continue
        return _unless(unknown, rule)
    return _unless(unknown, Rule(permission=permission, pattern="*", action="ask"))


def _unless(unknown: list[Rule], certain: Rule) -> Rule:
    """What holds for certain, unless a rule that may turn out to fit is stricter: then somebody has to look."""
    strict = STRICTEST_FIRST.index(certain.action)
    stricter = next((rule for rule in unknown if STRICTEST_FIRST.index(rule.action) < strict), None)
    return replace(stricter, action="ask") if stricter is not None else certain


def verdict(
    permission: str, patterns: Iterable[str], ruleset: Iterable[Rule], approved: Iterable[Rule] = ()
) -> Rule:
    """The strictest of what the rules say of each pattern; of nothing, it is allowed.

    OpenCode stops at the first pattern that says ask, so that one yes also grants a later pattern that is denied,
    and lets an approval outrank a deny. Here every pattern is judged, and an approval only ever answers an ask.
    """
    rules, approvals = tuple(ruleset), tuple(approved)
    judged = [_judge(permission, pattern, rules, approvals) for pattern in patterns]
    allowed = Rule(permission=permission, pattern="*", action="allow")
    return min(judged, key=lambda rule: STRICTEST_FIRST.index(rule.action), default=allowed)


def _judge(permission: str, pattern: str, ruleset: Ruleset, approved: Ruleset) -> Rule:
    rule = evaluate(permission, pattern, ruleset)
    if rule.action != "ask":
        return rule
    approval = evaluate(permission, pattern, approved)
    return approval if approval.action == "allow" else rule


def disabled(tools: Iterable[str], ruleset: Iterable[Rule]) -> set[str]:
    """Return the tools that the rules switch off: the last rule on them denies everything.

    A rule may also name a tool that is asked for under another permission. OpenCode passes over such a rule, so that
    `write` comes back with the prompt after the one that switched it off.
    """
    rules = tuple(ruleset)
    return {tool for tool in tools if _is_disabled(permission_of(tool), rules) or _is_off(tool, rules)}


def _is_disabled(permission: str, ruleset: Ruleset) -> bool:
    return _denies_all(rule for rule in reversed(ruleset) if matches(permission, rule.permission))


def _is_off(tool: str, ruleset: Ruleset) -> bool:
    """Whether a rule that bears the tool's own name switches it off, though it is asked for under another name."""
    if permission_of(tool) == tool:
        return False
    return _denies_all(rule for rule in reversed(ruleset) if rule.permission == tool)


def _denies_all(newest_first: Iterable[Rule]) -> bool:
    last = next(iter(newest_first), None)
    return last is not None and last.pattern == "*" and last.action == "deny"


def switch_tools(ruleset: Iterable[Rule], tools: Mapping[str, bool]) -> Ruleset:
    """Return the rules with one for each tool that was switched on or off, in place of earlier rules on that tool.

    OpenCode drops every other rule, too, so that switching one tool off lifts what the session was denied before.
    """
    kept = tuple(rule for rule in ruleset if rule.permission not in tools)
    switched = (
        Rule(permission=tool, pattern="*", action="allow" if on else "deny") for tool, on in tools.items()
    )
    return (*kept, *switched)
