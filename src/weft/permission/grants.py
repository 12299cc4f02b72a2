"""Grants: what a person allowed for more than one call. Store, match, list and revoke them."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from weft.errors import NotFoundError
from weft.model.ids import GrantID, MessageID, ProjectID, SessionID
from weft.model.permission import Grant, GrantTerms, Rule, Scope
from weft.permission.audit import AuditLog, entry_for_grant
from weft.permission.policy import AskPolicy, GateContext
from weft.permission.requests import OpenRequest, RequestAnswer
from weft.permission.rules import evaluate
from weft.permission.storage import ItemStore

MAX_TURN_MS = 24 * 3600 * 1000  # the grant of a turn that never ended expires then


class GrantSubject(Struct, frozen=True, kw_only=True):
    """Who asks, and where. A grant must have been given to this subject to apply."""

    agent: str
    project_id: ProjectID
    root_id: SessionID
    turn_id: MessageID | None = None


def to_scope(setting: object) -> Scope:
    """Return the scope that a setting names; `session` if it names none."""
    scopes: dict[object, Scope] = {"turn": "turn", "project": "project", "user": "user"}
    return scopes.get(setting, "session")


def to_subject(request: OpenRequest) -> GrantSubject:
    return GrantSubject(
        agent=request.agent, project_id=request.project_id, root_id=request.root_id, turn_id=request.turn_id
    )


def find_covering(
    grants: Iterable[Grant], subject: GrantSubject, permission: str, patterns: Sequence[str], now: int
) -> list[Grant] | None:
    """Return grants that together allow every pattern, None if they do not."""
    usable = [each for each in grants if each.permission == permission and applies_to(each, subject, now)]
    used: list[Grant] = []
    for pattern in patterns:
        grant = next((each for each in usable if _allows(each, pattern)), None)
        if grant is None:
            return None
        if grant not in used:
            used.append(grant)
    return used


def _allows(grant: Grant, pattern: str) -> bool:
    """Return True if a grant allows a pattern. It is matched like a rule: an unknown part of the pattern is not granted."""
    rules = [Rule(permission=grant.permission, pattern=each, action="allow") for each in grant.patterns]
    return evaluate(grant.permission, pattern, rules).action == "allow"


def applies_to(grant: Grant, subject: GrantSubject, now: int) -> bool:
    """Return True if a grant was given to this subject and has not expired.

    OpenCode grants to every agent of the process what was allowed to one, and forgets it when the process ends.
    """
    if is_expired(grant, now) or grant.agent not in (None, subject.agent):
        return False
    match grant.scope:
        case "once":
            return False
        case "turn":
            return grant.message_id == subject.turn_id and subject.turn_id is not None
        case "session":
            return grant.session_id == subject.root_id
        case "project":
            return grant.project_id == subject.project_id
        case "user":
            return True


def is_expired(grant: Grant, now: int) -> bool:
    return grant.expires is not None and grant.expires <= now


def make_grant(
    id: GrantID, request: OpenRequest, answer: RequestAnswer, terms: GrantTerms, default: Scope
) -> Grant | None:
    """Return the grant of an `always`, None if the request offers nothing to allow permanently."""
    permission, scope = request.permission, terms.scope or default
    if permission is None or not permission.always or scope == "once":
        return None
    return Grant(
        id=id,
        scope=scope,
        permission=permission.permission,
        patterns=permission.always,
        agent=None if terms.any_agent or not request.agent else request.agent,
        project_id=None if scope == "user" else request.project_id,
        session_id=request.root_id if scope in ("turn", "session") else None,
        message_id=request.turn_id if scope == "turn" else None,
        by=answer.by,
        created=answer.time,
        expires=_to_expiry(terms, answer.time, scope),
    )


def _to_expiry(terms: GrantTerms, now: int, scope: Scope) -> int | None:
    if scope != "turn":
        return terms.expires
    return min(now + MAX_TURN_MS, terms.expires or now + MAX_TURN_MS)


def add_grant(grants: Sequence[Grant], grant: Grant) -> tuple[Grant, ...]:
    """Return the grants with one more and without expired ones."""
    return (*(each for each in grants if not is_expired(each, grant.created)), grant)


def remove_grant(grants: Sequence[Grant], id: GrantID) -> tuple[Grant, ...]:
    return tuple(each for each in grants if each.id != id)


class GrantStore:
    """The grants of one directory. The storage also holds those of the user and of other projects."""

    def __init__(
        self, store: ItemStore[Grant], audit: AuditLog, context: GateContext, policy: AskPolicy
    ) -> None:
        self._store = store
        self._audit = audit
        self._context = context
        self._policy = policy

    async def find_covering(self, request: OpenRequest, patterns: Sequence[str]) -> list[Grant] | None:
        """Return the grants that allow these patterns of a request, None if they do not allow them all."""
        return self._find_covering(await self._store.read(), request, patterns)

    async def grant(self, request: OpenRequest, answer: RequestAnswer, terms: GrantTerms) -> Grant | None:
        """Store and return the grant of an `always`, None if nothing can be granted permanently."""
        grant = make_grant(self._context.mint.grant(), request, answer, terms, self._policy.always)
        if grant is not None:
            await self._store.change(lambda stored: add_grant(stored, grant))
            self._audit.note(entry_for_grant("granted", grant, answer.time, answer.by))
        return grant

    def covers(self, grant: Grant, request: OpenRequest) -> bool:
        """Return True if this one grant allows the whole request."""
        patterns = request.permission.patterns if request.permission else ()
        return bool(self._find_covering([grant], request, patterns))

    async def list_grants(self) -> list[Grant]:
        """Return the grants in force for this project, oldest first."""
        now, project = self._context.clock.now(), self._context.project
        stored = await self._store.read()
        return [each for each in stored if not is_expired(each, now) and each.project_id in (None, project)]

    async def revoke(self, id: GrantID) -> Grant:
        """Revoke a grant, so that the next call asks again. Raise `NotFoundError` if it does not exist."""
        grant = next((each for each in await self.list_grants() if each.id == id), None)
        if grant is None:
            raise NotFoundError("grant", id, hint="weft permission grants lists them")
        await self._store.change(lambda stored: remove_grant(stored, id))
        self._audit.note(entry_for_grant("revoked", grant, self._context.clock.now(), self._policy.person))
        await self._audit.try_flush()
        return grant

    async def end_turns(self, turns: frozenset[MessageID]) -> None:
        await self._drop(lambda grant: grant.message_id in turns)

    async def remove_sessions(self, sessions: frozenset[SessionID]) -> None:
        """Remove the grants of sessions that were removed."""
        await self._drop(lambda grant: grant.session_id in sessions)

    async def _drop(self, is_ended: Callable[[Grant], bool]) -> None:
        if any(is_ended(grant) for grant in await self._store.read()):
            await self._store.change(lambda stored: tuple(each for each in stored if not is_ended(each)))

    def _find_covering(
        self, grants: Iterable[Grant], request: OpenRequest, patterns: Sequence[str]
    ) -> list[Grant] | None:
        if request.permission is None:
            return None
        now = self._context.clock.now()
        return find_covering(grants, to_subject(request), request.permission.permission, patterns, now)
