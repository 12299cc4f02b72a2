"""The gate: what the rules allow passes, what they deny does not, and for the rest a person is asked."""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from weft.errors import CorrectedError, DeniedError, NotFoundError, NotPermittedError, RejectedError
from weft.model.event import Event, PermissionAsked, PermissionReplied
from weft.model.ids import PermissionID
from weft.model.permission import PermissionRequest, Reply, Rule, Ruleset
from weft.permission.rules import verdict


class Waiting(Struct, frozen=True):
    """A question that is open: what was asked, and who waits for the answer."""

    request: PermissionRequest
    answer: asyncio.Future[None]


class Gate:
    """One for a directory. With nobody to answer (`answered` is false) an ask is a refusal, never a wait."""

    def __init__(self, tell: Callable[[Event], Awaitable[None]], *, answered: bool) -> None:
        self._tell = tell
        self._answered = answered
        self._waiting: dict[PermissionID, Waiting] = {}
        self._approved: Ruleset = ()

    async def let_pass(self, request: PermissionRequest, ruleset: Ruleset) -> None:
        """Returns when the request may be carried out, raises `NotPermittedError` when not."""
        rule = verdict(request.permission, request.patterns, ruleset, self._approved)
        match rule.action:
            case "allow":
                return
            case "deny":
                raise DeniedError(
                    request.permission, ", ".join(request.patterns), f"{rule.permission} {rule.pattern}"
                )
            case "ask":
                await self._ask(request)

    def pending(self) -> list[PermissionRequest]:
        return [waiting.request for waiting in self._waiting.values()]

    async def reply(self, id: PermissionID, reply: Reply, *, message: str = "") -> None:
        """Answer a question. A no also answers every other question of that session; an always, those it covers."""
        waiting = self._waiting.get(id)
        if waiting is None:
            raise NotFoundError("permission request", id)
        match reply:
            case "once":
                await self._settle(waiting, "once", None)
            case "always":
                self._approve(waiting.request)
                await self._settle(waiting, "always", None)
                for other in self._others(waiting.request):
                    if (
                        verdict(other.request.permission, other.request.patterns, (), self._approved).action
                        == "allow"
                    ):
                        await self._settle(other, "always", None)
            case "reject":
                await self._settle(waiting, "reject", CorrectedError(message) if message else RejectedError())
                for other in self._others(waiting.request):
                    await self._settle(other, "reject", RejectedError())

    async def _ask(self, request: PermissionRequest) -> None:
        if not self._answered:
            raise RejectedError
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = Waiting(request, answer)
        try:
            await self._tell(PermissionAsked(request=request))
            await answer
        finally:
            # Also when the run was aborted meanwhile: OpenCode keeps such a question open for ever.
            self._waiting.pop(request.id, None)

    def _approve(self, request: PermissionRequest) -> None:
        self._approved += tuple(
            Rule(permission=request.permission, pattern=pattern, action="allow") for pattern in request.always
        )

    def _others(self, request: PermissionRequest) -> list[Waiting]:
        return [each for each in self._waiting.values() if each.request.session_id == request.session_id]

    async def _settle(self, waiting: Waiting, reply: Reply, refusal: NotPermittedError | None) -> None:
        request = waiting.request
        self._waiting.pop(request.id, None)
        if not waiting.answer.done():
            if refusal is None:
                waiting.answer.set_result(None)
            else:
                waiting.answer.set_exception(refusal)
        await self._tell(PermissionReplied(session_id=request.session_id, request_id=request.id, reply=reply))
