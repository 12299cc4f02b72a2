"""The gate: what the rules allow passes, what they deny does not, and for the rest a person is asked."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import (
    BlockedError,
    ConflictError,
    CorrectedError,
    DeniedError,
    NobodyError,
    RejectedError,
    StoreError,
    UnansweredError,
)
from weft.model.event import Event, PermissionAsked, PermissionReplied
from weft.model.ids import GrantID, MessageID, PermissionID, SessionID
from weft.model.permission import USUAL_TERMS, Grant, GrantTerms, Limits, PermissionRequest, Reply
from weft.permission.audit import Audit, of_answer, of_request
from weft.permission.grants import Granting
from weft.permission.requests import Answer, Answered, Asked, Asking, Ways
from weft.permission.rules import judge, strictest
from weft.permission.storage import Shelf
from weft.permission.terms import Around, Terms

BY_PLUGIN: Final = "a plugin's permission.ask"


class Whereabouts(Struct, frozen=True, kw_only=True):
    """Where a call stands: below which topmost session, and in answer to which prompt."""

    root_id: SessionID
    turn_id: MessageID | None = None


class Standing(Struct, frozen=True, kw_only=True):
    """Who wants to pass, and what holds for them. `find` is called only when somebody has to be asked."""

    limits: Limits
    agent: str = ""
    find: Callable[[], Awaitable[Whereabouts]] | None = None


class Books(Struct, frozen=True, kw_only=True):
    """What the gate writes into: open questions, grants, the log."""

    asked: Shelf[Asked]
    grants: Shelf[Grant]
    audit: Audit


class Gate:
    """One for a directory. With nobody to answer, an ask is a refusal and never a wait."""

    def __init__(self, books: Books, around: Around, terms: Terms) -> None:
        self._audit = books.audit
        self._around = around
        self._terms = terms
        self._granting = Granting(books.grants, books.audit, around, terms)
        ways = Ways(
            kind="permission request",
            asked=self._asked,
            settled=_settled,
            mine=self._is_mine,
            tell=around.tell,
        )
        self._asking = Asking(books.asked, around.clock, terms, ways)
        self._turns: dict[SessionID, set[MessageID]] = {}

    async def let_pass(self, request: PermissionRequest, standing: Standing) -> None:
        """Returns when the request may be carried out, raises `NotPermittedError` when not."""
        judged = {
            pattern: judge(request.permission, pattern, standing.limits) for pattern in request.patterns
        }
        if not judged:
            return  # of nothing, all is allowed
        rule, now = strictest(judged.values()), self._around.clock.now()
        match rule.action:
            case "allow":
                self._audit.note(of_request("allowed", request, standing.agent, now, why=rule))
            case "deny":
                self._audit.note(of_request("denied", request, standing.agent, now, why=rule))
                raise DeniedError(
                    request.permission, ", ".join(request.patterns), f"{rule.permission} {rule.pattern}"
                )
            case "ask":
                unclear = [pattern for pattern, each in judged.items() if each.action == "ask"]
                await self._ask(request, standing, unclear)

    def is_waiting(self, session: SessionID) -> bool:
        """Whether a run of that session waits here for an answer."""
        return self._asking.is_waiting(session)

    async def pending(self) -> list[Asked]:
        """What is asked and unanswered in this project, oldest first; also by runs that are no more."""
        return await self._asking.pending()

    async def reply(
        self, id: PermissionID, reply: Reply, *, message: str = "", terms: GrantTerms = USUAL_TERMS
    ) -> None:
        """Answer a question. A no also answers every other question of that session; an always, those it covers.

        Raise `ConflictError` if another answer came first; then this one grants nothing.
        """
        asked = await self._asking.get(id)
        answer = Answer(reply=reply, message=message, by=self._terms.person, time=self._around.clock.now())
        async with self._asking.claim(asked, answer):
            grant = await self._granting.grant(asked, answer, terms) if reply == "always" else None
        self._note_answer(asked, answer, scope=grant.scope if grant else "once")
        follows = Answer(reply=reply, by=answer.by, time=answer.time)
        for other in await self.pending():
            if other.session_id != asked.session_id:
                continue
            if reply == "reject" or (grant is not None and self._granting.covers(grant, other)):
                await self._answer_too(other, follows)
        await self._audit.settle()

    async def list_grants(self) -> list[Grant]:
        return await self._granting.list_grants()

    async def revoke(self, id: GrantID) -> Grant:
        return await self._granting.revoke(id)

    async def leave(self, session: SessionID) -> None:
        """A run has ended, with it what was granted for its turns, and what an earlier run had left open."""
        turns = frozenset(self._turns.pop(session, ()))
        with suppress(StoreError):
            await self._asking.leave(session)
            if turns:
                await self._granting.end_turns(turns)

    async def forget(self, *sessions: SessionID) -> None:
        """Sessions are gone, and what was asked and granted in them goes too."""
        for session in sessions:
            await self.leave(session)
        with suppress(StoreError):
            await self._granting.forget(frozenset(sessions))

    def close(self) -> None:
        """The process ends. What is asked stays open for the next one."""
        self._asking.close()

    async def _ask(self, request: PermissionRequest, standing: Standing, unclear: list[str]) -> None:
        asked = await self._to_asked(request, standing)
        if asked.turn_id is not None:
            self._turns.setdefault(asked.session_id, set()).add(asked.turn_id)
        grants = await self._granting.find_cover(asked, unclear)
        if grants is not None:
            self._audit.note(of_request("allowed", request, asked.agent, asked.time, why=grants))
            return
        if await self._is_settled(request, asked.agent):
            return
        try:
            answered = await self._asking.ask(asked)
        except NobodyError as nobody:
            self._unanswered(request, asked.agent, nobody.request)
            return
        except BaseException:
            now = self._around.clock.now()
            self._audit.note(of_request("withdrawn", request, asked.agent, now))
            raise
        self._use(request, answered)

    async def _is_settled(self, request: PermissionRequest, agent: str) -> bool:
        """Whether somebody else has said yes, so that no person needs to. Who says no is heard, too."""
        ruling, now = await self._around.consult(request), self._around.clock.now()
        match ruling.status:
            case "ask":
                return False
            case "allow":
                self._audit.note(of_request("allowed", request, agent, now, why=BY_PLUGIN))
                return True
            case "deny":
                self._audit.note(of_request("denied", request, agent, now, why=BY_PLUGIN))
                patterns = ", ".join(request.patterns)
                raise BlockedError(ruling.reason or f"it denies {request.permission} {patterns}")

    def _use(self, request: PermissionRequest, answered: Answered) -> None:
        answer, agent = answered.answer, answered.asked.agent
        refused = answer.reply == "reject"
        if answered.earlier:
            why, now = f"answer to {answered.asked.id}", self._around.clock.now()
            self._audit.note(of_request("denied" if refused else "allowed", request, agent, now, why=why))
        if refused:
            raise CorrectedError(answer.message) if answer.message else RejectedError

    def _unanswered(self, request: PermissionRequest, agent: str, known_as: str) -> None:
        policy, now = self._terms.unanswered, self._around.clock.now()
        known = replace(request, id=PermissionID(known_as))
        self._audit.note(of_request("unanswered", known, agent, now, why=f"unanswered {policy}"))
        error = UnansweredError(request.permission, request.patterns, known_as)
        match policy:
            case "allow":
                return
            case "deny":
                raise error
            case "skip":
                raise NobodyError(f"{error}. Find another way.", request=known_as)

    async def _answer_too(self, asked: Asked, answer: Answer) -> None:
        """Answer what an answer to something else covers, unless it was answered by itself meanwhile."""
        with suppress(ConflictError):
            async with self._asking.claim(asked, answer):
                pass
            self._note_answer(asked, answer, scope="")

    def _note_answer(self, asked: Asked, answer: Answer, *, scope: str) -> None:
        if asked.permission is not None:
            self._audit.note(of_answer(asked, asked.permission, answer, scope))

    async def _to_asked(self, request: PermissionRequest, standing: Standing) -> Asked:
        found = await standing.find() if standing.find else Whereabouts(root_id=request.session_id)
        return Asked(
            permission=request,
            project_id=self._around.project,
            root_id=found.root_id,
            turn_id=found.turn_id,
            agent=standing.agent,
            owner=self._terms.owner,
            time=self._around.clock.now(),
        )

    def _asked(self, asked: Asked) -> Event:
        assert asked.permission is not None, "the gate asks for permissions only"
        self._audit.note(of_request("asked", asked.permission, asked.agent, self._around.clock.now()))
        return PermissionAsked(request=asked.permission)

    def _is_mine(self, asked: Asked) -> bool:
        return asked.permission is not None and asked.project_id == self._around.project


def _settled(asked: Asked, answer: Answer) -> Event:
    assert asked.permission is not None, "the gate asks for permissions only"
    request = asked.permission
    return PermissionReplied(session_id=request.session_id, request_id=request.id, reply=answer.reply)
