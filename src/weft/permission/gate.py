"""The gate: let pass what the rules allow, refuse what they deny, and ask a person about the rest."""

from collections.abc import Awaitable, Callable, Mapping
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
from weft.model.permission import (
    DEFAULT_GRANT_TERMS,
    Grant,
    GrantTerms,
    PermissionRequest,
    Reply,
    Rule,
    Rulesets,
)
from weft.permission.audit import AuditLog, entry_for_answer, entry_for_request
from weft.permission.grants import GrantStore
from weft.permission.policy import AskPolicy, GateContext
from weft.permission.requests import AnsweredRequest, OpenRequest, RequestAnswer, RequestKind, RequestQueue
from weft.permission.rules import choose_strictest, judge
from weft.permission.storage import ItemStore

# What the log has instead of a rule, if something else decided.
PLUGIN_DECISION: Final = "a plugin's permission.ask"
EARLIER_ANSWER: Final = "answer to "
UNANSWERED: Final = "unanswered "
ADDED_RULE: Final = "added for this command"


class CallOrigin(Struct, frozen=True, kw_only=True):
    """Where a call comes from: its topmost session, and the prompt that it answers."""

    root_id: SessionID
    turn_id: MessageID | None = None


class PermissionCaller(Struct, frozen=True, kw_only=True):
    """Who asks for permission, and the rules that apply. `find` returns the origin; it is called only if the rules say `ask`.

    Some rules may have been added for this request. `added_reasons` says why, for each pattern that would be allowed without them.
    """

    rulesets: Rulesets
    added_reasons: Mapping[str, str] = {}
    agent: str = ""
    find: Callable[[], Awaitable[CallOrigin]] | None = None


class GateStorage(Struct, frozen=True, kw_only=True):
    """Where the gate stores open requests, grants and its log."""

    asked: ItemStore[OpenRequest]
    grants: ItemStore[Grant]
    audit: AuditLog


