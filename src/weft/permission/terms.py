"""The terms on which a person is asked, and the place where the asking is done."""

from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec import Struct

from weft.host.clock import Clock
from weft.model.event import Event
from weft.model.ids import Mint, ProjectID
from weft.model.permission import PermissionRequest, Scope

Unanswered = Literal["deny", "skip", "allow"]


class Terms(Struct, frozen=True, kw_only=True):
    """Whether somebody answers, how long to wait for it, and what to do if nobody does; how far `always` reaches.

    `deny` refuses the call and ends the run, `skip` refuses it and lets the agent find another way. `person` is
    whose answers those are that are given here, `owner` the process.
    """

    answered: bool = False
    unanswered: Unanswered = "deny"
    timeout_seconds: float | None = None
    always: Scope = "session"
    person: str = ""
    owner: str = ""


class Ruling(Struct, frozen=True, kw_only=True):
    """What whoever is consulted before a person says: to ask, or not to have to."""

    status: Literal["ask", "allow", "deny"] = "ask"
    reason: str = ""


Consult = Callable[[PermissionRequest], Awaitable[Ruling]]


async def consult_nobody(_: PermissionRequest) -> Ruling:
    return Ruling()


class Around(Struct, frozen=True, kw_only=True):
    """Where it is asked: time, names, the project, whom to tell, and whom to consult before a person is asked."""

    clock: Clock
    mint: Mint
    project: ProjectID
    tell: Callable[[Event], Awaitable[None]]
    consult: Consult = consult_nobody
