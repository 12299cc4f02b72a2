"""Evaluate and merge permission rules (pure)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.model.agent import AgentInfo
from weft.model.permission import (
    EDIT_TOOLS,
    UNKNOWN_END,
    UNKNOWN_START,
    Action,
    Rule,
    Ruleset,
    Rulesets,
    has_hole,
)
from weft.model.session import SessionInfo, get_weft_data


def matches(text: str, pattern: str) -> bool:
    """Return True if the whole text matches. A star also matches slashes and newlines; `ls *` also matches a bare `ls`."""
    if pattern == "*":
        return True
    if "*" not in pattern and "?" not in pattern:
        return pattern == text
    return _compile(pattern).fullmatch(text) is not None


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> re.Pattern[str]:
    return _translate(pattern, any_char=".")


def _translate(pattern: str, *, any_char: str) -> re.Pattern[str]:
    """Return the expression for a pattern. `any_char` is what a question mark stands for."""
    head, tail = (pattern[:-2], "(?: .*)?") if pattern.endswith(" *") else (pattern, "")
    first, *rest = (
        "".join(any_char if char == "?" else re.escape(char) for char in piece)
        for piece in re.split(r"\*+", head)
    )
    # What follows a star is found at its first place, and not looked for again: a failing match would explode otherwise.
    found_once = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    return re.compile("".join((first, found_once, *(f".*{piece}" for piece in rest[-1:]), tail)), re.DOTALL)


# A hole is a part of a command that is unknown until it runs (see `mark_unknown`). To match it, a gap replaces it: a single
# character that no pattern contains.
_GAP: Final = "\0"
_HOLES: Final = f"{UNKNOWN_START}[^{UNKNOWN_END}]*(?:{UNKNOWN_END}|$)"
# The comparison takes time proportional to the product of both lengths. A longer text is taken to match any pattern.
MAX_TEXT_CHARS: Final = 4000
# Each hole that may be empty doubles the number of texts to match.
MAX_OPTIONAL_HOLES: Final = 4


def surely_matches(text: str, pattern: str) -> bool:
    """Return True if the text matches regardless of what its holes stand for: only a star matches a hole."""
    compiled = _compile_with_holes(pattern)
    return all(compiled.fullmatch(each) is not None for each in _list_variants(text))


def may_match(text: str, pattern: str) -> bool:
    """Return True if the holes can stand for something with which the text matches."""
    gapped = _replace_holes(text)
    if len(gapped) > MAX_TEXT_CHARS:
        return True
    if pattern.endswith(" *") and _overlaps(gapped, pattern[:-2]):
        return True
    return _overlaps(gapped, pattern)


def _replace_holes(text: str) -> str:
    return re.sub(_HOLES, _GAP, text.replace(_GAP, ""))


def _list_variants(text: str) -> Iterator[str]:
    """Yield the text with its holes replaced by gaps. A hole that begins with a blank may also stand for no word at all."""
    plain = text.replace(_GAP, "")
    between, holes = re.split(_HOLES, plain), re.findall(_HOLES, plain)
    optional = [hole.startswith(f"{UNKNOWN_START} ") for hole in holes]
    if sum(optional) > MAX_OPTIONAL_HOLES:
        yield _replace_holes(text)
        return
    choices = [(f" {_GAP}", "") if is_optional else (_GAP,) for is_optional in optional]
    for gaps in product(*choices):
        yield "".join(piece for pair in zip(between, (*gaps, ""), strict=True) for piece in pair)


@lru_cache(maxsize=1024)
def _compile_with_holes(pattern: str) -> re.Pattern[str]:
    return _translate(pattern, any_char=f"[^{_GAP}]")


def _overlaps(text: str, pattern: str) -> bool:
    """Return True if the gaps of the text can stand for something with which it matches the pattern."""
    reached = {0}
    for char in text:
        reached = (
            _step_over_gap(reached, pattern) if char == _GAP else _step_over_char(reached, pattern, char)
        )
        if not reached:
            return False
    return any(not pattern[place:].strip("*") for place in reached)


def _step_over_gap(reached: set[int], pattern: str) -> set[int]:
    """Return the places after a gap: it matches any part of the pattern."""
    return set(range(min(reached), len(pattern) + 1))


def _step_over_char(reached: set[int], pattern: str, char: str) -> set[int]:
    """Return the places in the pattern after one more character."""
    reached_next = set()
    for start in reached:
        place = start
        while place < len(pattern):
            if pattern[place] == "*":
                reached_next.add(place)  # the star matches it and may match more
                place += 1
                continue
            if pattern[place] in ("?", char):
                reached_next.add(place + 1)
            break
    return reached_next


STRICTEST_FIRST: tuple[Action, ...] = ("deny", "ask", "allow")


def permission_of(tool: str) -> str:
    """Return the permission that a tool asks for."""
    return "edit" if tool in EDIT_TOOLS else tool


def merge(*rulesets: Iterable[Rule]) -> Ruleset:
    """Join rulesets; later rules overrule earlier ones."""
    return tuple(rule for ruleset in rulesets for rule in ruleset)


def evaluate(permission: str, pattern: str, *rulesets: Iterable[Rule]) -> Rule:
    """Return the last rule that matches, or a rule that says ask if none does.

    A text with holes is matched against everything that it may stand for.
    """
    unknown: list[Rule] = []
    holed = has_hole(pattern)
    for rule in reversed(merge(*rulesets)):
        if not matches(permission, rule.permission):
            continue
        if holed:
            if not surely_matches(pattern, rule.pattern):
                unknown += [rule] if may_match(pattern, rule.pattern) else []
                continue
        elif not matches(pattern, rule.pattern):
            continue
        return _apply_stricter(unknown, rule)
    return _apply_stricter(unknown, Rule(permission=permission, pattern="*", action="ask"))


def _apply_stricter(unknown: list[Rule], certain: Rule) -> Rule:
    """Return the certain rule, or ask if a rule that may match is stricter."""
    rank = STRICTEST_FIRST.index(certain.action)
    stricter = next((rule for rule in unknown if STRICTEST_FIRST.index(rule.action) < rank), None)
    return replace(stricter, action="ask") if stricter is not None else certain


def list_disabled(tools: Iterable[str], ruleset: Iterable[Rule]) -> set[str]:
    """Return the tools that the rules switch off: the last rule on them denies everything.

    A rule may also name a tool that asks for another permission. OpenCode ignores such a rule, so that `write` is
    available again with the prompt after the one that switched it off.
    """
    rules = tuple(ruleset)
    denying = {rule.permission for rule in rules if rule.pattern == "*" and rule.action == "deny"}
    # This is worked out for every request, and most rules name one permission.
    wildcards = [each for each in denying if "*" in each or "?" in each]
    return {
        tool
        for tool in tools
        if denying
        and (
            tool in denying
            or permission_of(tool) in denying
            or any(matches(permission_of(tool), each) for each in wildcards)
        )
        and (_is_disabled(permission_of(tool), rules) or _is_denied_by_name(tool, rules))
    }


def _is_disabled(permission: str, ruleset: Ruleset) -> bool:
    return _denies_all(rule for rule in reversed(ruleset) if matches(permission, rule.permission))


def _is_denied_by_name(tool: str, ruleset: Ruleset) -> bool:
    """Return True if a rule with the tool's own name switches it off, although the tool asks for another permission."""
    if permission_of(tool) == tool:
        return False
    return _denies_all(rule for rule in reversed(ruleset) if rule.permission == tool)


