"""Git workspaces: each session works in a checkout of its own, and its files are stored so that any node can continue with them.

A checkout has the same path on every node. Those of a principal are below a directory of its own, with a clone of its own.
"""

import asyncio
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from weft.cluster.git_workspace_files import STATE_BYTES, Note, SessionCheckout, WorkspaceFiles, find_stored
from weft.cluster.git_workspace_pack import WORKSPACE_KEY, StoredFiles, make_key
from weft.errors import BundleError, DirectoryError, InvalidInputError, NotFoundError, WeftError
from weft.host.clock import Clock
from weft.local.assembly import CarryFiles, keep_files_in_place
from weft.model.ids import GLOBAL_PROJECT, SessionID
from weft.model.message import MessageWithParts
from weft.model.principal import Principal
from weft.model.session import SessionInfo, get_weft_data, with_weft_data
from weft.model.transfer import SessionExport
from weft.model.wire import to_plain
from weft.provider.session_tape import rename_paths
from weft.session.fork import EditFork
from weft.session.lifecycle import exists
from weft.snapshot.location import locate_snapshots
from weft.snapshot.recovery import forget_processes
from weft.store.contract import Key, Store
from weft.store.ownership import PRINCIPAL_KEY, to_owned_key
from weft.transfer.rebind import Rebind, rebind_export
from weft.worktree.clone import PRINCIPALS, SESSION_NAME, CheckoutMark, WorkspaceClone, check_repository

# What belongs to a session that does not exist stays for this long: the session may be about to be created.
KEEP_MS: Final = 10 * 60 * 1000
TIDY_MS: Final = 10 * 60 * 1000


