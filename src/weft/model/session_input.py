"""What a front end asks of sessions at rest: which of them to list, and what of one to change."""

from typing import Literal

from weft.model.permission import Ruleset
from weft.model.wire import Wire

Order = Literal["created", "updated"]


class SessionQuery(Wire, frozen=True, kw_only=True):
    """Which sessions to list. What is not said does not matter.

    `start` is the earliest time of last work (ms), `search` words of the title, `archived` whether only archived ones
    or none of them are wanted. `everywhere` looks beyond the project. `order` is newest first, by what.
    """

    roots: bool = False
    start: int | None = None
    search: str | None = None
    tag: str | None = None
    directory: str | None = None
    archived: bool | None = None
    everywhere: bool = False
    order: Order = "created"
    limit: int | None = None


EVERY = SessionQuery()


class SessionChange(Wire, frozen=True, kw_only=True):
    """What of a session is to be another. What is not said stays."""

    title: str | None = None
    archived: bool | None = None
    pinned: bool | None = None
    tag: tuple[str, ...] = ()
    untag: tuple[str, ...] = ()
    permission: Ruleset | None = None
