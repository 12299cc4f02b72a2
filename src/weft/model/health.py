"""The health of a store and of the machine: findings with their repairs, and the space that things take."""

from typing import Literal

from msgspec import Struct

from weft.model.ids import SessionID
from weft.model.wire import Wire

Severity = Literal["problem", "warning", "note"]

# Repairs that need no decision by the user. `maintenance.repair` carries them out.
# * lock-up: let no other user read a file
# * recover: finish an interrupted write, or remove it
# * lay-aside: move an unreadable document into the backup
# * salvage: move a damaged database aside, and copy what can be read into a new one
# * rebuild: make the document of a session from its messages
# * uproot: make a session whose parent is gone a top-level one
# * unite: keep a session that is in two projects in one of them
# * adopt: move a session into the project of its directory
# * unindex: remove the search index, which the next search rebuilds
# * drop-lease: remove the lease of a session that is gone
RepairKind = Literal[
    "",
    "lock-up",
    "recover",
    "lay-aside",
    "salvage",
    "rebuild",
    "uproot",
    "unite",
    "adopt",
    "unindex",
    "drop-lease",
]


class FindingItem(Struct, frozen=True, kw_only=True):
    """One thing that a finding is about: its location, what is wrong with it, and its session if it has one."""

    where: str
    reason: str = ""
    session: SessionID | None = None


class DoctorFinding(Struct, frozen=True, kw_only=True):
    """What is wrong, what it means, and the command that repairs it.

    A problem has consequences now, a warning may have some, a note is for information. `repair` is the command for a person;
    `cure` names what `weft doctor --fix` does by itself, "" if nothing.
    """

    severity: Severity
    area: str
    what: str
    means: str = ""
    repair: str = ""
    cure: RepairKind = ""
    items: tuple[FindingItem, ...] = ()


class StorageEntry(Wire, frozen=True, kw_only=True):
    """The space that one thing takes: a kind of document, a project or a session. A database counts its rows as files."""

    name: str
    title: str
    bytes: int
    files: int


class StorageReport(Wire, frozen=True, kw_only=True):
    """The space that a store and its other files take. Each list begins with the largest; `sessions` has only the largest ones."""

    store: str
    bytes: int
    files: int
    kinds: tuple[StorageEntry, ...]
    projects: tuple[StorageEntry, ...]
    sessions: tuple[StorageEntry, ...]