class Workspaces:
    """The git workspaces of a node, by their names. `snapshots` is where what undo needs is kept on this machine.

    Those of a principal (`principal` is its name) have its own clones, and its own store. Those of the administrator know the
    checkouts of all: somebody has to settle and to tidy up after a principal that is gone.
    """

    def __init__(
        self,
        clones: Sequence[WorkspaceClone],
        store: Store,
        clock: Clock,
        *,
        node: str,
        snapshots: str,
        note: Note,
        principal: str = "",
    ) -> None:
        self._clones = {clone.name: clone for clone in clones}
        self._store = store
        self._clock = clock
        self._node = node
        self._snapshots = snapshots
        self._note = note
        self._principal = principal
        self._tidied = clock.now()
        # Fetching takes time. Others wait for it at these locks, because waiting in threads would use up the threads.
        self._turns = {clone.name: asyncio.Lock() for clone in clones}

    def for_principal(self, principal: Principal, store: Store) -> "Workspaces":
        """Return the workspaces that a principal may use, with its own store."""
        own = [clone for name, clone in self._clones.items() if name in principal.workspaces]
        return Workspaces(
            [clone.for_principal(principal.name) for clone in own],
            store,
            self._clock,
            node=self._node,
            snapshots=self._snapshots,
            note=self._note,
            principal=principal.name,
        )

    @property
    def roots(self) -> list[str]:
        """The directories below which the checkouts are."""
        return [clone.home for clone in self._clones.values()]

    def find_session(self, directory: str) -> SessionID | None:
        """Return the session whose checkout contains a directory, None if none does."""
        found = self._find(directory)
        return None if found is None else found.session

    def _find(self, directory: str) -> SessionCheckout | None:
        for clone in self._clones.values():
            if directory.startswith(clone.home + os.sep):
                owner, names = "", directory[len(clone.home) + 1 :].split(os.sep)
                if names[0] == PRINCIPALS and not self._principal and names[1:]:
                    owner, names = names[1], names[2:] or [""]
                    clone = clone.for_principal(owner)  # noqa: PLW2901
                if not SESSION_NAME.fullmatch(names[0]):
                    return None
                session = SessionID(names[0])
                return SessionCheckout(clone, session, to_owned_key(owner, *make_key(session)))
        return None

    async def begin(self, name: str, session: SessionID) -> str:
        """Make the checkout for a session that is about to be created, and return its directory."""
        clone = self._clones.get(name)
        if clone is None:
            known = ", ".join(sorted(self._clones)) or "none"
            hint = f"this node has {known}"
            if self._principal:
                hint = f"you may use {known} here; ask the administrator of the server for another"
            raise NotFoundError("workspace", name[:80], hint=hint)
        async with self._turns[name]:
            base = await asyncio.to_thread(clone.fetch_base)
            await asyncio.to_thread(clone.make_checkout, session, base)
        stored = StoredFiles(
            workspace=name,
            base=base,
            head=base,
            state=secrets.token_hex(STATE_BYTES),
            host=self._node,
            time=self._clock.now(),
        )
        await self._store.put_value(make_key(session), to_plain(stored))
        await asyncio.to_thread(self._mark_new, clone, session, stored)
        return clone.get_directory(session)

    def _mark_new(self, clone: WorkspaceClone, session: SessionID, stored: StoredFiles) -> None:
        tree = clone.open(session).get_tree(stored.base)
        clone.mark(session, CheckoutMark(state=stored.state, head=stored.base, tree=tree))

    async def copy(self, directory: str, session: SessionID) -> tuple[str, str]:
        """Copy the stored files of the checkout that contains `directory` for another session, which is about to be created.

        They are the files as they were after the last step. Return the directories of both checkouts.
        """
        source = self._find(directory)
        assert source is not None, "only a session in a checkout has stored files"
        key = (*source.key[:-1], session)
        try:
            stored = await self._copy_pieces(source, key)
            copied = replace(stored, state=secrets.token_hex(STATE_BYTES), host="", time=self._clock.now())
            await self._store.put_value(key, to_plain(copied))
        except WeftError:
            await self._remove_stored(key)
            raise
        return source.clone.get_directory(source.session), source.clone.get_directory(session)

    async def _copy_pieces(self, source: SessionCheckout, to: Key) -> StoredFiles:
        """Copy what is stored of a checkout, and return the list of it."""
        while True:
            stored = await find_stored(self._store, source.key)
            if stored is None:
                raise DirectoryError(
                    source.clone.get_directory(source.session), "there are no stored files of this checkout"
                )
            pieces = [await self._copy_piece(source.key, to, name) for name in sorted(stored.names)]
            if all(pieces):
                return stored
            # The session runs, and its files may have been stored anew meanwhile.
            if await find_stored(self._store, source.key) == stored:
                where = f"the files of session {source.session}"
                raise BundleError(where, "a part of them is missing in the store", hint=stored.rescue)

    async def _copy_piece(self, source: Key, to: Key, name: str) -> bool:
        piece = await self._store.find_value((*source, name))
        await self._store.put_value((*to, name), piece)
        return piece is not None

    async def discard(self, session: SessionID, directory: str) -> None:
        """Remove the checkout of a session that was not created."""
        found = self._find(directory)
        if found is not None:
            await asyncio.to_thread(found.clone.remove_checkout, session)
            await self._remove_stored(found.key)

    async def prepare(self, directory: str) -> None:
        """Make the checkout that contains a directory, unless this node has it. Its files may be old until its session runs here."""
        found = self._find(directory)
        if found is None:
            return
        clone, session, key = found
        stored = await find_stored(self._store, key)
        if stored is None:
            raise DirectoryError(directory, "there is no session with this checkout")
        if not await asyncio.to_thread(clone.has_checkout, session):
            async with self._turns[clone.name]:
                await asyncio.to_thread(clone.make_checkout, session, stored.base)
        mark = await asyncio.to_thread(clone.find_mark, session)
        if mark is None or mark.state != stored.state:
            # Another node went on, so the rest of what a dead process did here is no part of the session.
            place = locate_snapshots(self._snapshots, GLOBAL_PROJECT, clone.get_directory(session))
            await asyncio.to_thread(forget_processes, place)

    def make_carrier(self, directory: str) -> CarryFiles:
        """Return the function that makes the `CarriedFiles` of a directory, which store its files for other nodes."""
        found = self._find(directory)
        return (
            keep_files_in_place if found is None else partial(WorkspaceFiles, found, self._node, self._note)
        )

    # --- removal ---

    async def remove(self, sessions: Iterable[SessionInfo], *, trash: bool) -> None:
        """Remove the checkouts of sessions that were removed, and their stored files unless the sessions are in the trash.

        Other nodes remove their checkouts when they tidy up.
        """
        for session in sessions:
            found = self._find(session.directory)
            if found is not None and found.session == session.id:
                await self._remove_checkout(found.clone, session.id)
                if not trash:
                    await self._remove_stored(found.key)

    async def _remove_checkout(self, clone: WorkspaceClone, session: SessionID) -> None:
        ref = await asyncio.to_thread(clone.remove_checkout, session)
        if ref:
            self._note(
                f"session {session} was removed, and files that were in no other place are kept: {ref}"
            )

    async def tidy(self) -> None:
        """Remove the checkouts here, and the stored files, of sessions that were removed elsewhere, if the last time was long ago.

        The stored files of a session in the trash stay, because it can be restored. This covers the checkouts of principals, too.
        """
        assert not self._principal, "the administrator's workspaces know those of principals"
        now = self._clock.now()
        if now - self._tidied < TIDY_MS:
            return
        self._tidied = now
        for clone in await asyncio.to_thread(self._list_all_clones):
            for session in await asyncio.to_thread(clone.list_sessions):
                age = now - await asyncio.to_thread(clone.find_mark_time, session)
                if age > KEEP_MS and not await exists(self._store, session):
                    await self._remove_checkout(clone, session)
        await self._tidy_store()

    def _list_all_clones(self) -> list[WorkspaceClone]:
        own = self._clones.values()
        return [*own, *(clone.for_principal(name) for clone in own for name in clone.list_principals())]

    async def _tidy_store(self) -> None:
        trashed: set[SessionID] | None = None
        for key in await self._list_lists():
            session = SessionID(key[-1])
            if await exists(self._store, session):
                continue
            if trashed is None:
                trashed = {each.id for bundle in await self._store.list_trash() for each in bundle.sessions}
            stored = await find_stored(self._store, key)
            if session not in trashed and stored is not None and self._clock.now() - stored.time > KEEP_MS:
                await self._remove_stored(key)

    async def _list_lists(self) -> list[Key]:
        """Return the key of each stored list of files, those of principals too."""
        own = len(make_key(SessionID("")))
        owned = len(to_owned_key("principal", *make_key(SessionID(""))))
        return [
            *(key for key in await self._store.list_keys((WORKSPACE_KEY,)) if len(key) == own),
            *(
                key
                for key in await self._store.list_keys((PRINCIPAL_KEY,))
                if len(key) == owned and key[-2] == WORKSPACE_KEY
            ),
        ]

    async def _remove_stored(self, list_key: Key) -> None:
        for key in await self._store.list_keys(list_key):
            await self._store.put_value(key, None)


