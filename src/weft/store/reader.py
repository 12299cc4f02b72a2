"""Read a store without an event loop, for commands that only read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from weft.errors import InvalidInputError
from weft.host.paths import parse_store_path
from weft.model.url import redact_url
from weft.store.url import ADDRESS_SOURCES

if TYPE_CHECKING:  # listing sessions must not load types that it does not use
    from weft.model.damage import Damage
    from weft.model.diff import FileDiff
    from weft.model.ids import MessageID, ProjectID, SessionID
    from weft.model.message import MessageWithParts
    from weft.model.project import Project
    from weft.model.search import Figures, Hit
    from weft.model.session import SessionInfo, Todo, TrashBundle
    from weft.model.session_query import SessionQuery
    from weft.store.search import IndexProgress, IndexWarning
    from weft.store.statistics import StatisticsQuery


class StoreReader(Protocol):
    """What a command that only reads needs from a store.

    Lists are oldest first. `find_…` returns None for an id that does not exist. A document that cannot be read is left out
    and named by `problems`. Nothing is locked: a call sees what other processes have written before it.
    """

    @property
    def address(self) -> str:
        """Where the store is. Caches are kept per address."""
        ...

    def list_projects(self) -> list[Project]: ...

    def find_project(self, id: ProjectID) -> Project | None: ...

    def list_sessions(self, project: ProjectID | None = None) -> list[SessionInfo]: ...

    def query_sessions(self, query: SessionQuery) -> list[SessionInfo]:
        """Return the sessions that match a query, newest first."""
        ...

    def find_session(self, id: SessionID) -> SessionInfo | None: ...

    def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        """Return the `last` messages of a session, counted back from the message `before` if it is given."""
        ...

    def list_message_ids(self, session: SessionID) -> list[MessageID]:
        """Return the ids of a session's messages, in any order."""
        ...

    def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None: ...

    def list_diff(self, session: SessionID) -> list[FileDiff]: ...

    def list_todos(self, session: SessionID) -> list[Todo]: ...

    def search(
        self,
        words: str,
        *,
        limit: int,
        project: ProjectID | None = None,
        progress: IndexProgress = lambda _done, _total: None,
    ) -> list[Hit]:
        """Return the best match of each session, as `Store.search` does. `progress` is called with how much has to be indexed first."""
        ...

    def figures(
        self, query: StatisticsQuery, *, progress: IndexProgress = lambda _done, _total: None
    ) -> Figures: ...

    def list_trash(self) -> list[TrashBundle]: ...

    def list_running(self) -> set[SessionID]:
        """Return the sessions that a living process runs."""
        ...

    def find_value(self, key: tuple[str, ...]) -> Any:
        """Return the value that is stored under a key, None if there is none."""
        ...

    def list_keys(self, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        """Return the keys of values that begin with a prefix, sorted."""
        ...

    def read_log(self, log: tuple[str, ...]) -> list[bytes]:
        """Return the lines of a log, oldest first."""
        ...

    def list_logs(self, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]: ...

    def find_opencode_database(self) -> str | None:
        """Return the path of the database of OpenCode 1.2 or later next to this store, if this store has no sessions."""
        ...

    def problems(self) -> list[Damage]:
        """Return what could not be read so far."""
        ...


def open_reader(
    url: str, *, cache: str | None = None, warn: IndexWarning = lambda _: None, must_exist: bool = False
) -> StoreReader:
    """Open the store at a URL for reading. Finish first what an older version or a crash left undone there.

    The search index of files is below the directory `cache`, or in memory without one. `warn` is called if it cannot be used.
    A Postgres server that has no store gets one by the first call; if the store `must_exist`, that call raises `StoreError`
    instead. A missing file or directory is read as an empty store.

    Raise `InvalidInputError` if the URL is not that of a store that can be read.
    """
    if url.startswith(("postgres:", "postgresql:")):
        from weft.store.postgres.migration import prepare_schema  # noqa: PLC0415  only the kind of store that is asked for
        from weft.store.postgres.reader import (  # noqa: PLC0415  only the kind of store that is asked for
            PostgresReader,
            upgrade_schema,
        )

        return PostgresReader(url, prepare=upgrade_schema if must_exist else prepare_schema)
    if url.startswith("sqlite:"):
        from weft.store.sqlite.reader import open_sqlite_reader  # noqa: PLC0415  only the kind of store that is asked for

        return open_sqlite_reader(parse_store_path(url))
    if not url.startswith("file:"):
        raise InvalidInputError(
            "store",
            f"{redact_url(url)!r} is not a store that can be read",
            hint=f"use a directory, file:<path>, sqlite:<path> or postgres://…; {ADDRESS_SOURCES}",
        )
    from weft.store.files.reader import FileReader  # noqa: PLC0415  only the kind of store that is asked for

    reader = FileReader(parse_store_path(url), cache=cache, warn=warn, writes=True)
    if not reader.is_ready():
        from weft.store.files.upgrade import prepare_tree  # noqa: PLC0415  rarely needed
        from weft.store.url import find_root_commit  # noqa: PLC0415  rarely needed

        prepare_tree(reader, find_root_commit)
    return reader


def find_opencode_database(url: str) -> str | None:
    """Return the path of OpenCode's database next to a store of files that has no sessions, or None. Other stores have none."""
    return open_reader(url).find_opencode_database() if url.startswith("file:") else None
