"""The files of one session in a git workspace: taken over from the node that had them, and stored for the next one.

The content of a checkout belongs to the holder of the session's lease: the holder stores the files under its lease, and the next
one makes its own checkout equal to them before it does anything.
"""

import asyncio
import base64
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from weft.cluster.git_workspace_pack import (
    MAX_PIECES,
    StoredFiles,
    StoredPiece,
    check_piece,
    check_size,
    decode_objects,
    describe_piece,
    encode_objects,
    group_objects,
)
from weft.context.notes import is_resumption_told
from weft.errors import ConflictError
from weft.host.tasks import run_to_completion
from weft.local.step_checkout import to_scratch_files
from weft.model.diff import Patch, Tree
from weft.model.event import SessionWarned
from weft.model.ids import SessionID
from weft.model.message import MessageWithParts
from weft.model.move import SessionResumption
from weft.model.project import is_within
from weft.model.session import SessionInfo, get_weft_data, with_weft_data
from weft.model.wire import from_plain, to_plain
from weft.session.lifecycle import list_descendants
from weft.session.revert_point import get_patch_trees, list_patches
from weft.session.settle import to_settling_events
from weft.snapshot.contract import FileTrees, PackedObject
from weft.store.contract import Key, Store
from weft.undo.context import UndoContext
from weft.worktree.clone import CheckoutMark, WorkspaceClone
from weft.worktree.scratch import ScratchFile, ScratchFiles, list_names, write_files

STATE_BYTES: Final = 8
NO_TREES: Final = FileTrees(Tree(""), Tree(""))

Note = Callable[[str], None]


class SessionCheckout(NamedTuple):
    """The checkout of a session: the clone that it belongs to, and the key under which the list of its files is stored."""

    clone: WorkspaceClone
    session: SessionID
    key: Key


class UncommittedWork(Struct, frozen=True, kw_only=True):
    """What a checkout has that its commit `head` does not. `tree` are all files but ignored ones; `nested` are repositories inside of it.

    `paths` are the files that differ, `ignored` those that the session changed although git ignores them.
    """

    head: str
    tree: str
    paths: tuple[str, ...]
    ignored: tuple[str, ...]
    nested: tuple[str, ...]


async def find_stored(store: Store, key: Key) -> StoredFiles | None:
    """Return what is stored of a session's files."""
    found = await store.find_value(key)
    return None if found is None else from_plain(found, StoredFiles, where="/".join(key))


