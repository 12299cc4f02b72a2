"""Permission and question values: rules, requests to a person, replies and grants."""

from typing import Any, Literal

from weft.model.ids import GrantID, MessageID, PermissionID, ProjectID, QuestionID, SessionID
from weft.model.wire import Wire

Action = Literal["allow", "ask", "deny"]
Reply = Literal["once", "always", "reject"]
# How far a yes reaches: this call; this prompt; the session and those below it; the project; whatever this person does.
Scope = Literal["once", "turn", "session", "project", "user"]


class Rule(Wire, frozen=True, kw_only=True):
    """Of a permission (`bash`, `edit`, a wildcard) and a pattern of what it is asked for: allow, ask or deny."""

    permission: str
    pattern: str
    action: Action


Ruleset = tuple[Rule, ...]

# Rulesets that stand beside one another. Within one the last match wins; among them, the strictest verdict.
Limits = tuple[Ruleset, ...]


# Around what of a text is known only when the thing is done: it may turn out to be anything, or nothing. Who writes these
# characters themselves only makes less of their text known.
HOLE, HOLE_END = "⟦", "⟧"


def hole(text: str) -> str:
    """A gap in a text to be judged, with what stands for it."""
    # A blank at its beginning would say that there may be nothing at all.
    return f"{HOLE}{text.replace(HOLE, '').replace(HOLE_END, '').lstrip()}{HOLE_END}"


class CallRef(Wire, frozen=True, kw_only=True):
    """The tool call that a question is about."""

    message_id: MessageID
    call_id: str


class PermissionRequest(Wire, frozen=True, kw_only=True):
    """May this be done? `always` is what saying always would allow from then on."""

    id: PermissionID
    session_id: SessionID
    permission: str
    patterns: tuple[str, ...]
    metadata: dict[str, Any]
    always: tuple[str, ...]
    tool: CallRef | None = None


class GrantTerms(Wire, frozen=True, kw_only=True):
    """What a person says beside `always`: how far it reaches, until when (ms), and whether for every agent."""

    scope: Scope | None = None
    expires: int | None = None
    any_agent: bool = False


USUAL_TERMS = GrantTerms()


class Grant(Wire, frozen=True, kw_only=True):
    """A yes that lasts. It answers an `ask` within its reach, and never touches a `deny`.

    `agent` is whom it was given to, None for all of them; `session_id` names the topmost session, `message_id` the
    prompt of a turn. `by` says who gave it.
    """

    id: GrantID
    scope: Scope
    permission: str
    patterns: tuple[str, ...]
    agent: str | None = None
    project_id: ProjectID | None = None
    session_id: SessionID | None = None
    message_id: MessageID | None = None
    by: str = ""
    created: int
    expires: int | None = None


class Option(Wire, frozen=True, kw_only=True):
    label: str
    description: str


class Question(Wire, frozen=True, kw_only=True):
    """One question; `multiple` answers may be chosen, `custom` ones typed."""

    question: str
    header: str
    options: tuple[Option, ...]
    multiple: bool = False
    custom: bool = True


class QuestionRequest(Wire, frozen=True, kw_only=True):
    id: QuestionID
    session_id: SessionID
    questions: tuple[Question, ...]
    tool: CallRef | None = None
