"""Read a Postgres store without an event loop: the `StoreReader` of Postgres.

The driver needs an event loop, so the reader has one of its own, in a thread of its own. It works in any thread, also in one
whose event loop is running.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from weft.errors import StoreError
from weft.host.clock import SystemClock
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.store.postgres.address import PostgresAddress, parse_address
from weft.store.postgres.connection import Database, open_database
from weft.store.postgres.documents import PostgresDocuments
from weft.store.postgres.migration import find_version, prepare_schema
from weft.store.postgres.search import SearchIndex, ignore_progress
from weft.store.rows import to_ascii

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.host.files import Stamp
    from weft.model.damage import Damage
    from weft.model.diff import FileDiff
    from weft.model.message import MessageWithParts
    from weft.model.project import Project
    from weft.model.search import Figures, Hit
    from weft.model.session import SessionInfo, Todo, TrashBundle
    from weft.model.session_query import SessionQuery
    from weft.store.search import IndexProgress
    from weft.store.statistics import StatisticsQuery

T = TypeVar("T")
PrepareSchema = Callable[["Database"], Awaitable[None]]

JOIN_SECONDS = 10.0

SELECT_STAMPS = """SELECT project, id, revision FROM {schema}.session
WHERE ($1::text IS NULL OR project = $1) AND ($2::text IS NULL OR id = $2) ORDER BY project, id"""


class DatabaseThread:
    """An event loop in a daemon thread, with the documents of one store. They are opened, after `prepare`, when first needed."""

    def __init__(self, address: PostgresAddress, prepare: PrepareSchema) -> None:
        self._address = address
        self._prepare = prepare
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._opened: asyncio.Task[PostgresDocuments] | None = None
        self._stack = AsyncExitStack()

    def run(self, work: Callable[[PostgresDocuments], Awaitable[T]]) -> T:
        """Return the result of `work`, which runs in the thread."""
        running = asyncio.run_coroutine_threadsafe(self._run(work), self._start())
        try:
            return running.result()
        except BaseException:
            running.cancel()
            raise

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="weft-postgres-reader", daemon=True
                )
                self._thread.start()
            return self._loop

    async def _run(self, work: Callable[[PostgresDocuments], Awaitable[T]]) -> T:
        if self._opened is None or (self._opened.done() and self._opened.exception() is not None):
            self._opened = asyncio.get_running_loop().create_task(self._open())
        return await work(await asyncio.shield(self._opened))

    async def _open(self) -> PostgresDocuments:
        async with AsyncExitStack() as stack:
            database = await stack.enter_async_context(open_database(self._address, SystemClock()))
            await self._prepare(database)
            self._stack = stack.pop_all()
        return PostgresDocuments(database)

    def close(self) -> None:
        """Close the connections, and end the thread. The next call opens them again."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        closing = asyncio.run_coroutine_threadsafe(self._close(), loop)
        closing.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
        if thread is not threading.current_thread():  # a garbage collector may run this in any thread
            thread.join(JOIN_SECONDS)
            if not thread.is_alive():
                loop.close()

    async def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await asyncio.wait([opened])
            await self._stack.aclose()


async def require_schema(database: Database) -> None:
    """Raise `StoreError` if there is no store in the database."""
    if await find_version(database) is None:
        raise StoreError(
            f"there is no store at {database.address.place} yet", hint="weft storage init creates it"
        )


async def upgrade_schema(database: Database) -> None:
    """Upgrade an older schema. Raise `StoreError` if there is no store in the database."""
    await require_schema(database)
    await prepare_schema(database)


async def _ignore_schema(_: Database) -> None:
    """Look at a database whether or not it has a store."""


def has_store(url: str) -> bool:
    """Return True if there is a store in the database. Raise `StoreError` if something else uses the schema."""

    async def is_there(documents: PostgresDocuments) -> bool:
        return await find_version(documents.database) is not None

    thread = DatabaseThread(parse_address(url), _ignore_schema)
    try:
        return thread.run(is_there)
    finally:
        thread.close()


