"""The file store: OpenCode's JSON tree as a `Store`, safe among processes and across crashes."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from weft.errors import NotFoundError, StoreError
from weft.host.files import Disk
from weft.model.diff import FileDiff
from weft.model.event import Durable, SessionDeleted, SessionUpdated
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import MessageWithParts
from weft.model.project import Project
from weft.model.session import Session
from weft.model.todo import Todo
from weft.model.wire import encode_pretty
from weft.store.batch import Batch, Plan, is_promise, lock_of
from weft.store.carry_over import RootCommit
from weft.store.checkup import find_damage
from weft.store.contract import Key, SessionEditor
from weft.store.damage import Damage
from weft.store.guard import Guard
from weft.store.layout import kept_lock, session_lock
from weft.store.messages import Messages
from weft.store.tree import Tree
from weft.store.upkeep import keep_up
from weft.store.writer import Writer

T = TypeVar("T")

REMEMBERED = 32 << 20

WAYS_OUT = {
    errno.ENOSPC: "free some space and try again; nothing needs a restart",
    errno.EDQUOT: "free some space and try again; nothing needs a restart",
    errno.EROFS: "reading still works; to write, mount it writable or point --store at another place",
    errno.EACCES: "reading may still work; to write, change the permissions or point --store at another place",
    errno.ENOLCK: "this file system has no locks; point --store at a local one",
}


class FileStore:
    """Open one with `open_file_store`, so that what a crash left behind is seen to."""

    def __init__(self, root: str, *, disk: Disk | None = None) -> None:
        self._disk = disk or Disk()
        self._tree = Tree(root, remembered=REMEMBERED)
        self._messages = Messages(self._tree)
        self._guard = Guard(self._tree.layout, self._disk)
        self._writer = Writer(self._tree.layout, self._disk, self._guard)
        self._not_upgraded: list[Damage] = []

    async def prepare(self, root_commit: RootCommit) -> None:
        """Bring an older tree up to date, and finish what a crash cut short."""
        await self._in_thread(lambda: self._prepare(root_commit))

    async def apply(self, *events: Durable) -> None:
        await self._in_thread(lambda: self._apply(events))

    async def edit(self, session: SessionID, editor: SessionEditor) -> Session:
        return await self._in_thread(lambda: self._edit(session, editor))

    async def list_projects(self) -> list[Project]:
        return await self._in_thread(self._tree.list_projects)

    async def find_project(self, id: ProjectID) -> Project | None:
        return await self._in_thread(lambda: self._tree.find_project(id))

    async def list_sessions(self, project: ProjectID | None = None) -> list[Session]:
        return await self._in_thread(lambda: self._list_sessions(project))

    async def get_session(self, id: SessionID) -> Session:
        return await self._in_thread(lambda: self._get_session(id))

    async def list_messages(self, session: SessionID, *, last: int | None = None) -> list[MessageWithParts]:
        return await self._read_whole(session, lambda: self._messages.list_messages(session, last=last))

    async def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        return await self._read_whole(session, lambda: self._messages.find_message(session, id))

    async def list_diff(self, session: SessionID) -> list[FileDiff]:
        return await self._in_thread(lambda: self._tree.list_diff(session))

    async def list_todos(self, session: SessionID) -> list[Todo]:
        return await self._in_thread(lambda: self._tree.list_todos(session))

    async def keep(self, key: Key, value: Any) -> None:
        await self._in_thread(lambda: self._keep(key, value))

    async def kept(self, key: Key) -> Any:
        return await self._in_thread(lambda: self._tree.kept(key))

    async def damage(self) -> list[Damage]:
        found = await self._in_thread(lambda: find_damage(self._tree))
        by_place = {each.where: each for each in (*self._not_upgraded, *found)}
        return list(by_place.values())

    # --- in a thread ---

    def _prepare(self, root_commit: RootCommit) -> None:
        self._not_upgraded = keep_up(self._tree, root_commit, self._disk)

    def _apply(self, events: tuple[Durable, ...]) -> None:
        with self._guard.writing(lock_of(event) for event in events) as held:
            self._write(events, held, flush=any(is_promise(event) for event in events))
            for event in events:
                if isinstance(event, SessionDeleted):  # last of all: from here on nobody is kept out
                    with suppress(OSError):
                        self._disk.remove(self._tree.layout.lock(session_lock(event.info.id)))

    def _edit(self, id: SessionID, editor: SessionEditor) -> Session:
        with self._guard.writing([session_lock(id)]) as held:
            edited = editor(self._get_session(id))
            self._write([SessionUpdated(info=edited)], held, flush=True)
        return edited

    def _write(
        self, events: tuple[Durable, ...] | list[Durable], held: tuple[str, ...], *, flush: bool
    ) -> None:
        batch = Batch(self._tree, self._messages)
        for event in events:
            batch.feed(event)
        self._writer.write(batch.plan(), held, flush=flush)

    def _keep(self, key: Key, value: Any) -> None:
        path = self._tree.layout.kept(key)
        puts = {} if value is None else {path: encode_pretty(value)}
        drops = [path] if value is None else []
        plan = Plan(clears=[], puts=puts, drops=drops, extension=None, tidy=[])
        with self._guard.writing([kept_lock(key)]) as held:
            self._writer.write(plan, held, flush=True)

    def _list_sessions(self, project: ProjectID | None) -> list[Session]:
        self._finish_leftovers()
        return self._tree.list_sessions(project)

    def _get_session(self, id: SessionID) -> Session:
        found = self._tree.find_session(id)
        if found is None:
            raise NotFoundError("session", id)
        return found

    def _finish_leftovers(self) -> None:
        if self._guard.has_leftovers():
            with suppress(OSError):
                self._guard.recover()

    async def _read_whole(self, session: SessionID, read: Callable[[], T]) -> T:
        return await self._in_thread(lambda: self._guard.reading(session_lock(session), read))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            reason = error.strerror or str(error)
            place = error.filename or self._tree.layout.root
            raise StoreError(
                f"the store cannot use {place}: {reason}", hint=WAYS_OUT.get(error.errno or 0, "")
            ) from error


@asynccontextmanager
async def open_file_store(root: str, root_commit: RootCommit) -> AsyncIterator[FileStore]:
    store = FileStore(root)
    await store.prepare(root_commit)
    yield store
