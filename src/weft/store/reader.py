"""Read a store without an event loop, for commands that only read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from weft.errors import InvalidInputError

if TYPE_CHECKING:  # a list of sessions pays for no type that it does not use
    from weft.host.files import Stamp
    from weft.model.damage import Damage
    from weft.model.diff import FileDiff
    from weft.model.ids import MessageID, ProjectID, SessionID
    from weft.model.message import MessageWithParts
    from weft.model.project import Project
    from weft.model.session import Session, Todo, TrashBundle


class StoreReader(Protocol):
    """What a command that only reads needs from a store.

    Lists are oldest first. `find` returns None for an id that does not exist. A document that cannot be read is left out
    and named by `problems`. Nothing is locked: a call sees what other processes have written before it.
    """

    @property
    def address(self) -> str:
        """Where the store is. Caches are kept per address."""
        ...

    def list_projects(self) -> list[Project]: ...

    def find_project(self, id: ProjectID) -> Project | None: ...

    def list_sessions(self, project: ProjectID | None = None) -> list[Session]: ...

    def find_session(self, id: SessionID) -> Session | None: ...

    def find_session_in(self, project: ProjectID, id: SessionID) -> Session | None:
        """Return the session as this project records it: a move that was cut short leaves it in two."""
        ...

    def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        """Return the messages of a session: the `last` so many, of those before the message `before`."""
        ...

    def list_message_ids(self, session: SessionID) -> list[MessageID]: ...

    def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None: ...

    def list_diff(self, session: SessionID) -> list[FileDiff]: ...

    def list_todos(self, session: SessionID) -> list[Todo]: ...

    def list_trash(self) -> list[TrashBundle]: ...

    def list_running(self) -> set[SessionID]:
        """Return the sessions that a living process runs."""
        ...

    def find_value(self, key: tuple[str, ...]) -> Any:
        """Return the value that is kept under a key, None if there is none."""
        ...

    def list_stamps(self, project: ProjectID | None = None) -> dict[tuple[ProjectID, SessionID], Stamp]:
        """Return a stamp of every session. It changes whenever the session changes."""
        ...

    def find_sure_stamp(self, project: ProjectID, id: SessionID) -> Stamp | None:
        """Return the stamp of a session; None if the session could change again without a new stamp."""
        ...

    def find_newer_home(self) -> str | None:
        """Return the path of a later OpenCode's database, if this store has no sessions and that is where they are."""
        ...

    def problems(self) -> list[Damage]:
        """Return what could not be read so far."""
        ...


def open_reader(url: str) -> StoreReader:
    """Open the store at `file:<path>` for reading. Finish first what an older version or a crash left undone there.

    Raise `InvalidInputError` if the address is not one of a store of files.
    """
    if not url.startswith("file:"):
        raise InvalidInputError(
            "--store", f"{url!r} is not a store of files", hint="use a directory or file:<path>"
        )
    from weft.store.files.reader import FileReader  # noqa: PLC0415  only the kind of store that is asked for

    reader = FileReader(url.removeprefix("file:"))
    if not reader.is_settled():
        from weft.store.files.upgrade import upgrade_tree  # noqa: PLC0415  rarely needed
        from weft.store.url import find_root_commit  # noqa: PLC0415  rarely needed

        upgrade_tree(reader, find_root_commit)
    return reader
