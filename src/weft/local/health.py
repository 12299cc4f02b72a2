"""The health of a store and of the machine, as `weft doctor` and front ends show it. Every function blocks."""

from collections.abc import Callable, Mapping

from weft.errors import WeftError
from weft.host.paths import Paths
from weft.local.sandbox import examine_sandbox
from weft.maintenance.doctor import examine
from weft.maintenance.environment import DoctorInput
from weft.maintenance.space import measure_space
from weft.model.health import DoctorFinding, FindingItem, StorageEntry, StorageReport
from weft.model.ids import ProjectID, SessionID
from weft.model.url import to_store_identity
from weft.permission.audit import find_break, read_end
from weft.permission.storage import RECORDS, end_key
from weft.store.maintenance import open_maintenance
from weft.store.sizes import Size

AUDIT_LOG_AREA = "permissions"
MAX_SESSIONS = 20


def list_findings(
    input: DoctorInput, *, on_progress: Callable[[int, int], None] = lambda _, __: None
) -> list[DoctorFinding]:
    """Examine everything, and return all findings. Nothing is changed."""
    return [*examine(input, on_progress=on_progress), *examine_logs(input), *examine_sandbox(input)]


def examine_logs(input: DoctorInput) -> list[DoctorFinding]:
    """Check that no audit log of permissions was changed after it was written."""
    items: list[FindingItem] = []
    try:
        reader = input.open_maintenance().reader
        logs = reader.list_logs((RECORDS,))
    except WeftError:
        return []  # the store cannot be opened, which was reported before
    for log in logs:
        project = ProjectID(log[-1])
        try:
            _, broken = find_break(reader.read_log(log), read_end(reader.find_value(end_key(project))))
        except (OSError, WeftError) as error:
            items.append(FindingItem(where=project, reason=str(error)))
            continue
        if broken is not None:
            where, reason = f"{project}:{broken.line}", f"record {broken.seq} {broken.reason}"
            items.append(FindingItem(where=where, reason=reason))
    if not items:
        return []
    return [
        DoctorFinding(
            severity="problem",
            area=AUDIT_LOG_AREA,
            what="an audit log of permissions is not intact",
            means="somebody changed it, or the disk is damaged: its records of that time prove nothing",
            repair="keep a copy if it matters; weft permission log --verify checks the log of a project",
            items=tuple(items),
        )
    ]


def measure_storage(url: str, paths: Paths) -> StorageReport:
    """Measure the space that a store and its other files take."""
    store = open_maintenance(url, cache=paths.cache)
    sizes, reader = measure_space(store, paths), store.reader

    def describe_project(id: str) -> str:
        project = reader.find_project(ProjectID(id)) if id else None
        return project.worktree if project else ""

    def describe_session(id: str) -> str:
        session = reader.find_session(SessionID(id)) if id else None
        return session.title if session else ""

    sessions = {id: size for id, size in sizes.sessions.items() if id}
    return StorageReport(
        store=to_store_identity(url),
        bytes=sizes.total.bytes,
        files=sizes.total.files,
        kinds=_to_entries(sizes.kinds, lambda _: ""),
        projects=_to_entries(sizes.projects, describe_project),
        sessions=_to_entries(sessions, describe_session, most=MAX_SESSIONS),
    )


def _to_entries(
    sizes: Mapping[str, Size], describe: Callable[[str], str], *, most: int | None = None
) -> tuple[StorageEntry, ...]:
    """Return entries with a name for people, the largest first."""
    largest = sorted(sizes.items(), key=lambda item: (-item[1].bytes, item[0]))[:most]
    return tuple(
        StorageEntry(name=name, title=describe(name), bytes=size.bytes, files=size.files)
        for name, size in largest
    )
