"""The policy for asking a person, and the context in which the gate asks."""

from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec import Struct

from weft.host.clock import Clock
from weft.model.event import Publish
from weft.model.ids import Mint, ProjectID
from weft.model.permission import PermissionRequest, Rulesets, Scope

Unanswered = Literal["deny", "skip", "allow"]


class AskPolicy(Struct, frozen=True, kw_only=True):
    """Whether somebody can be asked, how long to wait, what to do without an answer, and how far an `always` reaches.

    Without an answer `deny` refuses the call and ends the run; `skip` refuses it and lets the agent find another way.
    `person` is who answers here, `owner` is this process. `limits` apply in addition to the rules of a call, and no
    answer can lift them.
    """

    can_ask: bool = False
    unanswered: Unanswered = "deny"
    timeout_seconds: float | None = None
    always: Scope = "session"
    person: str = ""
    owner: str = ""
    limits: Rulesets = ()


class Ruling(Struct, frozen=True, kw_only=True):
    """The decision of a plugin that is consulted before a person is asked."""

    status: Literal["ask", "allow", "deny"] = "ask"
    reason: str = ""


Consult = Callable[[PermissionRequest], Awaitable[Ruling]]


async def consult_nobody(_: PermissionRequest) -> Ruling:
    """Leave the decision to the person: there are no plugins."""
    return Ruling()


class GateContext(Struct, frozen=True, kw_only=True):
    """What the gate needs from outside: clock, ids, project, event bus, and the plugins to consult."""

    clock: Clock
    mint: Mint
    project: ProjectID
    publish: Publish
    consult: Consult = consult_nobody
