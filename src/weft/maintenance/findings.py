"""Findings of the doctor: the known problems of a store, their consequences and repairs."""

from typing import Final

from msgspec.structs import replace

from weft.model.health import DoctorFinding, FindingItem

AREA: Final = "store"
FIX: Final = "weft doctor --fix"
GC: Final = "weft storage gc"

UNREADABLE: Final = DoctorFinding(
    severity="problem",
    area=AREA,
    what="documents that cannot be read: {}",
    means="they are skipped, and hide nothing else; --fix moves them to .weft/backup, where you can inspect them, "
    "and rebuilds a session whose own document is lost from its messages",
    repair=FIX,
    cure="lay-aside",
)
DAMAGED_DATABASE: Final = DoctorFinding(
    severity="problem",
    area=AREA,
    what="",
    means="much of it cannot be read, and nothing changes it any more; --fix moves the file aside and copies what can be read into a "
    "new one. End every other weft first",
    repair=FIX,
    cure="salvage",
)
NOT_DOCUMENTS: Final = DoctorFinding(
    severity="warning",
    area=AREA,
    what="files among the documents that are not documents: {}",
    means="weft ignores them; OpenCode takes them for documents and fails",
    repair="move them to another directory",
)
DUPLICATE_SESSIONS: Final = DoctorFinding(
    severity="warning",
    area=AREA,
    what="sessions recorded in two projects: {}",
    means="a move was interrupted; the document that changed last counts",
    repair=FIX,
    cure="unite",
)
MISPLACED: Final = DoctorFinding(
    severity="warning",
    area=AREA,
    what="documents whose content contradicts their path: {}",
    means="the path counts; they may have been copied by hand",
)
PARENT_MISSING: Final = DoctorFinding(
    severity="warning",
    area=AREA,
    what="sessions whose parent is gone: {}",
    means="no list shows them, because lists show top-level sessions only",
    repair=FIX,
    cure="uproot",
)
BAD_REFERENCES: Final = DoctorFinding(
    severity="warning",
    area=AREA,
    what="references to something missing, or impossible times: {}",
    means="everything is readable, but what it refers to is missing",
)
SESSION_MISSING: Final = DoctorFinding(
    severity="problem",
    area=AREA,
    what="messages whose session is lost: {}",
    means="the messages exist but cannot be opened; --fix rebuilds the session from them",
    repair=FIX,
    cure="rebuild",
)
ORPHANED_RECORDS: Final = DoctorFinding(
    severity="warning",
    area=AREA,
    what="parts, diffs and todos whose owner is gone: {}",
    means="OpenCode leaves them behind when it deletes; they only take up space",
    repair=GC,
)
UNFINISHED: Final = DoctorFinding(
    severity="warning",
    area=AREA,
    what="writes that a process did not finish: {}",
    means="the next write to the same session finishes confirmed changes and removes the rest",
    repair=FIX,
    cure="recover",
)
LEFTOVER_FILES: Final = DoctorFinding(
    severity="note",
    area=AREA,
    what="leftover files: {}",
    means="they do no harm",
    repair=GC,
)
LARGE_DOCUMENTS: Final = DoctorFinding(
    severity="note",
    area=AREA,
    what="summaries that contain whole files: {}",
    means="they slow down reading and take up space",
    repair="weft storage gc --compact-summaries",
)
INTERRUPTED_RUNS: Final = DoctorFinding(
    severity="note",
    area=AREA,
    what="runs that were interrupted: {}",
    means="they are settled the next time weft is opened in their directory",
    repair="weft run --session ID",
)
RUNS_WITHOUT_SESSION: Final = DoctorFinding(
    severity="warning",
    area=AREA,
    what="interrupted runs of sessions that no longer exist: {}",
    means="opening weft, or --fix, removes the trace of the run",
    repair=FIX,
    cure="drop-lease",
)
BAD_INDEX: Final = DoctorFinding(
    severity="warning",
    area="index",
    what="the index of sessions cannot be used",
    means="search and statistics are slow until it is rebuilt; it holds nothing that the store does not",
    repair=FIX,
    cure="unindex",
)
UNLABELLED_BUNDLES: Final = DoctorFinding(
    severity="warning",
    area=AREA,
    what="bundles in the trash that no command can restore: {}",
    means="their label is missing or unreadable; `tree` contains their files at the paths they had in the store",
    repair="move the files below `tree` back by hand, or remove the bundle",
)
OLD_FORMAT: Final = DoctorFinding(
    severity="note",
    area=AREA,
    what="the store has an older format",
    means="it is upgraded, and the originals are backed up, the next time it is opened",
    repair="weft session list",
)


NEWER_OPENCODE: Final = DoctorFinding(
    severity="warning",
    area=AREA,
    what="OpenCode 1.2 or later keeps its sessions in {}, which weft does not use",
    means="they are neither shown nor changed here; importing copies them and leaves the database as it is",
    repair="weft import --from opencode-sqlite {}",
)


LARGE_TREE: Final = DoctorFinding(
    severity="note",
    area=AREA,
    what="the tree has {} sessions",
    means="a database lists and searches that many several times faster; migrating copies them, and leaves the tree as it is",
    repair="weft storage migrate {} {}",
)


def to_findings(finding: DoctorFinding, items: list[FindingItem]) -> list[DoctorFinding]:
    """Return one finding about all items, none if there are no items."""
    return [replace(finding, what=finding.what.format(len(items)), items=tuple(items))] if items else []
