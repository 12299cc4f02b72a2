"""The file store: OpenCode's JSON tree as a `Store`, safe among processes and across crashes."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from weft.errors import NotFoundError, StoreError, UnreadableError
from weft.host.files import Disk
from weft.host.tasks import undivided
from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.event import Durable, SessionDeleted, SessionUpdated
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import MessageWithParts, place_of
from weft.model.project import Project
from weft.model.session import Session, Todo, Trashed, bundle_name
from weft.model.wire import encode_pretty
from weft.store.contract import Key, SessionEditor
from weft.store.files.batch import Batch, Plan, is_promise, lock_of
from weft.store.files.cache import Remembered
from weft.store.files.inventory import find_damage
from weft.store.files.layout import kept_lock, session_lock
from weft.store.files.lock import Guard, Lease, drop_abandoned, find_holder, list_abandoned
from weft.store.files.messages import Messages
from weft.store.files.reader import Tree, list_owners
from weft.store.files.trash import Trash
from weft.store.files.upgrade import RootCommit, keep_up
from weft.store.files.writer import Writer

T = TypeVar("T")

REMEMBERED = 32 << 20
THREADS = 64

WAYS_OUT = {
    errno.ENOSPC: "free some space and try again; nothing needs a restart",
    errno.EDQUOT: "free some space and try again; nothing needs a restart",
    errno.EROFS: "reading still works; to write, mount it writable or point --store at another place",
    errno.EACCES: "reading may still work; to write, change the permissions or point --store at another place",
    errno.ENOLCK: "this file system has no locks; point --store at a local one",
}


class FileStore:
    """Open one with `open_file_store`, so that what a crash left behind is seen to."""

    def __init__(
        self, root: str, *, disk: Disk | None = None, damaged: Callable[[Damage], None] | None = None
    ) -> None:
        """`damaged` is told, once each, of documents that turn out to be unreadable."""
        self._damaged = damaged
        self._disk = disk or Disk()
        self._tree = Tree(root, remembered=REMEMBERED)
        self._messages = Messages(self._tree)
        self._remembered = Remembered(self._messages, room=REMEMBERED)
        self._guard = Guard(self._tree.layout, self._disk, self._remembered.marked)
        self._writer = Writer(self._tree.layout, self._disk, self._guard)
        self._trash = Trash(self._tree)
        self._not_upgraded: list[Damage] = []
        # Of its own: who waits for a lock that another process holds must not take a thread from whoever looks up names
        # or reads files. Threads come when they are needed, and go with the store.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="weft-store")

    async def prepare(self, root_commit: RootCommit) -> None:
        """Bring an older tree up to date, and finish what a crash cut short."""
        await self._in_thread(lambda: self._prepare(root_commit))

    def close(self) -> None:
        """Take no more work. What is under way comes to its end."""
        self._threads.shutdown(wait=False)

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

    async def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        return await self._read_whole(session, lambda mark: self._list_messages(session, mark, last, before))

    async def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        return await self._read_whole(session, lambda _: self._messages.find_message(session, id))

    async def owners(self, messages: Sequence[MessageID]) -> dict[MessageID, SessionID]:
        """The sessions that have these messages already."""
        return await self._in_thread(lambda: list_owners(self._tree, messages))

    async def list_diff(self, session: SessionID) -> list[FileDiff]:
        return await self._in_thread(lambda: self._tree.list_diff(session))

    async def list_todos(self, session: SessionID) -> list[Todo]:
        return await self._in_thread(lambda: self._tree.list_todos(session))

    async def discard(self, sessions: Sequence[SessionID], *, at: int) -> Trashed:
        return await self._in_thread(lambda: self._discard(sessions, at))

    async def restore(self, bundle: str) -> Trashed:
        return await self._in_thread(lambda: self._take_out(bundle, self._trash.plan_restore))

    async def purge(self, bundle: str) -> None:
        trashed = await self._in_thread(lambda: self._take_out(bundle, self._trash.plan_purge))
        await self._in_thread(lambda: self._drop_locks(session.id for session in trashed.sessions))

    async def list_trash(self) -> list[Trashed]:
        return await self._in_thread(self._trash.list_bundles)

    async def keep(self, key: Key, value: Any) -> None:
        await self._in_thread(lambda: self._keep(key, value))

    async def kept(self, key: Key) -> Any:
        return await self._in_thread(lambda: self._tree.kept(key))

    async def rework(self, key: Key, reworker: Callable[[Any], Any]) -> Any:
        return await self._in_thread(lambda: self._rework(key, reworker))

    @asynccontextmanager
    async def lease(self, session: SessionID, owner: str) -> AsyncIterator[None]:
        held: list[Lease] = []
        try:
            # Into the list at once: cancelled meanwhile, we still know what to give back.
            await undivided(self._in_thread(lambda: held.append(Lease(self._tree.layout, session, owner))))
            yield
        finally:
            for each in held:
                await undivided(self._in_thread(each.leave))

    async def find_holder(self, session: SessionID) -> str | None:
        return await self._in_thread(lambda: find_holder(self._tree.layout, session))

    async def list_abandoned(self) -> list[SessionID]:
        return await self._in_thread(self._list_abandoned)

    async def damage(self) -> list[Damage]:
        found = await self._in_thread(lambda: find_damage(self._tree))
        by_place = {each.where: each for each in (*self._not_upgraded, *found)}
        return list(by_place.values())

    # --- in a thread ---

    def _prepare(self, root_commit: RootCommit) -> None:
        self._not_upgraded = keep_up(self._tree, root_commit, self._disk)

    def _apply(self, events: tuple[Durable, ...]) -> None:
        with self._guard.writing(lock_of(event) for event in events) as held:
            with self._remembered.writing(events):
                self._write(events, held, flush=any(is_promise(event) for event in events))
            self._drop_locks(event.info.id for event in events if isinstance(event, SessionDeleted))

    def _discard(self, sessions: Sequence[SessionID], at: int) -> Trashed:
        with self._guard.writing(session_lock(id) for id in sessions) as held:
            found = tuple(self._get_session(id) for id in sessions)
            trashed = Trashed(id=bundle_name(at, sessions[0]), time=at, sessions=found)
            self._writer.write(self._trash.plan_discard(trashed), held, flush=True)
            self._drop_locks(sessions)
        for id in sessions:
            self._remembered.forget(id)
        return trashed

    def _take_out(self, bundle: str, plan: Callable[[Trashed], Plan]) -> Trashed:
        """Carry out what is planned for a bundle, unless somebody else has while we waited for the locks."""
        sessions = self._trash.get(bundle).sessions
        with self._guard.writing(session_lock(session.id) for session in sessions) as held:
            trashed = self._trash.get(bundle)
            self._writer.write(plan(trashed), held, flush=True)
        for session in sessions:
            self._remembered.forget(session.id)
        return trashed

    def _drop_locks(self, sessions: Iterable[SessionID]) -> None:
        """Last of all, of sessions that are gone: from here on nobody is kept out."""
        for id in sessions:
            with suppress(OSError):
                self._disk.remove(self._tree.layout.lock(session_lock(id)))

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
        path = self._tree.layout.kept(key)  # before a lock is made for it: a key may be no name
        with self._guard.writing([kept_lock(key)]) as held:
            self._put_kept(path, value, held)

    def _rework(self, key: Key, reworker: Callable[[Any], Any]) -> Any:
        path = self._tree.layout.kept(key)
        with self._guard.writing([kept_lock(key)]) as held:
            reworked = reworker(self._tree.kept(key))
            self._put_kept(path, reworked, held)
        return reworked

    def _put_kept(self, path: str, value: Any, held: tuple[str, ...]) -> None:
        puts = {} if value is None else {path: encode_pretty(value)}
        drops = [path] if value is None else []
        plan = Plan(clears=[], puts=puts, drops=drops, extension=None, tidy=[])
        self._writer.write(plan, held, flush=True)

    def _list_messages(
        self, session: SessionID, mark: bytes | None, last: int | None, before: MessageID | None
    ) -> list[MessageWithParts]:
        if last is not None and not self._remembered.knows(session):
            # Whoever wants a few need not wait until all are read.
            return self._messages.list_messages(session, last=last, before=before)
        found = self._remembered.list_messages(session, mark)
        found = found[: place_of(before, (message.info.id for message in found))]
        return found if last is None else found[max(0, len(found) - last) :]

    def _list_sessions(self, project: ProjectID | None) -> list[Session]:
        self._finish_leftovers()
        return self._tree.list_sessions(project)

    def _get_session(self, id: SessionID) -> Session:
        found = self._tree.find_session(id)
        if found is None:
            raise (UnreadableError if self._tree.projects_of(id) else NotFoundError)("session", id)
        return found

    def _list_abandoned(self) -> list[SessionID]:
        """The lease of a session that is gone tells nobody anything: it goes as well."""
        abandoned: list[SessionID] = []
        for session in list_abandoned(self._tree.layout):
            if not self._tree.is_gone(session):
                abandoned.append(session)
                continue
            with suppress(OSError):  # where nothing can be written it stays, and is in nobody's way
                drop_abandoned(self._tree.layout, session)
        return abandoned

    def _finish_leftovers(self) -> None:
        if self._guard.has_leftovers():
            with suppress(OSError):
                self._guard.recover()

    async def _read_whole(self, session: SessionID, read: Callable[[bytes | None], T]) -> T:
        return await self._in_thread(lambda: self._guard.reading(session_lock(session), read))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            return await self._told(work)
        except OSError as error:
            reason = error.strerror or str(error)
            place = error.filename or self._tree.layout.root
            raise StoreError(
                f"the store cannot use {place}: {reason}", hint=WAYS_OUT.get(error.errno or 0, "")
            ) from error

    async def _told(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            if self._damaged is not None:
                for damage in self._tree.documents.take_news():
                    self._damaged(damage)


@asynccontextmanager
async def open_file_store(
    root: str, root_commit: RootCommit, damaged: Callable[[Damage], None] | None = None
) -> AsyncIterator[FileStore]:
    store = FileStore(root, damaged=damaged)
    try:
        await store.prepare(root_commit)
        yield store
    finally:
        store.close()
