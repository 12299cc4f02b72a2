"""The store contract: where durable events are kept, and what every backend promises."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.event import Durable
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import MessageWithParts
from weft.model.project import Project
from weft.model.session import Session, Todo, Trashed

Key = tuple[str, ...]
SessionEditor = Callable[[Session], Session]


class Store(Protocol):
    """Where durable events come to rest.

    Writing:
    * `apply` is all or nothing, also when the process dies in the middle, and holds once it has returned;
    * applying an event twice leaves the store as applying it once;
    * deleting a session takes its messages, parts, diff and todos with it; removing a message takes its parts;
    * growth of a part that is not there, or that does not join on, changes nothing;
    * `edit` is one step: nobody else's change falls between its reading and its writing;
    * what a document carried that we do not know is still there after it was written again.

    Reading:
    * `get` raises `NotFoundError`, `find` gives None, lists are oldest first;
    * lists come in the order things happened: by time, then by unwrapped id, never by raw id;
    * what another process wrote by way of a store is seen by the next read;
    * `list_messages` gives the `last` so many, of those `before` a message if one is named;
    * a document that cannot be read is left out, stays where it is, and is named by `damage`.

    The trash:
    * `discard` takes sessions out of sight, all or none, with all that deleting them would take, as one bundle;
    * `restore` brings a bundle back byte for byte, all or none, and never over a session that is there;
    * `purge` throws a bundle away for good; a bundle that is not there raises `NotFoundError`.

    Keeping (what must survive and is never told: share secrets, approvals):
    * `kept` gives back what `keep` was given, None if nothing; keeping None forgets;
    * `rework` is one step: what `reworker` makes of what is kept is kept instead, and nobody's falls in between.

    Running:
    * a session's `lease` has one holder at a time, over all processes; who asks in vain is told who holds it
      (`SessionBusyError`), at once;
    * `find_holder` says who holds the lease of a session, None if nobody does;
    * a holder that died holds nothing, and its session is `list_abandoned` until a lease of it is given back, or the
      session is gone.
    """

    async def apply(self, *events: Durable) -> None: ...

    async def edit(self, session: SessionID, editor: SessionEditor) -> Session: ...

    async def list_projects(self) -> list[Project]: ...

    async def find_project(self, id: ProjectID) -> Project | None: ...

    async def list_sessions(self, project: ProjectID | None = None) -> list[Session]: ...

    async def get_session(self, id: SessionID) -> Session: ...

    async def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]: ...

    async def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None: ...

    async def list_diff(self, session: SessionID) -> list[FileDiff]: ...

    async def list_todos(self, session: SessionID) -> list[Todo]: ...

    async def discard(self, sessions: Sequence[SessionID], *, at: int) -> Trashed: ...

    async def restore(self, bundle: str) -> Trashed: ...

    async def purge(self, bundle: str) -> None: ...

    async def list_trash(self) -> list[Trashed]: ...

    async def keep(self, key: Key, value: Any) -> None: ...

    async def kept(self, key: Key) -> Any: ...

    async def rework(self, key: Key, reworker: Callable[[Any], Any]) -> Any: ...

    def lease(self, session: SessionID, owner: str) -> AbstractAsyncContextManager[None]: ...

    async def find_holder(self, session: SessionID) -> str | None: ...

    async def list_abandoned(self) -> list[SessionID]: ...

    async def damage(self) -> list[Damage]: ...
