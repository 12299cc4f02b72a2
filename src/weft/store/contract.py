"""The contract of a store: it persists durable events, and every backend keeps the same rules."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.event import Durable
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import MessageWithParts
from weft.model.project import Project
from weft.model.session import Session, Todo, TrashBundle

Key = tuple[str, ...]
SessionEditor = Callable[[Session], Session]


class Store(Protocol):
    """Persists durable events and reads back what they describe.

    Writing:
    * `apply` is all or nothing, even if the process dies in the middle, and is durable once it has returned;
    * applying an event twice has the same effect as applying it once;
    * deleting a session also deletes its messages, parts, diff and todos; removing a message also removes its parts;
    * growth of a part that does not exist, or whose offset does not match, changes nothing;
    * `edit` is atomic: no other change happens between its read and its write;
    * unknown fields of a document survive when the document is written again.

    Reading:
    * `get_…` raises `NotFoundError`, `find_…` returns None, lists are sorted oldest first;
    * the order is by time, then by unwrapped id, never by raw id;
    * the next read sees everything that another process wrote through a store;
    * `list_messages` returns the `last` messages, counted back from the message `before` if it is given;
    * a document that cannot be read is skipped, stays where it is, and is reported by `damage`.

    Trash:
    * `discard` moves sessions into the trash as one bundle, all or none, with everything that deleting them would delete;
    * `restore` puts a bundle back byte for byte, all or none, and never overwrites an existing session;
    * `purge` deletes a bundle for good; it raises `NotFoundError` if there is no such bundle.

    Private values (stored but never published as events: share secrets, approvals):
    * `kept` returns the value that `keep` stored, None if there is none; keeping None deletes it;
    * `rework` atomically replaces a value by the result of `reworker`.

    Running:
    * a session's `lease` has one holder at a time across all processes; if it is taken, `lease` raises `SessionBusyError`
      with the holder's name at once, without waiting;
    * `find_holder` returns the holder of a session's lease, None if nobody holds it;
    * a process that died no longer holds its lease; `list_abandoned` returns such a session until somebody takes its
      lease and gives it back, or the session is deleted.
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

    async def discard(self, sessions: Sequence[SessionID], *, at: int) -> TrashBundle: ...

    async def restore(self, bundle: str) -> TrashBundle: ...

    async def purge(self, bundle: str) -> None: ...

    async def list_trash(self) -> list[TrashBundle]: ...

    async def put_value(self, key: Key, value: Any) -> None: ...

    async def find_value(self, key: Key) -> Any: ...

    async def update_value(self, key: Key, change: Callable[[Any], Any]) -> Any: ...

    def lease(self, session: SessionID, owner: str) -> AbstractAsyncContextManager[None]: ...

    async def find_holder(self, session: SessionID) -> str | None: ...

    async def list_abandoned(self) -> list[SessionID]: ...

    async def damage(self) -> list[Damage]: ...
