"""The file store: OpenCode's JSON tree as a `Store` that is safe across processes and crashes."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from weft.errors import ClosedError, NotFoundError, StoreError, UnreadableError
from weft.host.files import Disk
from weft.host.tasks import run_to_completion
from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.event import Durable, SessionDeleted, SessionUpdated
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import MessageWithParts, find_end
from weft.model.project import Project
from weft.model.search import Figures, Hit
from weft.model.session import SessionInfo, Todo, TrashBundle, make_bundle_name
from weft.model.session_query import SessionQuery, select_sessions
from weft.model.transfer import SessionExport
from weft.model.wire import encode, encode_pretty
from weft.store.contract import NO_LEASES, Key, LogExtender, RootCommit, SessionEditor
from weft.store.files.batch import Batch, WritePlan, lock_of, must_flush
from weft.store.files.chain import read_chain_lines
from weft.store.files.creation_order import CreationOrder
from weft.store.files.layout import SUFFIX, session_lock, value_lock
from weft.store.files.lock import (
    Lease,
    SessionLocks,
    check_lease,
    drop_abandoned,
    find_holder,
    list_abandoned,
)
from weft.store.files.log import LogFiles
from weft.store.files.message_cache import MessageCache
from weft.store.files.messages import MessageReader
from weft.store.files.tree import Tree, list_owners
from weft.store.files.tree_watch import WatchedTree
from weft.store.files.upgrade import prepare_tree
from weft.store.files.writer import BatchWriter
from weft.store.lease import LeaseToken

if TYPE_CHECKING:  # for types alone: few runs count or verify anything
    from weft.store.chain import ChainLines
    from weft.store.files.search import SessionIndex
    from weft.store.files.trash import Trash
    from weft.store.statistics import StatisticsQuery

T = TypeVar("T")

CACHE_BYTES = 32 << 20
THREADS = 64
MANY_EVENTS = 1_000  # of an import or a fork, whose encoded documents take tens of megabytes

OTHER_PLACE_HINT = "point --store at a directory that you may write to"
ERROR_HINTS = {
    errno.ENOSPC: "free some space and try again; nothing needs a restart",
    errno.EDQUOT: "free some space and try again; nothing needs a restart",
    errno.EROFS: "reading still works; to write, mount it writable or point --store at another place",
    errno.EACCES: "reading may still work; to write, change the permissions or point --store at another place",
    errno.ENOLCK: "this file system has no locks; point --store at a local one",
}


class FileStore:
    """Runs blocking file operations in threads. Create one with `open_file_store`, which also recovers from crashes."""

    event_log = None
    change_log = None

    def __init__(
        self,
        root: str,
        *,
        disk: Disk | None = None,
        damaged: Callable[[Damage], None] | None = None,
        cache: str | None = None,
    ) -> None:
        """`damaged` is called once for each document that turns out to be unreadable. `cache` is where the search index is."""
        self._damaged = damaged
        self._disk = disk or Disk()
        self._tree = WatchedTree(root, cache_bytes=CACHE_BYTES)
        self._messages = MessageReader(self._tree)
        self._cache = MessageCache(self._messages, limit=CACHE_BYTES)
        self._locks = SessionLocks(self._tree.layout, self._disk, self._cache.note_mark)
        self._writer = BatchWriter(self._tree.layout, self._disk, self._locks)
        self._order = CreationOrder(self._tree, writes=True)
        self._index_cache = cache
        self._logs = LogFiles(self._tree.layout, self._disk)
        self._not_upgraded: list[Damage] = []
        self._closed = False
        # The store has its own threads: waiting for another process's lock must not block name lookups or file reads in the
        # default pool. Threads start on demand and end with the store.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="weft-store")

    async def prepare(self, root_commit: RootCommit) -> None:
        """Upgrade an older tree, and finish writes that a crash interrupted."""
        self._not_upgraded = await self._in_thread(lambda: prepare_tree(self._tree, root_commit, self._disk))

    def close(self) -> None:
        """Accept no more work: later calls raise `ClosedError`. Work that is already running completes."""
        self._closed = True
        self._tree.close()
        self._threads.shutdown(wait=False)

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        await self._in_thread(lambda: self._apply(events, leases))

    async def edit(
        self,
        session: SessionID,
        editor: SessionEditor,
        *events: Durable,
        leases: Sequence[LeaseToken] = NO_LEASES,
    ) -> SessionInfo:
        return await self._in_thread(lambda: self._edit(session, editor, events, leases))

    async def list_projects(self) -> list[Project]:
        return await self._in_thread(self._tree.list_projects)

    async def find_project(self, id: ProjectID) -> Project | None:
        return await self._in_thread(lambda: self._tree.find_project(id))

    async def list_sessions(self, project: ProjectID | None = None) -> list[SessionInfo]:
        return await self._in_thread(lambda: self._list_sessions(project))

    async def query_sessions(self, query: SessionQuery) -> list[SessionInfo]:
        return await self._in_thread(lambda: self._query_sessions(query))

    async def get_session(self, id: SessionID) -> SessionInfo:
        return await self._in_thread(lambda: self._get_session(id))

    async def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        return await self._read_whole(session, lambda mark: self._list_messages(session, mark, last, before))

    async def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        return await self._read_whole(session, lambda _: self._messages.find_message(session, id))

    async def owners(self, messages: Sequence[MessageID]) -> dict[MessageID, SessionID]:
        """Return the session of each of these messages that is already stored."""
        return await self._in_thread(lambda: list_owners(self._tree, messages))

    async def list_diff(self, session: SessionID) -> list[FileDiff]:
        return await self._in_thread(lambda: self._tree.list_diff(session))

    async def list_todos(self, session: SessionID) -> list[Todo]:
        return await self._in_thread(lambda: self._tree.list_todos(session))

    async def search(self, words: str, *, limit: int, project: ProjectID | None = None) -> list[Hit]:
        return await self._in_thread(lambda: self._index.search(words, limit=limit, project=project))

    async def figures(self, query: StatisticsQuery) -> Figures:
        return await self._in_thread(lambda: self._index.figures(query))

    async def update_index(self, changed: Mapping[SessionID, Collection[MessageID]]) -> None:
        await self._in_thread(lambda: self._index.update(changed))

    async def discard(self, sessions: Sequence[SessionID], *, at: int) -> TrashBundle:
        return await self._in_thread(lambda: self._discard(sessions, at))

    async def restore(self, bundle: str) -> TrashBundle:
        return await self._in_thread(lambda: self._take_out(bundle, self._trash.plan_restore))

    async def purge(self, bundle: str) -> None:
        await self._in_thread(lambda: self._take_out(bundle, self._trash.plan_purge))

    async def read_bundle(self, bundle: str) -> list[SessionExport]:
        return await self._in_thread(lambda: self._trash.read(bundle))

    async def list_trash(self) -> list[TrashBundle]:
        return await self._in_thread(self._trash.list_bundles)

    async def put_value(self, key: Key, value: Any) -> None:
        await self._in_thread(lambda: self._put_value(key, value))

    async def find_value(self, key: Key) -> Any:
        return await self._in_thread(lambda: self._tree.find_value(key))

    async def update_value(
        self, key: Key, change: Callable[[Any], Any], *, leases: Sequence[LeaseToken] = NO_LEASES
    ) -> Any:
        return await self._in_thread(lambda: self._update_value(key, change, leases))

    async def list_keys(self, prefix: Key = ()) -> list[Key]:
        return await self._in_thread(lambda: self._tree.list_keys(prefix))

    async def append_log(self, log: Key, extend: LogExtender) -> None:
        await self._in_thread(lambda: self._logs.append(log, extend))

    async def read_log(self, log: Key) -> list[bytes]:
        return await self._in_thread(lambda: self._logs.read(log))

    async def list_logs(self, prefix: Key = ()) -> list[Key]:
        return await self._in_thread(lambda: self._logs.list_keys(prefix))

    async def trim_log(self, log: Key, *, keep: int) -> int:
        return await self._in_thread(lambda: self._logs.trim(log, keep))

    @asynccontextmanager
    async def lease(self, session: SessionID, owner: str) -> AsyncIterator[LeaseToken]:
        held: list[Lease] = []
        try:
            # Append inside the thread: if we are cancelled meanwhile, we still know which lease to release.
            await run_to_completion(
                self._in_thread(lambda: held.append(Lease(self._tree.layout, self._disk, session, owner)))
            )
            yield held[0].token
        finally:
            for each in held:
                await run_to_completion(self._in_thread(partial(self._leave, each)))

    async def find_holder(self, session: SessionID) -> str | None:
        return await self._in_thread(lambda: find_holder(self._tree.layout, session))

    async def list_abandoned(self) -> list[SessionID]:
        return await self._in_thread(self._list_abandoned)

    async def read_chain(self, session: SessionID) -> ChainLines:
        return await self._read_whole(session, lambda _: read_chain_lines(self._tree.layout, session))

    async def damage(self) -> list[Damage]:
        from weft.store.files.inventory import find_damage  # noqa: PLC0415  few commands need it

        found = await self._in_thread(lambda: find_damage(self._tree))
        by_place = {each.where: each for each in (*self._not_upgraded, *found)}
        return list(by_place.values())

    # --- blocking parts, which run in a thread ---

    @cached_property
    def _index(self) -> SessionIndex:
        from weft.store.files.search import SessionIndex  # noqa: PLC0415  opening a store does not need it

        return SessionIndex(Tree(self._tree.layout.root), self._index_cache)

    @cached_property
    def _trash(self) -> Trash:
        from weft.store.files.trash import Trash  # noqa: PLC0415  few commands need it

        return Trash(self._tree)

    def _apply(self, events: tuple[Durable, ...], leases: Sequence[LeaseToken]) -> None:
        with self._locks.writing(lock_of(event) for event in events) as held:
            self._check_leases(leases)
            with self._cache.writing(events):
                self._write(events, held, flush=any(must_flush(event) for event in events))
            removed = [event.info.id for event in events if isinstance(event, SessionDeleted)]
            self._forget_removed(removed)
        if removed or len(events) >= MANY_EVENTS:
            _release_free_memory()

    def _discard(self, sessions: Sequence[SessionID], at: int) -> TrashBundle:
        with self._locks.writing(session_lock(id) for id in sessions) as held:
            found = tuple(self._get_session(id) for id in sessions)
            trashed = TrashBundle(id=make_bundle_name(at, sessions[0]), time=at, sessions=found)
            self._carry_out(self._trash.plan_discard(trashed), held, flush=True)
            self._forget_removed(sessions)
        for id in sessions:
            self._cache.forget(id)
        _release_free_memory()
        return trashed

    def _take_out(self, bundle: str, plan: Callable[[TrashBundle], WritePlan]) -> TrashBundle:
        """Carry out a plan for a bundle. Raise `NotFoundError` if it is gone once the locks are held."""
        sessions = self._trash.get(bundle).sessions
        with self._locks.writing(session_lock(session.id) for session in sessions) as held:
            trashed = self._trash.get(bundle)
            self._carry_out(plan(trashed), held, flush=True)
            # A session that was restored, or created again with the same id, keeps its lock.
            self._forget_removed(session.id for session in sessions if self._tree.is_gone(session.id))
        for session in sessions:
            self._cache.forget(session.id)
        return trashed

    def _forget_removed(self, sessions: Iterable[SessionID]) -> None:
        """Forget the chains of deleted sessions, and remove their lock files.

        The caller holds the locks, and has written everything. Whoever waits for one of them finds its file gone, and makes a new one.
        """
        for id in sessions:
            self._writer.forget_chain(id)
            with suppress(OSError):
                self._disk.remove(self._tree.layout.lock(session_lock(id)))

    def _leave(self, lease: Lease) -> None:
        """Release a lease. The next holder may be another process, which cannot know what is not flushed yet.

        If the disk refuses to flush it, the lease stays as if we had died: then the next holder flushes everything.
        """
        lock = session_lock(lease.token.session)
        if self._writer.has_unflushed(lock):
            try:
                with self._locks.writing([lock]) as held:
                    self._writer.flush_locks(held)
            except OSError:
                lease.abandon()
                return
        lease.leave()

    def _check_leases(self, leases: Sequence[LeaseToken]) -> None:
        for token in leases:
            check_lease(self._tree.layout, token)

    def _edit(
        self,
        id: SessionID,
        editor: SessionEditor,
        events: tuple[Durable, ...],
        leases: Sequence[LeaseToken],
    ) -> SessionInfo:
        with self._locks.writing([session_lock(id)]) as held:
            self._check_leases(leases)
            stored = self._get_session(id)
            edited = editor(stored)
            # A session that does not change is not written: with one document less, the write may need no write-ahead note.
            changed = [*events, SessionUpdated(info=edited)] if edited != stored else [*events]
            if changed:
                with self._cache.writing(events):
                    self._write(changed, held, flush=True)
        return edited

    def _write(
        self, events: tuple[Durable, ...] | list[Durable], held: tuple[str, ...], *, flush: bool
    ) -> None:
        batch = Batch(self._tree, self._messages)
        batch.feed(events)
        self._carry_out(batch.plan(), held, flush=flush)

    def _carry_out(self, plan: WritePlan, held: tuple[str, ...], *, flush: bool) -> None:
        """Write a plan, and drop from the cache what it removes, because nobody will read that again."""
        self._writer.write(plan, held, flush=flush)
        removed = (*plan.clears, *plan.moves, *(path for path in plan.drops if path.endswith(SUFFIX)))
        if removed:
            self._tree.documents.forget(removed)

    def _put_value(self, key: Key, value: Any) -> None:
        path = self._tree.layout.value_path(key)  # checks the key before a lock file is created for it
        with self._locks.writing([value_lock(key)]) as held:
            self._write_value(path, value, held)

    def _update_value(self, key: Key, change: Callable[[Any], Any], leases: Sequence[LeaseToken]) -> Any:
        path = self._tree.layout.value_path(key)
        with self._locks.writing([value_lock(key)]) as held:
            self._check_leases(leases)
            value = self._tree.find_value(key)
            is_damaged, before = value is None and os.path.lexists(path), encode(value)
            new_value = change(value)
            if encode(new_value) != before:
                self._write_value(path, new_value, held, is_damaged=is_damaged)
        return new_value

    def _write_value(self, path: str, value: Any, held: tuple[str, ...], *, is_damaged: bool = False) -> None:
        """Replace or delete a value. A document that could not be read is moved aside, because somebody may miss it."""
        puts = {} if value is None else {path: encode_pretty(value)}
        moves = {path: f"{path}.{os.urandom(4).hex()}.damaged"} if is_damaged else {}
        drops = [path] if value is None and not is_damaged else []
        plan = WritePlan(clears=[], puts=puts, drops=drops, extension=None, tidy=[], moves=moves)
        self._writer.write(plan, held, flush=True)

    def _list_messages(
        self, session: SessionID, mark: bytes | None, last: int | None, before: MessageID | None
    ) -> list[MessageWithParts]:
        if last is not None and not self._cache.has(session):
            # Reading the last few messages directly is faster than filling the cache.
            return self._messages.list_messages(session, last=last, before=before)
        found = self._cache.list_messages(session, mark)
        found = found[: find_end(before, (message.info.id for message in found))]
        return found if last is None else found[max(0, len(found) - last) :]

    def _query_sessions(self, query: SessionQuery) -> list[SessionInfo]:
        self._finish_unfinished()
        page = self._tree.find_page(query)
        if page is None:
            page = self._order.query(query)
        if page is not None:
            return page
        return select_sessions(
            self._tree.collect_sessions(query.project_id, prefix=query.id_prefix or ""), query
        )

    def _list_sessions(self, project: ProjectID | None) -> list[SessionInfo]:
        self._finish_unfinished()
        return self._tree.list_sessions(project)

    def _get_session(self, id: SessionID) -> SessionInfo:
        found = self._tree.find_session(id)
        if found is None:
            raise (UnreadableError if self._tree.projects_of(id) else NotFoundError)("session", id)
        return found

    def _list_abandoned(self) -> list[SessionID]:
        """List sessions whose holder died, and remove the leases of sessions that no longer exist."""
        abandoned: list[SessionID] = []
        for session in list_abandoned(self._tree.layout):
            if not self._tree.is_gone(session):
                abandoned.append(session)
                continue
            with suppress(OSError):  # on a read-only disk the lease stays, which does no harm
                drop_abandoned(self._tree.layout, self._disk, session)
        return abandoned

    def _finish_unfinished(self) -> None:
        if self._locks.has_unfinished():
            with suppress(OSError):
                self._locks.recover()

    async def _read_whole(self, session: SessionID, read: Callable[[bytes | None], T]) -> T:
        return await self._in_thread(lambda: self._locks.reading(session_lock(session), read))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and report damage it found. Turn an `OSError` into a `StoreError`."""
        if self._closed:
            raise ClosedError("the store is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as error:
            reason = error.strerror or str(error)
            place = error.filename or self._tree.layout.root
            raise StoreError(
                f"the store cannot use {place}: {reason}",
                hint=ERROR_HINTS.get(error.errno or 0, OTHER_PLACE_HINT),
            ) from error
        finally:
            if self._damaged is not None:
                for damage in self._tree.documents.take_new_problems():
                    self._damaged(damage)


def _release_free_memory() -> None:
    from weft.host.machine import release_free_memory  # noqa: PLC0415  few writes are that large

    release_free_memory()


@asynccontextmanager
async def open_file_store(
    root: str,
    root_commit: RootCommit,
    *,
    damaged: Callable[[Damage], None] | None = None,
    cache: str | None = None,
) -> AsyncIterator[FileStore]:
    store = FileStore(root, damaged=damaged, cache=cache)
    try:
        await store.prepare(root_commit)
        yield store
    finally:
        store.close()