def _denies_all(newest_first: Iterable[Rule]) -> bool:
    last = next(iter(newest_first), None)
    return last is not None and last.pattern == "*" and last.action == "deny"


def switch_tools(ruleset: Iterable[Rule], tools: Mapping[str, bool]) -> Ruleset:
    """Return the rules with one for each tool that was switched on or off, instead of earlier rules on that tool.

    OpenCode also drops every other rule, so that switching one tool off lifts what was denied to the session before.
    """
    kept = tuple(rule for rule in ruleset if rule.permission not in tools)
    switched = (
        Rule(permission=tool, pattern="*", action="allow" if on else "deny") for tool, on in tools.items()
    )
    return (*kept, *switched)


def to_rulesets(agent: AgentInfo, session: SessionInfo) -> Rulesets:
    """Return all rulesets that limit what an agent may do in a session."""
    own = session.permission or ()
    person = agent.permission + own
    project = [limit + own for limit in agent.limits]
    # As if the agent worked in the parent session, whose rules come last there.
    inherited = [agent.permission + limit for limit in get_weft_data(session).limits]
    return narrow((person, *project), inherited)


def narrow(own: Iterable[Ruleset], inherited: Iterable[Ruleset]) -> Rulesets:
    """Return all rulesets, each once. All of them apply, so the result never allows more than one of them."""
    rulesets: list[Ruleset] = []
    for ruleset in (*own, *inherited):
        if ruleset not in rulesets:
            rulesets.append(ruleset)
    return tuple(rulesets)


