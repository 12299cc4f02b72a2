"""Permission rules, requests to a person, replies and grants, and questions."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from weft.model.ids import GrantID, MessageID, PermissionID, ProjectID, QuestionID, SessionID
from weft.model.wire import Wire

Action = Literal["allow", "ask", "deny"]
Reply = Literal["once", "always", "reject"]
# The reach of a grant: this call, this prompt, the session tree, the project, or everything of this person.
Scope = Literal["once", "turn", "session", "project", "user"]


class Rule(Wire, frozen=True, kw_only=True):
    """Allow, ask or deny a permission (`bash`, `edit`, or a wildcard) for what matches a pattern."""

    permission: str
    pattern: str
    action: Action


# Tools that change files, by the names under which calls are stored and rules are written. All need the permission `edit`.
# OpenCode leaves out apply_patch: there an agent whose `edit` is denied is still offered it.
EDIT_TOOLS: Final = frozenset({"edit", "write", "patch", "multiedit", "apply_patch"})

Ruleset = tuple[Rule, ...]

# Rulesets that all apply. Within one ruleset the last match wins; between rulesets the strictest action wins.
Rulesets = tuple[Ruleset, ...]


# These mark a part of a command that is known only when it runs. It may become any text, or nothing. A command that
# contains these characters itself only makes more of its text unknown, which is safe.
UNKNOWN_START, UNKNOWN_END = "⟦", "⟧"


def mark_unknown(text: str) -> str:
    """Mark a part of a command as unknown."""
    # A leading space would mean that the part may be empty.
    return f"{UNKNOWN_START}{text.replace(UNKNOWN_START, '').replace(UNKNOWN_END, '').lstrip()}{UNKNOWN_END}"


def has_hole(text: str) -> bool:
    """Return True if a part of a command is unknown. Such a part is a hole in its text."""
    return UNKNOWN_START in text


class CallRef(Wire, frozen=True, kw_only=True):
    """The tool call that a request is about."""

    message_id: MessageID
    call_id: str


class PermissionRequest(Wire, frozen=True, kw_only=True):
    """A request for permission. `always` are the patterns that the reply `always` would grant."""

    id: PermissionID
    session_id: SessionID
    permission: str
    patterns: tuple[str, ...]
    metadata: dict[str, Any]
    always: tuple[str, ...]
    tool: CallRef | None = None


# Lists in the metadata of a request that say why it was asked, and how each is introduced to a person. The page has the same
# words in `web/static/requests.js`.
REQUEST_FACTS: Final = {"why": "asked because", "mayWrite": "may change files", "perhaps": "may also run"}


def list_request_facts(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the metadata of a request says about why it was asked, one sentence for each kind of fact."""
    for key, introduction in REQUEST_FACTS.items():
        values = metadata.get(key)
        if isinstance(values, list | tuple) and values:
            yield f"{introduction}: {', '.join(str(value) for value in values)}"


class GrantTerms(Wire, frozen=True, kw_only=True):
    """The terms of an `always` reply: scope, expiry (ms), and whether it holds for every agent."""

    scope: Scope | None = None
    expires: int | None = None
    any_agent: bool = False


DEFAULT_GRANT_TERMS = GrantTerms()


class Grant(Wire, frozen=True, kw_only=True):
    """A lasting permission. It answers requests within its scope, and never overrides a `deny` rule.

    `agent` is the agent it was given to, or None for all. `session_id` is the topmost session, `message_id` the prompt of
    a turn. `by` is the person who gave it.
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


class PermissionDecision(Wire, frozen=True, kw_only=True):
    """A recorded decision: what was decided about which request, for whom and by whom. `seq` is its number in the log."""

    seq: int
    time: int
    what: str
    session_id: str = ""
    agent: str = ""
    permission: str = ""
    patterns: tuple[str, ...] = ()
    rule: str = ""
    reply: str = ""
    scope: str = ""
    message: str = ""
    by: str = ""


class Option(Wire, frozen=True, kw_only=True):
    label: str
    description: str


class Question(Wire, frozen=True, kw_only=True):
    """A question with options. `multiple` allows several answers, `custom` allows typed ones."""

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


def can_be_asked(request: PermissionRequest | QuestionRequest) -> bool:
    """Return False for a request without questions, which another server may send: nobody can answer it."""
    return not isinstance(request, QuestionRequest) or bool(request.questions)
