"""What maintenance finds in a store: faults, leftovers, large documents, abandoned leases; and what repairs report."""

from typing import Literal

from msgspec import Struct

from weft.model.ids import SessionID

FaultKind = Literal[
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
    "diff",
    "todo",
    "growth",  # text that belongs to no part
    "temp",  # `temp` and `redo`: a write that a process did not finish
    "redo",
    "lock",
    "lease",
    "backup",  # a backup of an earlier garbage collection
    "tool-output",  # kept outside the store
]


# The label of the backups that garbage collection makes, which expire.
GC_LABEL = "gc"


class Fault(Struct, frozen=True, kw_only=True):
    """Something wrong with a document. `where` tells a person where it is, and `StoreRepairer` which document is meant."""

    kind: FaultKind
    session: SessionID | None = None
    where: str
    reason: str


class Leftover(Struct, frozen=True, kw_only=True):
    """Something that nothing refers to. With `keeping` it is moved to a backup, because somebody may miss it.

    `where` tells a person where it is, and `StoreRepairer` what is meant. `session` is the session that it belonged to, ""
    for none. If that session exists again, or `message` in it, this is no longer a leftover.
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

    If it was a session's own document, either another document of the session is intact, or the session was rebuilt from
    so many messages (`rebuilt_from`).
    """

    with_parts: bool = False
    is_intact: bool = False
    rebuilt_from: int | None = None
