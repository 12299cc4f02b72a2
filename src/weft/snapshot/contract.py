"""Snapshots: what an agent changed, kept so that it can be shown, and taken back without harm to a person's work."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, Protocol

from msgspec import Struct

from weft.model.diff import FileDiff, FileFate, Patch, Tree
from weft.model.ids import SessionID

MAX_BYTES: Final = 2 << 30
MAX_FILE_BYTES: Final = 10 << 20
WAIT_SECONDS: Final = 30.0


class Limits(Struct, frozen=True, kw_only=True):
    """How much is kept: in all, of one file; and how long a command waits to have its changes covered."""

    max_bytes: int = MAX_BYTES
    max_file_bytes: int = MAX_FILE_BYTES
    wait_seconds: float = WAIT_SECONDS


class Plan(Struct, frozen=True, kw_only=True):
    """What to take back: patches, oldest first, or of them only `files` (absolute, as in `Patch.files`).

    `note` is the caller's own word for it. After a crash it is asked whether this restoring was meant to stand.
    """

    session: SessionID
    patches: tuple[Patch, ...]
    files: tuple[str, ...] | None = None
    note: str = ""


class Restoration(Struct, frozen=True, kw_only=True):
    """What came of a plan. `undo` leads back: a plan with it alone is the way to undo the undoing."""

    session: SessionID
    fates: tuple[FileFate, ...]
    undo: Patch | None = None
    note: str = ""


class Recovered(Struct, frozen=True, kw_only=True):
    """What dead processes left behind: restorings that were finished, those that were rolled back, and patches of
    sessions that may not have been stored. A patch whose two trees the session already has is the same patch."""

    finished: tuple[Restoration, ...] = ()
    rolled_back: tuple[Restoration, ...] = ()
    patches: tuple[tuple[SessionID, Patch], ...] = ()


class Coverage(Struct, frozen=True, kw_only=True):
    """What is covered: `all` that git would not ignore, only what tools `announced`, or `none`; and why not all."""

    extent: Literal["all", "announced", "none"]
    reason: str = ""


class Snapshots(Protocol):
    """The files below one directory.

    * nothing of the person's repository is ever written, nor is a program that it names ever run;
    * bytes, links, permission to execute and names come back exactly; other permissions as far as they are known;
    * a change belongs to the agent if it was made while one of its calls was `watch`ed, and to no other session;
    * restoring changes a file only if it is as the agent left it, and all of them or, if one is missing, none;
    * if a file cannot be written, restoring puts the others as they were and raises `RestoreFailedError`. What cannot be
      put back either is left to `recover`, and until then nothing more is restored;
    * a restoring that was cut short is finished or rolled back by `recover`, as the caller wants;
    * a tree is kept as long as a session has it pinned.

    Switched off, every method does nothing and gives nothing.
    """

    def coverage(self) -> Coverage: ...

    # --- what is changed ---

    def begin(self) -> None:
        """Have a first look at all files in the background. `watch` waits for it when it has to."""
        ...

    def watch(
        self, session: SessionID, files: Sequence[str] | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Around a call that changes these files, whatever ignores them; or, with None, any files.

        Entering waits until what is there is safe, at most `wait_seconds`. Then the call goes on, and its changes
        are `uncovered`. A call that only reads needs no watching.
        """
        ...

    async def take(self, session: SessionID) -> tuple[Patch, ...]:
        """What the session changed since this was last asked, pinned; mostly one patch, none if nothing changed.

        More than one, oldest first, if the person changed a file between two changes of the agent. They are told
        again by `recover` after a crash, until `stored` is called.
        """
        ...

    async def stored(self, session: SessionID) -> None:
        """What was taken is stored where the session is stored."""
        ...

    async def track(self, session: SessionID) -> Tree | None:
        """All covered files as one tree, as `git write-tree` would name it. None if that is not to be had.

        It is for comparing; what it names may be borrowed from the person's repository. Undoing takes patches.
        """
        ...

    async def changes(self, since: Tree, until: Tree | None = None) -> Patch:
        """What differs between two trees of `track`; with None, between one and now."""
        ...

    # --- looking at it ---

    async def fold(self, patches: Sequence[Patch]) -> Patch:
        """Many patches, oldest first, as one: each file from its first state to its last, if they differ."""
        ...

    async def diff(
        self, before: Tree, after: Tree, files: Sequence[str] | None = None
    ) -> tuple[FileDiff, ...]:
        """File by file, within the bounds of `model.diff_cap`; names are relative to the directory."""
        ...

    async def diff_text(self, before: Tree, after: Tree, files: Sequence[str] | None = None) -> str:
        """The same as a unified diff."""
        ...

    # --- taking it back ---

    async def borrow(self, git_dir: str, snapshot: str, left: Mapping[str, str]) -> Patch:
        """Return as a patch what OpenCode did to files when it took a session back, read from its own repository.

        `left` says for each file which tree it was brought back to. Raise `SnapshotMissingError` if that is not there.
        """
        ...

    async def preview(self, plan: Plan) -> Restoration:
        """What `restore` would do. Changes nothing."""
        ...

    async def restore(self, plan: Plan) -> Restoration:
        """Take it back. `SnapshotMissingError` if anything of it cannot be read: then nothing was changed."""
        ...

    def restoring(self, plan: Plan) -> AbstractAsyncContextManager[Restoration]:
        """The same, to stand only if the body does not raise: store in it that the session was reverted."""
        ...

    async def recover(self, wanted: Callable[[SessionID, str], Awaitable[bool]]) -> Recovered:
        """Settle what dead processes left. `wanted` says of a restoring, by session and note, if it is to stand."""
        ...

    async def is_unsettled(self, session: SessionID) -> bool:
        """Return whether a restoring of the session is still to be finished or rolled back: keep what it names."""
        ...

    # --- keeping it ---

    async def pin(self, session: SessionID, trees: Sequence[Tree]) -> None:
        """Keep trees that a session names; for a fork, or an import. `take` has pinned its own."""
        ...

    async def unpin(self, session: SessionID, trees: Sequence[Tree]) -> None: ...

    async def release(self, session: SessionID) -> None:
        """Nothing of the session is needed any more."""
        ...
