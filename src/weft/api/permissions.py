"""Permission requests and questions of agents, and the answers of people."""

from typing import Protocol

from weft.model.ids import GrantID, PermissionID, QuestionID
from weft.model.permission import (
    DEFAULT_GRANT_TERMS,
    Grant,
    GrantTerms,
    PermissionDecision,
    PermissionRequest,
    QuestionRequest,
    Reply,
)


class Permissions(Protocol):
    """Requests of an agent for permission.

    * A reply to a request that is not open raises `NotFoundError`, or `ConflictError` if another reply came first.
    * `reject` also rejects every other open request of that session. `message` tells the agent what to do instead.
    * `always` stores a grant with the scope and expiry of `grant`. A grant answers later requests, and never allows what
      a rule denies.
    * A request outlives the process that made it: it stays listed, and the next run that needs the same permission uses
      the reply. When the run is aborted, the request is withdrawn, which is published as a `reject`.
    * A revoked grant is not used again.
    * `list_decisions` returns the last `limit` decisions about this project, newest first. A decision is recorded within a second.
    """

    async def list_permissions(self) -> list[PermissionRequest]: ...

    async def reply_permission(
        self,
        id: PermissionID,
        reply: Reply,
        *,
        message: str = "",
        grant: GrantTerms = DEFAULT_GRANT_TERMS,
    ) -> None: ...

    async def list_grants(self) -> list[Grant]: ...

    async def revoke_grant(self, id: GrantID) -> None: ...

    async def list_decisions(self, *, limit: int = 100) -> list[PermissionDecision]: ...


class Questions(Protocol):
    """Questions of an agent about what the person wants.

    * `reply_question` takes one tuple of answers for each question. A tuple may be empty.
    * Rejecting a question ends the run. A question that is not open raises `NotFoundError`, or `ConflictError` if another reply came first.
    """

    async def list_questions(self) -> list[QuestionRequest]: ...

    async def reply_question(self, id: QuestionID, answers: tuple[tuple[str, ...], ...]) -> None: ...

    async def reject_question(self, id: QuestionID) -> None: ...
