"""Evaluate and merge permission rules, before anybody is asked (pure)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Final

from msgspec.structs import replace

from weft.model.agent import Agent
from weft.model.permission import HOLE, HOLE_END, Action, Limits, Rule, Ruleset
from weft.model.session import Session, own_of

_PIECES = {"*": ".*", "?": "."}


def matches(text: str, pattern: str) -> bool:
    """Whether the whole text fits. A star crosses slashes and newlines; `ls *` also fits a bare `ls`."""
    return _compiled(pattern).fullmatch(text) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    head, tail = (pattern[:-2], "(?: .*)?") if pattern.endswith(" *") else (pattern, "")
    # Neighbouring stars mean what one means, and would make a failing match explode.
    head = re.sub(r"\*+", "*", head)
    return re.compile("".join(_PIECES.get(char) or re.escape(char) for char in head) + tail, re.DOTALL)


# Stands for a hole of any length; no pattern has it.
_GAP: Final = "\0"
_HOLES: Final = re.compile(f"{HOLE}[^{HOLE_END}]*(?:{HOLE_END}|$)")
# Comparing takes as long as both are long, multiplied. Of a longer text anything is possible.
LONGEST: Final = 4000
# Every hole that may be no word at all doubles the texts to be held against a pattern.
MOST_MAYBES: Final = 4


def has_hole(text: str) -> bool:
    return HOLE in text


def surely_matches(text: str, pattern: str) -> bool:
    """Whether the text fits whatever its holes turn out to be: only a star takes in a hole."""
    compiled = _compiled_hole(pattern)
    return all(compiled.fullmatch(each) is not None for each in _ways(text))


def may_match(text: str, pattern: str) -> bool:
    """Whether there is something the holes could turn out to be with which the text fits."""
    gapped = _gapped(text)
    if len(gapped) > LONGEST:
        return True
    if pattern.endswith(" *") and _meet(gapped, pattern[:-2]):
        return True
    return _meet(gapped, pattern)


def _gapped(text: str) -> str:
    return _HOLES.sub(_GAP, text.replace(_GAP, ""))


def _ways(text: str) -> Iterator[str]:
    """The text with its gaps. One that begins with a blank is a word, or several, or there is nothing at all of it."""
    plain = text.replace(_GAP, "")
    between, holes = _HOLES.split(plain), _HOLES.findall(plain)
    maybes = [hole.startswith(f"{HOLE} ") for hole in holes]
    if sum(maybes) > MOST_MAYBES:
        yield _gapped(text)
        return
    choices = [(f" {_GAP}", "") if maybe else (_GAP,) for maybe in maybes]
    for gaps in product(*choices):
        yield "".join(piece for pair in zip(between, (*gaps, ""), strict=True) for piece in pair)


@lru_cache(maxsize=1024)
def _compiled_hole(pattern: str) -> re.Pattern[str]:
    head, tail = (pattern[:-2], "(?: .*)?") if pattern.endswith(" *") else (pattern, "")
    pieces = {"*": ".*", "?": f"[^{_GAP}]"}
    head = re.sub(r"\*+", "*", head)
    return re.compile("".join(pieces.get(char) or re.escape(char) for char in head) + tail, re.DOTALL)


def _meet(text: str, pattern: str) -> bool:
    """Whether two patterns have a text in common; in the first only gaps are wild, in the second `*` and `?`."""
    reached = {0}
    for char in text:
        reached = _pass_gap(reached, pattern) if char == _GAP else _pass_char(reached, pattern, char)
        if not reached:
            return False
    return any(not pattern[place:].strip("*") for place in reached)


def _pass_gap(reached: set[int], pattern: str) -> set[int]:
    """A gap may be whatever the rest of the pattern wants, up to any place in it."""
    return set(range(min(reached), len(pattern) + 1))


def _pass_char(reached: set[int], pattern: str, char: str) -> set[int]:
    passed = set()
    for start in reached:
        place = start
        while place < len(pattern):
            if pattern[place] == "*":
                passed.add(place)  # the star takes it, and may take more
                place += 1
                continue
            if pattern[place] in ("?", char):
                passed.add(place + 1)
            break
    return passed


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
