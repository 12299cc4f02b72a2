"""What maintenance finds in a store: faults, leftovers, large documents, abandoned leases; and what repairs report."""

from typing import Literal

from msgspec import Struct

from weft.model.ids import SessionID

DocumentFaultKind = Literal[
    "unreadable",  # a document that cannot be read
    "foreign",  # something among the documents that is not one
    "duplicate",  # a session that is recorded in two projects
    "misplaced",  # a document whose content contradicts the place where it is stored
    "orphan",  # documents whose session or message does not exist
    "parent",  # a session whose parent does not exist
    "content",  # a reference to something missing, or an impossible time
]
LeftoverKind = Literal[
    "message",  # all messages of a session that does not exist
    "part",  # all parts of a message that does not exist
    "diff",  # `diff`, `todo` and `chain`: those of a session that does not exist
    "todo",
    "chain",
    "growth",  # text that belongs to no part
    "temp",  # `temp` and `redo`: a write that a process did not finish
    "redo",
    "lock",  # `lock` and `lease`: those of a session that does not exist
    "lease",
    "backup",  # an old backup of garbage collection
    "tool-output",  # outside the store; no part refers to it
]

# The label of the backups of garbage collection. They become leftovers after a while.
GC_LABEL = "gc"


class DocumentFault(Struct, frozen=True, kw_only=True):
    """Something wrong with a document. `where` is its place, for people and for `StoreRepairer`."""

    kind: DocumentFaultKind
    session: SessionID | None = None
    where: str
    reason: str


class Leftover(Struct, frozen=True, kw_only=True):
    """Something that nothing refers to. With `keeping` it is moved to a backup, because somebody may miss it.

    `where` is its place, for people and for `StoreRepairer`. `session` is the session that it belonged to, "" for none.
    If that session exists again, or `message` in it, this is no longer a leftover.
    """

    kind: LeftoverKind
    where: str
    reason: str
    bytes: int
    session: str = ""
    message: str = ""
    keeping: bool = False


class LeftoverFailure(Struct, frozen=True, kw_only=True):
    """A leftover that could not be removed, and why."""

    where: str
    reason: str


class RemovedLeftovers(Struct, frozen=True, kw_only=True):
    """The leftovers that were removed, where the backup is ("" if there is none), and what could not be removed."""

    removed: tuple[Leftover, ...]
    backup: str = ""
    failed: tuple[LeftoverFailure, ...] = ()


class LargeDocument(Struct, frozen=True, kw_only=True):
    """A document whose diffs contain whole files, and its size. `after` is its size once it was shrunk, 0 before."""

    where: str
    bytes: int
    after: int = 0


class AbandonedLease(Struct, frozen=True, kw_only=True):
    """The lease of a process that died. With `is_orphan` its session does not exist, and has no messages."""

    session: SessionID
    where: str
    is_orphan: bool


class SetAside(Struct, frozen=True, kw_only=True):
    """What became of a damaged document: it is in the backup, together with its parts if it was a message (`with_parts`).

    If it was the document of a session, either another document of that session is intact, or `rebuilt_from` is the number
    of messages that the session was rebuilt from. If it was a whole database, `place` is where it is now, and `salvaged` the number of
    sessions that could be read and were copied into a new one.
    """

    place: str = ""
    with_parts: bool = False
    is_intact: bool = False
    rebuilt_from: int | None = None
    salvaged: int = 0