class PostgresReader:
    """Reads one store. The first call prepares its schema: unless told otherwise, it creates the schema or upgrades an older one."""

    def __init__(self, url: str, *, prepare: PrepareSchema = prepare_schema) -> None:
        self._address = parse_address(url)
        self._thread = DatabaseThread(self._address, prepare)
        # Nobody has to close a reader: its connections end with it, or with the process.
        self._finalizer = weakref.finalize(self, self._thread.close)

    @property
    def address(self) -> str:
        return self._address.place

    @property
    def schema(self) -> str:
        return self._address.schema

    def run(self, work: Callable[[PostgresDocuments], Coroutine[Any, Any, T]]) -> T:
        """Return the result of `work`, for what only this kind of store has."""
        return self._thread.run(work)

    def close(self) -> None:
        self._thread.close()

    def list_projects(self) -> list[Project]:
        return self.run(lambda documents: documents.list_projects())

    def find_project(self, id: ProjectID) -> Project | None:
        return self.run(lambda documents: documents.find_project(id))

    def list_sessions(self, project: ProjectID | None = None) -> list[SessionInfo]:
        return self.run(lambda documents: documents.list_sessions(project))

    def query_sessions(self, query: SessionQuery) -> list[SessionInfo]:
        return self.run(lambda documents: documents.query_sessions(query))

    def find_session(self, id: SessionID) -> SessionInfo | None:
        return self.run(lambda documents: documents.find_session(id))

    def find_session_in(self, project: ProjectID, id: SessionID) -> SessionInfo | None:
        session = self.find_session(id)
        return session if session is not None and session.project_id == project else None

    def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        return self.run(lambda documents: documents.list_messages(session, last=last, before=before))

    def list_message_ids(self, session: SessionID) -> list[MessageID]:
        return self.run(lambda documents: documents.list_message_ids(session))

    def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        return self.run(lambda documents: documents.find_message(session, id))

    def list_diff(self, session: SessionID) -> list[FileDiff]:
        return self.run(lambda documents: documents.list_diff(session))

    def list_todos(self, session: SessionID) -> list[Todo]:
        return self.run(lambda documents: documents.list_todos(session))

    def list_trash(self) -> list[TrashBundle]:
        return self.run(lambda documents: documents.list_trash())

    def list_running(self) -> set[SessionID]:
        return self.run(lambda documents: documents.list_running())

    def find_value(self, key: tuple[str, ...]) -> Any:
        return self.run(lambda documents: documents.find_value(key))

    def list_keys(self, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        return self.run(lambda documents: documents.list_keys(prefix))

    def read_log(self, log: tuple[str, ...]) -> list[bytes]:
        return self.run(lambda documents: documents.read_log(log))

    def list_logs(self, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        return self.run(lambda documents: documents.list_logs(prefix))

    def search(
        self,
        words: str,
        *,
        limit: int,
        project: ProjectID | None = None,
        progress: IndexProgress = ignore_progress,
    ) -> list[Hit]:
        return self.run(
            lambda documents: SearchIndex(documents).search(
                words, limit=limit, project=project, progress=progress
            )
        )

    def figures(self, query: StatisticsQuery, *, progress: IndexProgress = ignore_progress) -> Figures:
        return self.run(lambda documents: SearchIndex(documents).compute_figures(query, progress))

    def list_stamps(self, project: ProjectID | None = None) -> dict[tuple[ProjectID, SessionID], Stamp]:
        rows = self.run(
            lambda documents: documents.database.fetch(
                SELECT_STAMPS, None if project is None else to_ascii(project), None
            )
        )
        return {(ProjectID(place), SessionID(id)): (revision, 0, 0) for place, id, revision in rows}

    def find_sure_stamp(self, project: ProjectID, id: SessionID) -> Stamp | None:
        rows = self.run(
            lambda documents: documents.database.fetch(SELECT_STAMPS, to_ascii(project), to_ascii(id))
        )
        return (rows[0][2], 0, 0) if rows else None

    def find_opencode_database(self) -> str | None:
        return None

    def problems(self) -> list[Damage]:
        async def get_problems(documents: PostgresDocuments) -> list[Damage]:
            return documents.problems()

        return self.run(get_problems)
