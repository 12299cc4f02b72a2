"""Examine the machine, the configuration and a store, without changing anything.

The known problems of a store, with their consequences and repairs, are values above the code that looks for them.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from weft.errors import DamagedStoreError, WeftError
from weft.host.files import try_lock
from weft.host.git import Plumbing
from weft.maintenance.environment import DoctorInput, examine_configuration, examine_environment
from weft.maintenance.migrate import CopyProgress
from weft.maintenance.project_repair import find_misfiled, read_overview_now
from weft.maintenance.verify import VerifyResult, verify_store
from weft.model.display import format_count
from weft.model.health import DoctorFinding, FindingItem
from weft.model.ids import SessionID
from weft.model.url import redact_url
from weft.snapshot.contract import MAX_BYTES
from weft.snapshot.location import SnapshotLocation, choose_base, list_locations
from weft.snapshot.objects import ObjectStore, list_pins, list_sessions, measure_files
from weft.store.findings import DocumentFaultKind, Leftover
from weft.store.maintenance import StoreMaintenance
from weft.store.reader import StoreReader
from weft.store.url import store_exists

STORE_AREA: Final = "store"
PROJECT_AREA: Final = "projects"
SNAPSHOT_AREA: Final = "undo"
NEARLY_FULL = 0.8
# By then every running write has ended.
IDLE_MS = 10 * 60 * 1000

# --- known problems of a store ---

FIX: Final = "weft doctor --fix"
GC: Final = "weft storage gc"

UNREADABLE: Final = DoctorFinding(
    severity="problem",
    area=STORE_AREA,
    what="documents that cannot be read: {}",
    means="they are skipped, and hide nothing else; --fix moves them to .weft/backup, where you can inspect them, "
    "and rebuilds a session whose own document is lost from its messages",
    repair=FIX,
    cure="lay-aside",
)
DAMAGED_DATABASE: Final = DoctorFinding(
    severity="problem",
    area=STORE_AREA,
    what="",
    means="much of it cannot be read, and weft no longer writes to it; --fix moves the file aside and copies what can be read into a "
    "new one. End every other weft first",
    repair=FIX,
    cure="salvage",
)
NOT_DOCUMENTS: Final = DoctorFinding(
    severity="warning",
    area=STORE_AREA,
    what="files among the documents that are not documents: {}",
    means="weft ignores them; OpenCode takes them for documents and fails",
    repair="move them to another directory",
)
DUPLICATE_SESSIONS: Final = DoctorFinding(
    severity="warning",
    area=STORE_AREA,
    what="sessions recorded in two projects: {}",
    means="a move was interrupted; the document that changed last counts",
    repair=FIX,
    cure="unite",
)
MISPLACED: Final = DoctorFinding(
    severity="warning",
    area=STORE_AREA,
    what="documents whose content contradicts their path: {}",
    means="the path counts; they may have been copied by hand",
)
PARENT_MISSING: Final = DoctorFinding(
    severity="warning",
    area=STORE_AREA,
    what="sessions whose parent is gone: {}",
    means="no list shows them, because lists show top-level sessions only",
    repair=FIX,
    cure="uproot",
)
BAD_REFERENCES: Final = DoctorFinding(
    severity="warning",
    area=STORE_AREA,
    what="references to something missing, or impossible times: {}",
    means="everything is readable, but what it refers to is missing",
)
SESSION_MISSING: Final = DoctorFinding(
    severity="problem",
    area=STORE_AREA,
    what="messages whose session is lost: {}",
    means="the messages exist but cannot be opened; --fix rebuilds the session from them",
    repair=FIX,
    cure="rebuild",
)
ORPHANED_RECORDS: Final = DoctorFinding(
    severity="warning",
    area=STORE_AREA,
    what="parts, diffs and todos whose owner is gone: {}",
    means="OpenCode leaves them behind when it deletes; they only take up space",
    repair=GC,
)
UNFINISHED: Final = DoctorFinding(
    severity="warning",
    area=STORE_AREA,
    what="writes that a process did not finish: {}",
    means="the next write to the same session finishes confirmed changes and removes the rest",
    repair=FIX,
    cure="recover",
)
LEFTOVER_FILES: Final = DoctorFinding(
    severity="note",
    area=STORE_AREA,
    what="leftover files: {}",
    means="they do no harm",
    repair=GC,
)
LARGE_DOCUMENTS: Final = DoctorFinding(
    severity="note",
    area=STORE_AREA,
    what="summaries that contain whole files: {}",
    means="they slow down reading and take up space",
    repair="weft storage gc --compact-summaries",
)
INTERRUPTED_RUNS: Final = DoctorFinding(
    severity="note",
    area=STORE_AREA,
    what="runs that were interrupted: {}",
    means="they are settled the next time weft is opened in their directory",
    repair="weft run --session ID",
)
RUNS_WITHOUT_SESSION: Final = DoctorFinding(
    severity="warning",
    area=STORE_AREA,
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
    area=STORE_AREA,
    what="bundles in the trash that no command can restore: {}",
    means="their label is missing or unreadable; `tree` contains their files at the paths they had in the store",
    repair="move the files below `tree` back by hand, or remove the bundle",
)
OLD_FORMAT: Final = DoctorFinding(
    severity="note",
    area=STORE_AREA,
    what="the store has an older format",
    means="it is upgraded, and the originals are backed up, the next time it is opened",
    repair="weft session list",
)
NEWER_OPENCODE: Final = DoctorFinding(
    severity="warning",
    area=STORE_AREA,
    what="OpenCode 1.2 or later keeps its sessions in {}, which weft does not use",
    means="they are neither shown nor changed here; importing copies them and leaves the database as it is",
    repair="weft import --from opencode-sqlite {}",
)
LARGE_TREE: Final = DoctorFinding(
    severity="note",
    area=STORE_AREA,
    what="the tree has {} sessions",
    means="a database lists and searches that many several times faster; migrating copies them, and leaves the tree as it is",
    repair="weft storage migrate {} {}",
)

# `orphan` is not here: the leftovers tell more about orphans.
FAULT_FINDINGS: Final[dict[DocumentFaultKind, DoctorFinding]] = {
    "unreadable": UNREADABLE,
    "foreign": NOT_DOCUMENTS,
    "duplicate": DUPLICATE_SESSIONS,
    "misplaced": MISPLACED,
    "parent": PARENT_MISSING,
    "content": BAD_REFERENCES,
}

# --- examining ---


def examine(target: DoctorInput, *, on_progress: CopyProgress = lambda _, __: None) -> list[DoctorFinding]:
    """Examine everything, and return all findings."""
    environment = _examine_area("environment", lambda: examine_environment(target))
    configuration = _examine_area("configuration", lambda: examine_configuration(target))
    store = _examine_area(STORE_AREA, lambda: examine_store(target, on_progress))
    # If the store cannot be opened, neither can its index: report that once.
    reported = {finding.what for finding in store}
    index = [
        finding
        for finding in _examine_area("index", lambda: examine_index(target))
        if finding.what not in reported
    ]
    return [
        *environment,
        *configuration,
        *store,
        *index,
        *_examine_area(SNAPSHOT_AREA, lambda: examine_undo(target)),
    ]


def _examine_area(area: str, look: Callable[[], list[DoctorFinding]]) -> list[DoctorFinding]:
    try:
        return look()
    except DamagedStoreError as error:
        item = FindingItem(where=error.where, reason=error.reason)
        return [replace(DAMAGED_DATABASE, what=f"{error.where} is damaged", items=(item,))]
    except (WeftError, OSError, ValueError) as error:
        hint = error.hint if isinstance(error, WeftError) else ""
        return [DoctorFinding(severity="problem", area=area, what=str(error), repair=hint)]


def examine_store(target: DoctorInput, on_progress: CopyProgress) -> list[DoctorFinding]:
    if not store_exists(target.url):
        return [
            DoctorFinding(severity="note", area=STORE_AREA, what=f"there is no store at {target.root} yet")
        ]
    store = target.open_maintenance()
    # A newer format raises here: we do not judge what we do not know.
    outdated = [OLD_FORMAT] if store.is_outdated() else []
    found = [
        *outdated,
        *_check_newer_home(store.reader),
        *_check_size(store),
        *_examine_area(
            STORE_AREA, lambda: _check_documents(verify_store(store, now=target.now, on_progress=on_progress))
        ),
        *_examine_area(STORE_AREA, lambda: _check_leftovers(store, target.now)),
        *_examine_area(STORE_AREA, lambda: _to_findings(LARGE_DOCUMENTS, _check_large(store))),
        *_examine_area(STORE_AREA, lambda: _check_dead_runs(store)),
        *_examine_area(STORE_AREA, lambda: _to_findings(UNLABELLED_BUNDLES, _check_bundles(store))),
        *_examine_area(PROJECT_AREA, lambda: examine_projects(store.reader)),
    ]
    # A damaged database makes one check after the other fail, and one repair fixes it all: report only that.
    return [each for each in found if each.cure == "salvage"][:1] or found


def _check_size(store: StoreMaintenance) -> list[DoctorFinding]:
    """Suggest another kind of store for a tree with many sessions."""
    better = store.find_better_store()
    if not better:
        return []
    what = LARGE_TREE.what.format(f"{len(store.list_session_ids()):,}")
    return [replace(LARGE_TREE, what=what, repair=LARGE_TREE.repair.format(redact_url(store.url), better))]


def _check_newer_home(reader: StoreReader) -> list[DoctorFinding]:
    database = reader.find_opencode_database()
    if database is None:
        return []
    repair = NEWER_OPENCODE.repair.format(database)
    return [replace(NEWER_OPENCODE, what=NEWER_OPENCODE.what.format(database), repair=repair)]


def _check_documents(result: VerifyResult) -> list[DoctorFinding]:
    """Report documents that are unreadable, misplaced, or refer to something missing."""
    return [
        found
        for kind, finding in FAULT_FINDINGS.items()
        for found in _to_findings(
            finding,
            [
                FindingItem(where=fault.where, reason=fault.reason, session=fault.session)
                for fault in result.faults
                if fault.kind == kind
            ],
        )
    ]


def _check_leftovers(store: StoreMaintenance, now: int) -> list[DoctorFinding]:
    """Report unreferenced documents and unfinished writes."""
    found = store.find_leftovers(before=now + 1)
    headless = [each for each in found if each.kind == "message"]
    sessions = {each.session for each in headless}
    lost = [each for each in found if each.kind in ("part", "diff", "todo") and each.session not in sessions]
    idle = store.find_leftovers(before=now - IDLE_MS)
    return [
        *_to_findings(SESSION_MISSING, _to_items(headless)),
        *_to_findings(ORPHANED_RECORDS, _to_items(lost)),
        *_to_findings(UNFINISHED, _to_items(each for each in idle if each.kind in ("temp", "redo"))),
        *_to_findings(
            LEFTOVER_FILES,
            _to_items(
                each
                for each in idle
                if each.kind in ("lock", "lease", "growth", "backup")
                or (each.kind == "chain" and each.session not in sessions)
            ),
        ),
    ]


def _to_findings(finding: DoctorFinding, items: list[FindingItem]) -> list[DoctorFinding]:
    """Return one finding about all items, none if there are no items."""
    return [replace(finding, what=finding.what.format(len(items)), items=tuple(items))] if items else []


def _to_items(leftovers: Iterable[Leftover]) -> list[FindingItem]:
    return [
        FindingItem(
            where=each.where, reason=each.reason, session=SessionID(each.session) if each.session else None
        )
        for each in leftovers
    ]


def _check_large(store: StoreMaintenance) -> list[FindingItem]:
    return [FindingItem(where=each.where, reason=f"{each.bytes} bytes") for each in store.find_large()]


def _check_dead_runs(store: StoreMaintenance) -> list[DoctorFinding]:
    abandoned = store.list_abandoned()
    interrupted = [FindingItem(where=lease.session) for lease in abandoned if not lease.is_orphan]
    orphans = [
        FindingItem(where=lease.where, reason=f"its session {lease.session} is gone", session=lease.session)
        for lease in abandoned
        if lease.is_orphan
    ]
    return [*_to_findings(INTERRUPTED_RUNS, interrupted), *_to_findings(RUNS_WITHOUT_SESSION, orphans)]


def _check_bundles(store: StoreMaintenance) -> list[FindingItem]:
    return [FindingItem(where=where) for where in store.list_broken_bundles()]


def examine_projects(reader: StoreReader) -> list[DoctorFinding]:
    """Find sessions that are recorded under the wrong project or under no known project."""
    overview = read_overview_now(reader)
    misfiled = find_misfiled(overview)
    found: list[DoctorFinding] = []
    if misfiled:
        found.append(
            DoctorFinding(
                severity="warning",
                area=PROJECT_AREA,
                what=f"{format_count(len(misfiled), 'session is', 'sessions are')} recorded under another project than that of their directory",
                means="the project's list of sessions does not show them",
                repair="weft session adopt --all",
                cure="adopt",
                items=tuple(
                    FindingItem(
                        where=each.session.id,
                        reason=f"belongs to {each.project}",
                        session=each.session.id,
                    )
                    for each in misfiled
                ),
            )
        )
    taken = {each.session.id for each in misfiled}
    left = Counter(session.project_id for session in overview.sessions if session.id not in taken)
    unexplained = [id for id in overview.list_unrecorded() if left[id]]
    if unexplained:
        found.append(
            DoctorFinding(
                severity="warning",
                area=PROJECT_AREA,
                what=f"{format_count(len(unexplained), 'project has', 'projects have')} sessions and no record",
                means="weft session list --all shows them; running weft in their directory creates the record",
                repair="weft project merge ID INTO",
                items=tuple(
                    FindingItem(where=id, reason=format_count(left[id], "session")) for id in unexplained
                ),
            )
        )
    return found


def examine_index(target: DoctorInput) -> list[DoctorFinding]:
    """Report a broken index. A missing or outdated one is not reported: it is rebuilt when it is used."""
    broken = target.open_maintenance().check_index()
    return (
        []
        if broken is None
        else _to_findings(BAD_INDEX, [FindingItem(where=broken.where, reason=broken.reason)])
    )


def examine_undo(target: DoctorInput) -> list[DoctorFinding]:
    """Check the snapshots that undo needs."""
    places = list_locations(choose_base(target.paths, target.url))
    return [
        *_find_interrupted(places),
        *_find_lost(places, target.env),
        *_check_sizes(places, target),
        *_find_unused(places),
    ]


def _find_interrupted(places: list[SnapshotLocation]) -> Iterator[DoctorFinding]:
    found = [FindingItem(where=place.root) for place in places if _is_interrupted(place)]
    if found:
        yield DoctorFinding(
            severity="problem",
            area=SNAPSHOT_AREA,
            what="a restore of files was interrupted",
            means="some files are as before the agent's changes, others as the agent left them",
            repair="open weft in the directory: weft undo --dry-run finishes it or rolls it back",
            items=tuple(found),
        )


def _is_interrupted(place: SnapshotLocation) -> bool:
    """Return True if a restore was begun and its process is dead."""
    if not os.path.exists(place.intent):
        return False
    with try_lock(place.restore_lock) as mine:
        return mine and os.path.exists(place.intent)


def _find_lost(places: list[SnapshotLocation], env: Mapping[str, str]) -> Iterator[DoctorFinding]:
    found = [item for place in places for item in _find_lost_in(place, env)]
    if found:
        yield DoctorFinding(
            severity="warning",
            area=SNAPSHOT_AREA,
            what="snapshots that sessions need for undo are missing or damaged",
            means="their changes up to that point can no longer be undone; nothing else is affected",
            items=tuple(found),
        )


def _find_lost_in(place: SnapshotLocation, env: Mapping[str, str]) -> Iterator[FindingItem]:
    objects = ObjectStore(place, Plumbing(env, place.git_dir, place.directory), 0)
    for session in list_sessions(place):
        missing = objects.find_missing(list_pins(place, session))
        if missing:
            yield FindingItem(
                where=session, reason=f"{format_count(len(missing), 'snapshot')} of {place.root}"
            )


def _check_sizes(places: list[SnapshotLocation], target: DoctorInput) -> Iterator[DoctorFinding]:
    """Report directories whose snapshots nearly reach the limit."""
    limit = _find_size_limit(target)
    sizes = {place.root: measure_files(place.objects) for place in places}
    found = [
        FindingItem(where=root, reason=f"{size >> 20} of {limit >> 20} MB")
        for root, size in sizes.items()
        if size > limit * NEARLY_FULL
    ]
    if found:
        yield DoctorFinding(
            severity="warning",
            area=SNAPSHOT_AREA,
            what="snapshots have nearly used up their space",
            means="when it is full, nothing more is recorded, and new changes cannot be undone",
            repair="weft storage gc; or raise experimental.weft.snapshots.maxBytes",
            items=tuple(found),
        )


def _find_size_limit(target: DoctorInput) -> int:
    try:
        config = target.load_config().trusted_config
    except (WeftError, OSError):  # reported by `examine_configuration`
        return MAX_BYTES
    configured = config.weft_settings.snapshots
    return int(configured.max_bytes) if configured and configured.max_bytes else MAX_BYTES


def _find_unused(places: list[SnapshotLocation]) -> Iterator[DoctorFinding]:
    found = [
        FindingItem(where=place.root, reason=f"{measure_files(place.directory) >> 10} KB")
        for place in places
        if not os.path.isdir(place.root)
    ]
    if found:
        yield DoctorFinding(
            severity="note",
            area=SNAPSHOT_AREA,
            what="there are snapshots of directories that no longer exist",
            means="they are removed together with the sessions that worked there",
            items=tuple(found),
        )
