"""The contract for the maintenance of a store: find what is damaged, left over or too large, and repair it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from weft.errors import InvalidInputError
from weft.host.paths import parse_store_path
from weft.model.damage import Damage
from weft.model.ids import SessionID
from weft.model.session import SessionInfo
from weft.model.url import redact_url
from weft.store.chain import ChainLines
from weft.store.contract import SessionEditor
from weft.store.findings import (
    AbandonedLease,
    DocumentFault,
    LargeDocument,
    Leftover,
    RemovedLeftovers,
    SetAside,
)
from weft.store.reader import StoreReader
from weft.store.sizes import ProgressCallback, SizeCounter
from weft.store.url import ADDRESS_SOURCES


class StoreMaintenance(Protocol):
    """Inspects a store. Every method blocks.

    * Only `upgrade` changes anything; a store of an older format is inspected as it is;
    * it lists the sessions and documents once, at the first call; to see later ones, open it again;
    * for what a kind of store cannot have, such as a misplaced document in a database, it returns an empty list;
    * the same store gives the same lists in the same order.
    """

    @property
    def url(self) -> str: ...

    @property
    def reader(self) -> StoreReader:
        """Reads the store as it is, without an upgrade."""
        ...

    def check_format(self) -> None:
        """Raise `NewerFormatError` if a later version wrote the store."""
        ...

    def is_outdated(self) -> bool:
        """Return True if opening the store would upgrade it. Raise `NewerFormatError` if a later version wrote it."""
        ...

    def upgrade(self) -> None:
        """Upgrade an older store and finish interrupted writes, as opening the store does."""
        ...

    def list_session_ids(self) -> list[SessionID]:
        """Return all sessions, including those whose own document cannot be read."""
        ...

    def has_session(self, id: str) -> bool:
        """Return True if the session exists, or something unreadable that may be its document."""
        ...

    def measure(self, counter: SizeCounter) -> None:
        """Add the size of everything in the store to `counter`, and of its search index."""
        ...

    def find_damage(self) -> list[DocumentFault]:
        """Read every document. Return those that are `unreadable`, and what is `foreign`."""
        ...

    def find_misplaced(self, session: SessionID) -> list[DocumentFault]:
        """Return the documents of a session that are `misplaced` or `duplicate`. They are readable all the same."""
        ...

    def find_orphans(self) -> list[DocumentFault]:
        """Return the documents that are `orphan`, old or new."""
        ...

    def find_leftovers(self, *, before: int) -> list[Leftover]:
        """Return what nothing refers to and nobody changed since `before` (ms)."""
        ...

    def find_large(self, *, on_progress: ProgressCallback = lambda _: None) -> list[LargeDocument]:
        """Return the documents that `StoreRepairer.shrink_large` would shrink."""
        ...

    def find_in_parts(self, pattern: str, *, on_progress: ProgressCallback = lambda _: None) -> set[str]:
        """Return every match of an ASCII regular expression in the stored parts.

        Raise `StoreError` if a part cannot be read, because it could contain further matches.
        """
        ...

    def list_abandoned(self) -> list[AbandonedLease]: ...

    def list_broken_bundles(self) -> list[str]:
        """Return the places of the bundles in the trash that cannot be restored, because their label is lost."""
        ...

    def list_chains(self) -> list[SessionID]:
        """Return every session that has a chain, also one that is gone. Sessions in the trash are left out."""
        ...

    def read_chain(self, session: SessionID) -> ChainLines:
        """Return the chain of a session, as `Store.read_chain` does."""
        ...

    def check_index(self) -> Damage | None:
        """Return where the search index is and why it cannot be used; None if it can, or does not exist yet."""
        ...

    def find_better_store(self) -> str:
        """Return the address of another kind of store that suits this many sessions better, "" if none does."""
        ...

    def make_repairer(self, label: str, *, now: int) -> StoreRepairer:
        """Return a repairer whose backup is named by `label` and `now` (ms)."""
        ...


class StoreRepairer(Protocol):
    """Changes a store under the same locks as `Store`. Every method blocks.

    * A document is replaced as a whole or not at all, even if the process dies in the middle;
    * what a call replaces or removes is backed up first, except leftovers without `keeping`.
    """

    @property
    def backup(self) -> str:
        """Where the backup is; "" as long as nothing was backed up."""
        ...

    def remove_leftovers(self, leftovers: Iterable[Leftover], *, before: int) -> RemovedLeftovers:
        """Remove leftovers. A failure does not stop the others.

        A leftover that somebody changed since `before` (ms), or whose owner exists again, is left alone.
        """
        ...

    def shrink_large(self, *, on_progress: ProgressCallback = lambda _: None) -> list[LargeDocument]:
        """Cut diffs that contain whole files down to the usual size. Return the documents that were shrunk."""
        ...

    def finish_write(self, where: str) -> bool:
        """Finish or roll back the write of a dead process. Return False if it is still there."""
        ...

    def set_aside(self, where: str) -> SetAside | None:
        """Move a damaged document to the backup, with what depends on it. Return None if nothing was changed.

        If it was the only document of a session, rebuild the session from its messages.
        """
        ...

    def rebuild_session(self, id: SessionID) -> int | None:
        """Create a lost session from its messages, and return their number. Return None if the session exists."""
        ...

    def edit_session(self, id: SessionID, editor: SessionEditor) -> SessionInfo | None:
        """Replace a session by the result of `editor`, and remove its duplicates. Return None if there is no session."""
        ...

    def drop_index(self) -> None:
        """Remove the search index. The next search rebuilds it."""
        ...

    def drop_lease(self, session: SessionID) -> bool:
        """Remove the lease of a dead process. Return False if somebody holds it now."""
        ...


def open_maintenance(url: str, *, cache: str | None = None) -> StoreMaintenance:
    """Open the store at `file:<path>`, `sqlite:<path>` or `postgres://…` to inspect it. The search index of files is below `cache`.

    Raise `InvalidInputError` for any other store.
    """
    if url.startswith(("postgres:", "postgresql:")):
        from weft.store.postgres.maintenance import PostgresMaintenance  # noqa: PLC0415  only the kind of store that is asked for

        return PostgresMaintenance(url)
    if url.startswith("sqlite:"):
        from weft.store.sqlite.maintenance import SqliteMaintenance  # noqa: PLC0415  only the kind of store that is asked for

        return SqliteMaintenance(parse_store_path(url))
    if not url.startswith("file:"):
        raise InvalidInputError(
            "store",
            f"{redact_url(url)!r} cannot be inspected",
            hint=f"use a directory, file:<path>, sqlite:<path> or postgres://…; {ADDRESS_SOURCES}",
        )
    from weft.store.files.maintenance import FileMaintenance  # noqa: PLC0415  only the kind of store that is asked for
    from weft.store.url import find_root_commit  # noqa: PLC0415  rarely needed

    return FileMaintenance(parse_store_path(url), find_root_commit, cache=cache)


def get_sqlite_version() -> str:
    """Return the version of SQLite that stores and the search index use. It is not Python's own."""
    import apsw  # noqa: PLC0415  slow to import, and only doctor asks

    return apsw.sqlite_lib_version()
