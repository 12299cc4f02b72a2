"""Permission values: rules, and the question put to a person when a rule says ask."""

from typing import Any, Literal

from weft.model.ids import MessageID, PermissionID, SessionID
from weft.model.wire import Wire

Action = Literal["allow", "ask", "deny"]
Reply = Literal["once", "always", "reject"]


class Rule(Wire, frozen=True, kw_only=True):
    """Of a permission (`bash`, `edit`, a wildcard) and a pattern of what it is asked for: allow, ask or deny."""

    permission: str
    pattern: str
    action: Action


Ruleset = tuple[Rule, ...]


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
