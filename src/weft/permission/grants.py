"""Grants: what a person allowed for longer than once; stored, matched, listed and revoked."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from weft.errors import NotFoundError
from weft.model.ids import GrantID, MessageID, ProjectID, SessionID
from weft.model.permission import Grant, GrantTerms, Rule, Scope
from weft.permission.audit import Audit, of_grant
from weft.permission.requests import Answer, Asked
from weft.permission.rules import evaluate
from weft.permission.storage import Shelf
from weft.permission.terms import Around, Terms

TURN_MS = 24 * 3600 * 1000  # a turn that nobody ended is over then


class Asker(Struct, frozen=True, kw_only=True):
    """Who asks, and where: what a grant must have been given to, to be of use."""

    agent: str
    project_id: ProjectID
    root_id: SessionID
    turn_id: MessageID | None = None


def find_scope(said: object) -> Scope:
    """What a setting says of how far `always` reaches; the session if it says nothing that can be."""
    reaching: dict[object, Scope] = {"turn": "turn", "project": "project", "user": "user"}
    return reaching.get(said, "session")


def to_asker(asked: Asked) -> Asker:
    return Asker(agent=asked.agent, project_id=asked.project_id, root_id=asked.root_id, turn_id=asked.turn_id)


def find_cover(
    grants: Iterable[Grant], asker: Asker, permission: str, patterns: Sequence[str], now: int
) -> list[Grant] | None:
    """Grants that together allow every pattern, None if one of them stays open."""
    usable = [each for each in grants if each.permission == permission and reaches(each, asker, now)]
    used: list[Grant] = []
    for pattern in patterns:
        grant = next((each for each in usable if _allows(each, pattern)), None)
        if grant is None:
            return None
        if grant not in used:
            used.append(grant)
    return used


def _allows(grant: Grant, pattern: str) -> bool:
    """Judged as rules are, so that what is not known of a pattern is not taken to be granted."""
    given = [Rule(permission=grant.permission, pattern=each, action="allow") for each in grant.patterns]
    return evaluate(grant.permission, pattern, given).action == "allow"


def reaches(grant: Grant, asker: Asker, now: int) -> bool:
    """Whether a grant was given to this asker, and still holds.

    OpenCode lets what was allowed to one agent be done by every other in the process, and forgets it at its end.
    """
    if is_over(grant, now) or grant.agent not in (None, asker.agent):
        return False
    match grant.scope:
        case "once":
            return False
        case "turn":
            return grant.message_id == asker.turn_id and asker.turn_id is not None
        case "session":
            return grant.session_id == asker.root_id
        case "project":
            return grant.project_id == asker.project_id
        case "user":
            return True


def is_over(grant: Grant, now: int) -> bool:
    return grant.expires is not None and grant.expires <= now


def make_grant(id: GrantID, asked: Asked, answer: Answer, terms: GrantTerms, usual: Scope) -> Grant | None:
    """What an `always` grants; None where it can only be meant for once: nothing lasting was offered."""
    request, scope = asked.permission, terms.scope or usual
    if request is None or not request.always or scope == "once":
        return None
    return Grant(
        id=id,
        scope=scope,
        permission=request.permission,
        patterns=request.always,
        agent=None if terms.any_agent or not asked.agent else asked.agent,
        project_id=None if scope == "user" else asked.project_id,
        session_id=asked.root_id if scope in ("turn", "session") else None,
        message_id=asked.turn_id if scope == "turn" else None,
        by=answer.by,
        created=answer.time,
        expires=_until(terms, answer.time, scope),
    )


def _until(terms: GrantTerms, now: int, scope: Scope) -> int | None:
    if scope != "turn":
        return terms.expires
    return min(now + TURN_MS, terms.expires or now + TURN_MS)


def added(grants: Sequence[Grant], grant: Grant) -> tuple[Grant, ...]:
    """The grants with one more; those that are over are let go."""
    return (*(each for each in grants if not is_over(each, grant.created)), grant)


def without(grants: Sequence[Grant], id: GrantID) -> tuple[Grant, ...]:
    return tuple(each for each in grants if each.id != id)


class Granting:
    """One for a directory. Grants of the person and of other projects lie on the same shelf."""

    def __init__(self, shelf: Shelf[Grant], audit: Audit, around: Around, terms: Terms) -> None:
        self._shelf = shelf
        self._audit = audit
        self._around = around
        self._terms = terms

    async def find_cover(self, asked: Asked, patterns: Sequence[str]) -> list[Grant] | None:
        """The grants that allow these patterns of what is asked, None if they do not allow them all."""
        return self._covering(await self._shelf.read(), asked, patterns)

    async def grant(self, asked: Asked, answer: Answer, terms: GrantTerms) -> Grant | None:
        """What an `always` grants, if there is anything that can be granted for longer."""
        grant = make_grant(self._around.mint.grant(), asked, answer, terms, self._terms.always)
        if grant is not None:
            await self._shelf.change(lambda kept: added(kept, grant))
            self._audit.note(of_grant("granted", grant, answer.time, answer.by))
        return grant

    def covers(self, grant: Grant, asked: Asked) -> bool:
        """Whether this one grant allows all that is asked."""
        patterns = asked.permission.patterns if asked.permission else ()
        return bool(self._covering([grant], asked, patterns))

    async def list_grants(self) -> list[Grant]:
        """Those in force that reach into this project, oldest first."""
        now, project = self._around.clock.now(), self._around.project
        kept = await self._shelf.read()
        return [each for each in kept if not is_over(each, now) and each.project_id in (None, project)]

    async def revoke(self, id: GrantID) -> Grant:
        """Take a grant back; the next call that would have used it asks again."""
        grant = next((each for each in await self.list_grants() if each.id == id), None)
        if grant is None:
            raise NotFoundError("grant", id, hint="weft permission grants lists those there are")
        await self._shelf.change(lambda kept: without(kept, id))
        self._audit.note(of_grant("revoked", grant, self._around.clock.now(), self._terms.person))
        await self._audit.settle()
        return grant

    async def end_turns(self, turns: frozenset[MessageID]) -> None:
        await self._drop(lambda grant: grant.message_id in turns)

    async def forget(self, sessions: frozenset[SessionID]) -> None:
        """Sessions are gone, and what was granted in them goes too."""
        await self._drop(lambda grant: grant.session_id in sessions)

    async def _drop(self, over: Callable[[Grant], bool]) -> None:
        if any(over(grant) for grant in await self._shelf.read()):
            await self._shelf.change(lambda kept: tuple(each for each in kept if not over(each)))

    def _covering(self, grants: Iterable[Grant], asked: Asked, patterns: Sequence[str]) -> list[Grant] | None:
        if asked.permission is None:
            return None
        now = self._around.clock.now()
        return find_cover(grants, to_asker(asked), asked.permission.permission, patterns, now)
