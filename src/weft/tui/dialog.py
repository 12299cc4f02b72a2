"""Permission requests and questions of an agent: the lines that show them, and the meaning of what is typed (pure)."""

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import Final

from msgspec import Struct

from weft.model.display import sanitize
from weft.model.permission import (
    DEFAULT_GRANT_TERMS,
    REQUEST_FACTS,
    GrantTerms,
    PermissionRequest,
    Question,
    QuestionRequest,
    Reply,
    Scope,
    list_request_facts,
)
from weft.tui.render import render_diff, squash
from weft.tui.text import Line, wrap

REPLY_WORDS: Final[Mapping[str, Reply]] = {
    "o": "once",
    "once": "once",
    "y": "once",
    "yes": "once",
    "a": "always",
    "always": "always",
}
SCOPE_WORDS: Final[Mapping[str, Scope]] = {"t": "turn", "turn": "turn", "p": "project", "project": "project"}
REJECT_WORDS: Final = ("r", "reject", "n", "no")
MAX_DIFF_LINES: Final = 30
MAX_NUMBER_LENGTH: Final = 9


class DialogChoice(Struct, frozen=True, kw_only=True):
    """A numbered choice, and the word that is typed for it."""

    label: str
    word: str


def list_choices(request: PermissionRequest, *, scopes: bool = True) -> list[DialogChoice]:
    """Return the choices for a permission request. With `scopes`, a grant can be limited to a turn or the project."""
    choices = [DialogChoice(label="once", word="once")]
    if request.always:
        granted = ", ".join(sanitize(pattern) for pattern in request.always)
        choices.append(DialogChoice(label=f"always ({granted})", word="always"))
        if scopes:
            choices.append(DialogChoice(label="until this turn ends", word="turn"))
            choices.append(DialogChoice(label="always in this project", word="project"))
    return [*choices, DialogChoice(label="no; type a reason after the number", word="no")]


def to_reply(typed: str, choices: list[DialogChoice] | None = None) -> tuple[Reply, str, GrantTerms]:
    """Return the reply that was typed, with a message to the agent and the terms of a grant.

    A number stands for its choice. Anything but a yes rejects. Words after a no, or instead of it, are the message.
    """
    first, _, rest = typed.partition(" ")
    if choices and _is_number(first, len(choices)):
        typed = f"{choices[int(first) - 1].word} {rest}".strip()
        first = choices[int(first) - 1].word
    word = typed.lower()
    if word in SCOPE_WORDS:
        return "always", "", GrantTerms(scope=SCOPE_WORDS[word])
    if word in REPLY_WORDS:
        return REPLY_WORDS[word], "", DEFAULT_GRANT_TERMS
    return "reject", rest.strip() if first.lower() in REJECT_WORDS else typed, DEFAULT_GRANT_TERMS


def is_reply(typed: str, choices: list[DialogChoice]) -> bool:
    """Return False for an empty line and for a number that no choice has: a slip of the finger is no refusal."""
    words = typed.split()
    return bool(words) and not (words[0].isdecimal() and not _is_number(words[0], len(choices)))


def to_answers(question: Question, typed: str) -> tuple[str, ...]:
    """Return the options that were chosen by number or label, or the typed text if the question allows that."""
    labels = {str(number): option.label for number, option in enumerate(question.options, start=1)}
    labels |= {option.label: option.label for option in question.options}
    words = [word.strip() for word in typed.split(",")] if question.multiple else [typed]
    if all(word in labels for word in words):
        return tuple(labels[word] for word in words)
    return (typed,) if typed and question.custom else ()


def is_answer(question: Question, typed: str) -> bool:
    """Return False for a number that no option has, and for words that the question does not allow."""
    words = typed.strip()
    if words.isdecimal() and question.options:
        return _is_number(words, len(question.options))
    return not words or bool(to_answers(question, words))  # an empty line rejects the question


def _is_number(typed: str, most: int) -> bool:
    """Return True for a number from 1 to `most`. Somebody may paste one of any length."""
    return typed.isdecimal() and len(typed) <= MAX_NUMBER_LENGTH and 1 <= int(typed) <= most


# --- lines ---


def render_permission(
    request: PermissionRequest, width: int, *, agent: str | None, scopes: bool = True
) -> list[Line]:
    """Return a permission request as text: each part of it, why it is asked, and the numbered choices."""
    details = render_details(request, width, agent=agent, limit=MAX_DIFF_LINES)
    return [*details, *render_choices(request, width, scopes=scopes)]


def render_details(request: PermissionRequest, width: int, *, agent: str | None, limit: int) -> list[Line]:
    """Return each part of a permission request, and why it is asked, with at most `limit` lines of a diff.

    `agent` is the one whose rules ask, empty if it is not known. It is None if the rules are a server's, because commands of this
    machine cannot explain those.
    """
    lines: list[Line] = [[("bold ansiyellow", "? "), ("bold", f"Allow {squash(request.permission)}?")]]
    for pattern in request.patterns:
        lines += wrap([("", sanitize(pattern))], width, first=[("ansiyellow", "  • ")], rest=[("", "    ")])
    for fact in _list_facts(request, agent):
        lines += wrap([("dim", fact)], width, first=[("", "    ")], rest=[("", "    ")])
    diff = request.metadata.get("diff")
    if isinstance(diff, str) and diff.strip():
        lines += render_diff(diff, limit=limit)
    return lines


def render_choices(request: PermissionRequest, width: int, *, scopes: bool = True) -> list[Line]:
    """Return the numbered choices for a permission request."""
    return [
        line
        for number, choice in enumerate(list_choices(request, scopes=scopes), 1)
        for line in wrap([("", choice.label)], width, first=[("bold", f"  {number} ")], rest=[("", "    ")])
    ]


def _list_facts(request: PermissionRequest, agent: str | None) -> Iterator[str]:
    metadata = request.metadata
    yield from (sanitize(fact) for fact in list_request_facts(metadata))
    if not metadata.get("why"):
        yield f"{REQUEST_FACTS['why']}: {_name_rule_source(request, agent)}"
    for key in ("command", "filepath", "url", "description"):
        value = metadata.get(key)
        if isinstance(value, str) and value:
            yield f"{key}: {sanitize(value)}"


def _name_rule_source(request: PermissionRequest, agent: str | None) -> str:
    if agent is None:
        return "the server's rules ask for it"
    # Only commands can be explained, by the rules of the agent that asks. The log has every request.
    is_command = request.permission == "bash" or bool(request.metadata.get("command"))
    if agent and is_command:
        return f"a rule asks for it (weft permission explain --agent {quote(sanitize(agent))})"
    return "a rule asks for it (weft permission log)"


def render_question(request: QuestionRequest, number: int, width: int) -> list[Line]:
    """Return one question of a request with its numbered options."""
    question = request.questions[number]
    place = f" ({number + 1} of {len(request.questions)})" if len(request.questions) > 1 else ""
    lines = wrap(
        [("bold", f"{sanitize(question.question)}{place}")], width, first=[("bold ansiyellow", "? ")]
    )
    for at, option in enumerate(question.options, 1):
        text: Line = [("", sanitize(option.label)), ("dim", f"  {sanitize(option.description)}")]
        lines += wrap(text, width, first=[("bold", f"  {at} ")], rest=[("", "    ")])
    numbers = "type numbers, with commas" if question.multiple else "type a number"
    words = " or your own words" if question.custom and question.options else ""
    hint = f"{numbers}{words}" if question.options else "type your answer"
    indent: Line = [("", "  ")]
    return [
        *lines,
        *wrap([("dim", f"{hint}; an empty line rejects the question")], width, first=indent, rest=indent),
    ]
