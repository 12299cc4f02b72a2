"""Granting: a yes that lasts is written down, found again, listed and taken back."""

from collections.abc import Callable, Iterable, Sequence

from weft.errors import NotFoundError
from weft.model.ids import GrantID, MessageID, SessionID
from weft.model.permission import Grant, GrantTerms
from weft.permission.asked import Answer, Asked
from weft.permission.audit import Audit
from weft.permission.entry import of_grant
from weft.permission.grants import added, find_cover, is_over, make_grant, to_asker, without
from weft.permission.shelf import Shelf
from weft.permission.terms import Around, Terms


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