def rename_source(source: SessionInfo, old: str, new: str) -> SessionInfo:
    """Return a session that is about to be forked with the paths of the fork's checkout, also in what undo needs (pure)."""
    return rebind_export(SessionExport(info=source, messages=()), [Rebind(old, new)]).info


def make_fork_editor(id: SessionID, source: SessionInfo, old: str, new: str) -> EditFork:
    """Return a function that gives a fork its id, and replaces the checkout of the original by its own.

    It replaces the path in texts, too: a model that reads the path of the other checkout would work there.
    """

    def edit(
        session: SessionInfo, messages: Sequence[MessageWithParts]
    ) -> tuple[SessionInfo, Sequence[MessageWithParts]]:
        data = replace(get_weft_data(session), workspace=get_weft_data(source).workspace)
        own = replace(session, id=id, directory=new + source.directory[len(old) :])
        return with_weft_data(own, data), [rename_paths(message, {old: new}) for message in messages]

    return edit


def list_clones(named: Iterable[str], root: str, environ: Mapping[str, str]) -> list[WorkspaceClone]:
    """Return the clones for `NAME=REPOSITORY`, each below `root`. Raise `InvalidInputError` if one is not valid."""
    repositories = [check_repository(each) for each in named]
    names = [name for name, _ in repositories]
    if len(set(names)) < len(names):
        raise InvalidInputError("--workspace", "two have the same name", hint="give each its own")
    top = os.path.realpath(root)
    return [WorkspaceClone(name, url, os.path.join(top, name), environ) for name, url in repositories]