def make_child_rules(rules: Ruleset | None, parent: SessionInfo) -> Ruleset | None:
    """Return the rules of a child, followed by its parent's rules that deny or ask.

    The last matching rule wins, so the parent's rules come last. Its rules that allow are left out: they would override what the
    child is denied. OpenCode ignores the parent's rules, so that a child may do what its parent may not.
    """
    restrictions = tuple(rule for rule in parent.permission or () if rule.action != "allow")
    if not restrictions:
        return rules
    return (*(rule for rule in rules or () if rule not in restrictions), *restrictions)


def judge(permission: str, pattern: str, rulesets: Sequence[Ruleset]) -> Rule:
    """Return the strictest result of all rulesets; ask if there are none."""
    results = [evaluate(permission, pattern, ruleset) for ruleset in rulesets or ((),)]
    return choose_strictest(results)


def choose_strictest(rules: Iterable[Rule]) -> Rule:
    """Return the strictest rule. OpenCode stops at the first that says ask, so that one yes also allows what a later one denies."""
    return min(rules, key=lambda rule: STRICTEST_FIRST.index(rule.action))


def list_hidden(tools: Iterable[str], rulesets: Iterable[Ruleset]) -> set[str]:
    """Return the tools that a ruleset denies completely."""
    names = tuple(tools)
    return {name for ruleset in rulesets for name in list_disabled(names, ruleset)}


def hides_all(prefix: str, rulesets: Iterable[Ruleset]) -> bool:
    """Return True if a ruleset denies every tool whose name starts with the prefix."""
    return any(
        list_disabled((f"{prefix}*",), ruleset)
        and not any(rule.permission.startswith(prefix) and rule.action != "deny" for rule in ruleset)
        for ruleset in rulesets
    )


# Why a person is asked although the rules allow it.
MAY_CHANGE_FILES: Final = "it may change files, and edit is denied"
MAY_RUN_NAMED: Final = "it may run a command that a rule does not allow"

_EVERYTHING = "*"
_ALLOW = Rule(permission=_EVERYTHING, pattern=_EVERYTHING, action="allow")


def ask_before_writers(rulesets: Rulesets, permission: str, patterns: Iterable[str]) -> Rulesets:
    """Return the rulesets with a question before each of these commands, if `edit` is denied altogether.

    OpenCode's plan agent may edit nothing, yet runs any program that does. A rule that allows a command by more than
    a bare star was written by somebody who knows the command: that one runs without a question.
    """
    watched = tuple(
        pattern for pattern in patterns if any(_is_watched(permission, pattern, each) for each in rulesets)
    )
    if not watched:
        return rulesets
    return (
        *rulesets,
        (_ALLOW, *(Rule(permission=permission, pattern=each, action="ask") for each in watched)),
    )


def _is_watched(permission: str, pattern: str, ruleset: Ruleset) -> bool:
    if evaluate("edit", _EVERYTHING, ruleset).action != "deny":
        return False
    return evaluate(permission, pattern, ruleset).pattern == _EVERYTHING


def ask_before_named(rulesets: Rulesets, permission: str, patterns: Iterable[str]) -> Rulesets:
    """Return the rulesets, with one more that asks about everything if a rule denies one of the patterns or asks about it.

    The patterns are commands that may be run. A rule for `*` does not count, because it says nothing about any of them.
    """
    if not any(_is_named(permission, pattern, each) for pattern in patterns for each in rulesets):
        return rulesets
    return (*rulesets, (_ALLOW, Rule(permission=permission, pattern=_EVERYTHING, action="ask")))


def _is_named(permission: str, pattern: str, ruleset: Ruleset) -> bool:
    rule = evaluate(permission, pattern, ruleset)
    return rule.action != "allow" and rule.pattern != _EVERYTHING


class AddedQuestions(Struct, frozen=True):
    """`rulesets` with the questions that are added for one request. `reasons` says why, for each pattern that would be allowed without them."""

    rulesets: Rulesets
    reasons: Mapping[str, str]


def add_questions(
    rulesets: Rulesets,
    permission: str,
    patterns: Iterable[str],
    *,
    may_write: Iterable[str],
    perhaps: Iterable[str],
) -> AddedQuestions:
    """Add a question before each pattern that `may_write` although `edit` is denied, and one before all if a rule names a command of `perhaps`."""
    with_writers = ask_before_writers(rulesets, permission, may_write)
    with_named = ask_before_named(with_writers, permission, perhaps)
    if with_named is rulesets:
        return AddedQuestions(rulesets, {})
    reasons: dict[str, str] = {}
    for pattern in patterns:
        if judge(permission, pattern, rulesets).action != "allow":
            continue
        if judge(permission, pattern, with_writers).action != "allow":
            reasons[pattern] = MAY_CHANGE_FILES
        elif with_named is not with_writers:
            reasons[pattern] = MAY_RUN_NAMED
    return AddedQuestions(with_named, reasons)