class Gate:
    """The gate of one directory. If nobody can answer, a request that needs an answer is refused at once."""

    def __init__(self, storage: GateStorage, context: GateContext, policy: AskPolicy) -> None:
        self._audit = storage.audit
        self._context = context
        self._policy = policy
        self._grants = GrantStore(storage.grants, storage.audit, context, policy)
        kind = RequestKind(
            name="permission request",
            to_asked=_to_asked,
            to_answered=_to_replied,
            is_ours=self._is_ours,
            publish=context.publish,
        )
        self._requests = RequestQueue(storage.asked, context.clock, policy, kind)
        self._turns: dict[SessionID, set[MessageID]] = {}

    async def let_pass(self, request: PermissionRequest, caller: PermissionCaller) -> None:
        """Return when the request is allowed. Raise `NotPermittedError` if it is not."""
        judged = {
            pattern: judge(request.permission, pattern, (*caller.rulesets, *self._policy.limits))
            for pattern in request.patterns
        }
        if not judged:
            return  # nothing is requested
        rule, now = choose_strictest(judged.values()), self._context.clock.now()
        match rule.action:
            case "allow":
                self._audit.note(entry_for_request("allowed", request, caller.agent, now, why=rule))
            case "deny":
                self._audit.note(entry_for_request("denied", request, caller.agent, now, why=rule))
                raise DeniedError(
                    request.permission, ", ".join(request.patterns), f"{rule.permission} {rule.pattern}"
                )
            case "ask":
                undecided = [pattern for pattern, each in judged.items() if each.action == "ask"]
                added = caller.added_reasons.get(undecided[0])
                await self._ask(
                    request, caller, undecided, rule if added is None else f"{ADDED_RULE}: {added}"
                )

    @property
    def limits(self) -> Rulesets:
        """The rules that apply regardless of any answer."""
        return self._policy.limits

    def is_waiting(self, session: SessionID) -> bool:
        """Return True if a run of that session waits here for an answer."""
        return self._requests.is_waiting(session)

    async def pending(self) -> list[OpenRequest]:
        """Return the unanswered requests of this project, oldest first, also those of runs that have ended."""
        return await self._requests.pending()

    async def reply(
        self, id: PermissionID, reply: Reply, *, message: str = "", terms: GrantTerms = DEFAULT_GRANT_TERMS
    ) -> None:
        """Answer a request. A rejection also rejects every other request of that session; an `always` allows those it covers.

        Raise `ConflictError` if another answer came first; then this one grants nothing.
        """
        open_request = await self._requests.get(id)
        answer = RequestAnswer(
            reply=reply, message=message, by=self._policy.person, time=self._context.clock.now()
        )
        async with self._requests.claim(open_request, answer):
            grant = await self._grants.grant(open_request, answer, terms) if reply == "always" else None
        self._note_answer(open_request, answer, scope=grant.scope if grant else "once")
        follow_up = RequestAnswer(reply=reply, by=answer.by, time=answer.time)
        for other in await self.pending():
            if other.session_id != open_request.session_id:
                continue
            if reply == "reject" or (grant is not None and self._grants.covers(grant, other)):
                await self._answer_covered(other, follow_up)
        await self._audit.try_flush()

    async def list_grants(self) -> list[Grant]:
        return await self._grants.list_grants()

    async def revoke(self, id: GrantID) -> Grant:
        return await self._grants.revoke(id)

    async def end_run(self, session: SessionID) -> None:
        """Handle the end of a run: end its grants of scope `turn`, and withdraw requests that an earlier run left open."""
        turns = frozenset(self._turns.pop(session, ()))
        with suppress(StoreError):
            await self._requests.end_run(session)
            if turns:
                await self._grants.end_turns(turns)

    async def forget(self, *sessions: SessionID) -> None:
        """Remove the requests and grants of sessions that were removed."""
        for session in sessions:
            await self.end_run(session)
        with suppress(StoreError):
            await self._grants.remove_sessions(frozenset(sessions))

    def abandon(self, session: SessionID) -> None:
        """Leave the requests of a session to the process that has taken it over."""
        self._requests.abandon(session)

    def close(self) -> None:
        """Prepare for the end of the process. Open requests stay open for the next one."""
        self._requests.close()

    async def _ask(
        self, request: PermissionRequest, caller: PermissionCaller, undecided: list[str], why: Rule | str
    ) -> None:
        """Ask a person about the `undecided` patterns, unless a grant or a plugin decides. `why` is the rule that says `ask`, or what does instead."""
        open_request = await self._make_open_request(request, caller)
        if open_request.turn_id is not None:
            self._turns.setdefault(open_request.session_id, set()).add(open_request.turn_id)
        grants = await self._grants.find_covering(open_request, undecided)
        if grants is not None:
            self._audit.note(
                entry_for_request("allowed", request, open_request.agent, open_request.time, why=grants)
            )
            return
        if await self._consult_plugins(request, open_request.agent):
            return
        try:
            answered = await self._requests.ask(open_request, lambda asked: self._note_asked(asked, why))
        except NobodyError as nobody:
            self._handle_unanswered(request, open_request.agent, nobody.request)
            return
        except BaseException:
            now = self._context.clock.now()
            self._audit.note(entry_for_request("withdrawn", request, open_request.agent, now))
            raise
        self._apply(request, answered)

    async def _consult_plugins(self, request: PermissionRequest, agent: str) -> bool:
        """Return True if a plugin allows the request. Raise `BlockedError` if one denies it."""
        ruling, now = await self._context.consult(request), self._context.clock.now()
        match ruling.status:
            case "ask":
                return False
            case "allow":
                self._audit.note(entry_for_request("allowed", request, agent, now, why=PLUGIN_DECISION))
                return True
            case "deny":
                self._audit.note(entry_for_request("denied", request, agent, now, why=PLUGIN_DECISION))
                patterns = ", ".join(request.patterns)
                raise BlockedError(ruling.reason or f"it denies {request.permission} {patterns}")

    def _apply(self, request: PermissionRequest, answered: AnsweredRequest) -> None:
        answer, agent = answered.answer, answered.request.agent
        rejected = answer.reply == "reject"
        if answered.earlier:
            why, now = f"{EARLIER_ANSWER}{answered.request.id}", self._context.clock.now()
            self._audit.note(
                entry_for_request("denied" if rejected else "allowed", request, agent, now, why=why)
            )
        if rejected:
            raise CorrectedError(answer.message) if answer.message else RejectedError

    def _handle_unanswered(self, request: PermissionRequest, agent: str, request_id: str) -> None:
        policy, now = self._policy.unanswered, self._context.clock.now()
        recorded = replace(request, id=PermissionID(request_id))
        self._audit.note(entry_for_request("unanswered", recorded, agent, now, why=f"{UNANSWERED}{policy}"))
        error = UnansweredError(request.permission, request.patterns, request_id)
        match policy:
            case "allow":
                return
            case "deny":
                raise error
            case "skip":
                raise NobodyError(f"{error}. Find another way.", request=request_id)

    async def _answer_covered(self, open_request: OpenRequest, answer: RequestAnswer) -> None:
        """Answer a request that another answer covers, unless it was answered meanwhile."""
        with suppress(ConflictError):
            async with self._requests.claim(open_request, answer):
                pass
            self._note_answer(open_request, answer, scope="")

    def _note_answer(self, open_request: OpenRequest, answer: RequestAnswer, *, scope: str) -> None:
        if open_request.permission is not None:
            self._audit.note(entry_for_answer(open_request, open_request.permission, answer, scope))

    async def _make_open_request(self, request: PermissionRequest, caller: PermissionCaller) -> OpenRequest:
        origin = await caller.find() if caller.find else CallOrigin(root_id=request.session_id)
        return OpenRequest(
            permission=request,
            project_id=self._context.project,
            root_id=origin.root_id,
            turn_id=origin.turn_id,
            agent=caller.agent,
            owner=self._policy.owner,
            time=self._context.clock.now(),
        )

    def _note_asked(self, open_request: OpenRequest, why: Rule | str) -> None:
        assert open_request.permission is not None, "the gate asks for permissions only"
        now = self._context.clock.now()
        self._audit.note(
            entry_for_request("asked", open_request.permission, open_request.agent, now, why=why)
        )

    def _is_ours(self, open_request: OpenRequest) -> bool:
        return open_request.permission is not None and open_request.project_id == self._context.project


def _to_asked(open_request: OpenRequest) -> Event:
    assert open_request.permission is not None, "the gate asks for permissions only"
    return PermissionAsked(request=open_request.permission)


def _to_replied(open_request: OpenRequest, answer: RequestAnswer) -> Event:
    assert open_request.permission is not None, "the gate asks for permissions only"
    request = open_request.permission
    return PermissionReplied(session_id=request.session_id, request_id=request.id, reply=answer.reply)