class WorkspaceFiles:
    """The files of one session, in its checkout on this node. These are the `CarriedFiles` of its directory."""

    def __init__(self, checkout: SessionCheckout, node: str, note: Note, undo_context: UndoContext) -> None:
        self._clone, self._session, self._key = checkout
        self._node = node
        self._note = note
        self._undo_context = undo_context
        self._where = f"the files of session {self._session}"
        self._stored: StoredFiles | None = None
        self._mark = CheckoutMark(state="", head="", tree="")
        self._told_nested: tuple[str, ...] = ()
        self._turn = asyncio.Lock()

    # --- taking over ---

    async def take_over(self, session: SessionInfo) -> SessionInfo:
        if session.parent_id is not None:
            return session  # its parent has the files
        if session.id != self._session:
            raise ConflictError(
                "session",
                session.id,
                f"is in the checkout of session {self._session}",
                hint=f"continue that one, or make one with a checkout of its own in the workspace {self._clone.name}",
            )
        stored = await find_stored(self._undo_context.store, self._key)
        if stored is None:
            raise ConflictError(
                "workspace",
                self._clone.name,
                f"has no files of session {self._session} in the store",
                hint="they were removed; fork the session elsewhere to go on with the conversation",
            )
        mark = await asyncio.to_thread(self._clone.find_mark, self._session)
        if mark is not None and mark.state == stored.state and self._clone.has_checkout(self._session):
            self._stored, self._mark = stored, mark
            return session
        return await run_to_completion(self._take_over(session, stored))

    async def _take_over(self, session: SessionInfo, stored: StoredFiles) -> SessionInfo:
        """Make the checkout equal to the stored files. Files in it that are not in the store are set aside first."""
        snapshots = self._undo_context.snapshots
        # Everything is read before anything is changed.
        pieces = [await self._read_piece(stored, piece) for piece in stored.pieces]
        commits = None if stored.commits is None else await self._read_piece(stored, stored.commits)
        await asyncio.to_thread(self._clone.make_checkout, self._session, stored.base)
        await asyncio.to_thread(self._add_commits, stored, commits)
        for piece in pieces:
            await snapshots.add_objects(decode_objects(piece, self._where), self._where)
        history = await self._undo_context.store.list_messages(self._session)
        family = [session, *await list_descendants(self._undo_context.store, session.id)]
        for each in family:
            await snapshots.pin(each.id, sorted(get_patch_trees(await self._list_patches(each))))
        aside, tree = await asyncio.to_thread(self._replace, stored.head, await self._read_files(stored))
        # Changes recorded here before another node continued are about files that no longer exist.
        await snapshots.take(self._session)
        await snapshots.mark_stored(self._session)
        taken = await self._put(replace(stored, state="", host=self._node), tree)
        if aside:
            self._warn(
                f"files in {self._clone.get_directory(self._session)} on {self._node} were in no other place, and are set aside: "
                f"git show --stat {aside}"
            )
        return await self._mark_resumed(session, stored.host, taken.state, history)

    def _add_commits(self, stored: StoredFiles, commits: bytes | None) -> None:
        git = self._clone.open(self._session)
        if commits is not None and git.find_commit(stored.head) is None:
            git.add_commits(commits)
        if git.find_commit(stored.head) is None:
            raise ConflictError(
                "workspace", self._clone.name, f"lacks the commit {stored.head[:12]} of session {self._session}",
                hint=stored.rescue,
            )  # fmt: skip

    async def _read_files(self, stored: StoredFiles) -> ScratchFiles:
        """Return what to write over the commit, with what is to be removed first."""
        if not stored.present:
            return {}
        snapshots = self._undo_context.snapshots
        absent = await snapshots.list_files(Tree(stored.absent))
        present = await snapshots.list_files(Tree(stored.present))
        contents = await snapshots.read_contents({entry.oid for entry in present.values()})
        return to_scratch_files({**dict.fromkeys(absent), **present}, contents)

    def _replace(self, head: str, files: ScratchFiles) -> tuple[str, str]:
        """Replace all files but ignored ones. Return the ref of what was set aside ("" if nothing was), and the tree that there is now."""
        git, aside = self._clone.open(self._session), ""
        ignored = [path for path in git.list_ignored() if self._is_in_the_way(path, files)]
        if ignored or not self._clone.is_as_marked(self._session):
            aside = self._clone.set_aside(self._session, ignored)
        git.restore_work(head)
        write_files(git.top, files)
        return aside, git.examine(head)[0]

    def _is_in_the_way(self, ignored: str, files: ScratchFiles) -> bool:
        """Return True if a file that git ignores here would be replaced by another content."""
        prefix = os.fsencode(ignored)
        top = os.fsencode(self._clone.get_directory(self._session))
        return any(
            file is not None and _differs(os.path.join(top, path), file)
            for path, file in files.items()
            if path == prefix or path.startswith(prefix + b"/")
        )

    async def _mark_resumed(
        self, session: SessionInfo, host: str, state: str, history: Sequence[MessageWithParts]
    ) -> SessionInfo:
        """Note in the session that another node goes on, for its model."""
        if not history or not host:
            return (
                session  # there is nothing to tell: a fork goes on with the files that its history speaks of
            )
        before = get_weft_data(session).resumed
        untold = before is not None and before.interrupted and not is_resumption_told(before, history)
        resumed = SessionResumption(
            id=state,
            host=host,
            time=self._undo_context.clock.now(),
            interrupted=untold or bool(to_settling_events(history)),
        )
        return await self._undo_context.journal.edit(
            session.id, lambda it: with_weft_data(it, replace(get_weft_data(it), resumed=resumed))
        )

    # --- storing ---

    async def store(self, session: SessionInfo, history: Sequence[MessageWithParts]) -> None:
        # A child stores them under the lease of its parent, in whose checkout it works.
        del session
        if self._stored is not None and self._undo_context.journal.holds(self._session):
            await run_to_completion(self._store_in_turn(history))

    async def _store_in_turn(self, history: Sequence[MessageWithParts]) -> None:
        async with self._turn:  # several children may end a step at once
            if self._stored is not None:
                await self._store(self._stored, history)

    async def _store(self, before: StoredFiles, history: Sequence[MessageWithParts]) -> None:
        snapshots = self._undo_context.snapshots
        info = await self._undo_context.store.get_session(self._session)
        patches = [*list_patches(history), *get_weft_data(info).undo]
        work = await asyncio.to_thread(self._read_work, patches)
        if work.nested and work.nested != self._told_nested:
            self._told_nested = work.nested
            self._warn(f"repositories inside of the checkout stay on {self._node}: {list_names(work.nested)}")
        trees = await self._pack(before, work)
        changed = (work.head, *trees) != (before.head, before.present, before.absent)
        kept, wanted = before.pieces, [*filter(None, trees), *sorted(get_patch_trees(patches))]
        if len(kept) >= MAX_PIECES:
            kept, wanted = (), [*wanted, *await self._list_family_trees(info)]
        new = replace(before, head=work.head, present=trees.present, absent=trees.absent, pieces=kept)
        objects: list[PackedObject] = []
        await snapshots.read_objects(wanted, objects.append, known=new.known)
        if not changed and not objects:
            return
        contents = {}
        for group in group_objects(objects):
            raw = await asyncio.to_thread(encode_objects, group)
            piece = describe_piece(secrets.token_hex(STATE_BYTES), raw, group)
            contents[piece.name], new = raw, replace(new, pieces=(*new.pieces, piece))
        if work.head != before.head:
            new, raw = await asyncio.to_thread(self._pack_commits, new)
            if new.commits is not None:
                contents[new.commits.name] = raw
        check_size(new.workspace, new.size)
        for name, raw in contents.items():
            await self._put_piece(name, {"data": base64.b64encode(raw).decode()})
        await self._put(new, work.tree)
        for name in await self._list_unused(before, new):
            await self._put_piece(name, None)

    def _read_work(self, patches: Iterable[Patch]) -> UncommittedWork:
        git = self._clone.open(self._session)
        head = git.find_commit() if self._clone.has_checkout(self._session) else None
        if head is None:
            raise ConflictError(
                "workspace", self._clone.name, "cannot be stored: its checkout has no commit, or no .git",
                hint=f"check out {self._stored.base[:12] if self._stored else 'one'} in {git.top}",
            )  # fmt: skip
        # Checked before git reads them.
        check_size(self._clone.name, _measure(git.top, git.list_changed()))
        tree, changes = git.examine(head)
        ignored = git.list_ignored()
        own = {os.path.relpath(file, git.top) for patch in patches for file in patch.files}
        return UncommittedWork(
            head=head,
            tree=tree,
            paths=tuple(sorted(change.path for change in changes if not change.is_submodule)),
            ignored=tuple(sorted(path for path in own if _is_below_any(path, ignored))),
            nested=tuple(sorted(change.path for change in changes if change.is_submodule)),
        )

    async def _pack(self, before: StoredFiles, work: UncommittedWork) -> FileTrees:
        """Return the uncommitted work as trees."""
        if (work.head, work.tree) == (self._mark.head, self._mark.tree) and not work.ignored:
            return FileTrees(Tree(before.present), Tree(before.absent))
        paths = [os.fsencode(path) for path in (*work.paths, *work.ignored)]
        return await self._undo_context.snapshots.pack_files(paths) if paths else NO_TREES

    def _pack_commits(self, new: StoredFiles) -> tuple[StoredFiles, bytes]:
        if new.head == new.base:
            return replace(new, commits=None), b""
        raw = self._clone.open(self._session).pack_commits(new.head, new.base)
        return replace(new, commits=describe_piece(secrets.token_hex(STATE_BYTES), raw)), raw

    async def _list_family_trees(self, session: SessionInfo) -> list[Tree]:
        family = [session, *await list_descendants(self._undo_context.store, session.id)]
        return sorted({tree for each in family for tree in get_patch_trees(await self._list_patches(each))})

    async def _list_patches(self, session: SessionInfo) -> list[Patch]:
        messages = await self._undo_context.store.list_messages(session.id)
        return [*list_patches(messages), *get_weft_data(session).undo]

    async def _list_unused(self, before: StoredFiles, new: StoredFiles) -> Collection[str]:
        """Return the pieces that are not needed any more, with those that a dead run left. While all earlier pieces are needed, return none."""
        if before.names <= new.names:
            return ()
        keys = await self._undo_context.store.list_keys(self._key)
        return {name for key in keys for name in key[len(self._key) :] if name not in new.names}

    # --- the store ---

    async def _read_piece(self, stored: StoredFiles, piece: StoredPiece) -> bytes:
        found: Any = await self._undo_context.store.find_value((*self._key, piece.name))
        raw = None if found is None else base64.b64decode(found["data"])
        return check_piece(piece, raw, self._where, hint=stored.rescue)

    async def _put_piece(self, name: str, value: Mapping[str, str] | None) -> None:
        await self._undo_context.journal.put_value(self._session, (*self._key, name), value)

    async def _put(self, new: StoredFiles, tree: str) -> StoredFiles:
        """Store the list of files under a new name, and mark the checkout with it: from now on this node has them."""
        named = replace(
            new, state=secrets.token_hex(STATE_BYTES), host=self._node, time=self._undo_context.clock.now()
        )
        await self._undo_context.journal.put_value(self._session, self._key, to_plain(named))
        self._stored, self._mark = named, CheckoutMark(state=named.state, head=named.head, tree=tree)
        await asyncio.to_thread(self._clone.mark, self._session, self._mark)
        return named

    def _warn(self, message: str) -> None:
        self._undo_context.journal.announce(SessionWarned(session_id=self._session, message=message))
        self._note(f"session {self._session}: {message}")


def _measure(top: str, paths: Iterable[str]) -> int:
    """Return the total size of the files that exist."""
    size = 0
    for path in paths:
        with suppress(OSError):
            size += os.lstat(os.path.join(top, path)).st_size
    return size


def _is_below_any(path: str, directories: Iterable[str]) -> bool:
    return any(is_within(path, each) for each in directories)


def _differs(path: bytes, file: ScratchFile) -> bool:
    """Return True if there is something at a path that is not this file."""
    try:
        if file.link:
            return os.readlink(path) != file.content
        if os.path.islink(path):
            return True
        with open(path, "rb") as stream:
            return stream.read(len(file.content) + 1) != file.content
    except FileNotFoundError:
        return False
    except OSError:
        return True
