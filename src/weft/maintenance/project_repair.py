"""Find sessions that are recorded under no project or under the wrong one, and move them."""

import os
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import NotFoundError
from weft.model.ids import GLOBAL_PROJECT, ProjectID, SessionID
from weft.model.project import Place, Project
from weft.model.session import SessionInfo
from weft.project.checkout import find_git_directories
from weft.project.facts import Adoption, LastSeen, last_seen_key, parse_last_seen
from weft.project.resolve import adopt_sessions
from weft.store.contract import Store
from weft.store.reader import StoreReader


class MisfiledSession(Struct, frozen=True, kw_only=True):
    """A session that belongs to another project than it is recorded under; `directory` is its new one, if any."""

    session: SessionInfo
    project: ProjectID
    directory: str = ""


class ProjectOverview(Struct, frozen=True, kw_only=True):
    """All projects, where each was last seen (`last_seen`), and all sessions."""

    projects: Sequence[Project]
    last_seen: Mapping[ProjectID, LastSeen]
    sessions: Sequence[SessionInfo]

    def list_unrecorded(self) -> list[ProjectID]:
        """Return project ids that sessions name but that have no record."""
        known = {project.id for project in self.projects}
        named = {session.project_id for session in self.sessions}
        return sorted(named - known - {GLOBAL_PROJECT})


async def read_overview(store: Store) -> ProjectOverview:
    projects = await store.list_projects()
    kept = {
        project.id: parse_last_seen(await store.find_value(last_seen_key(project.id))) for project in projects
    }
    return ProjectOverview(
        projects=projects,
        last_seen={id: seen for id, seen in kept.items() if seen is not None},
        sessions=await store.list_sessions(),
    )


def read_overview_now(reader: StoreReader) -> ProjectOverview:
    """Like `read_overview`, for commands without an event loop."""
    projects = reader.list_projects()
    kept = {project.id: parse_last_seen(reader.find_value(last_seen_key(project.id))) for project in projects}
    return ProjectOverview(
        projects=projects,
        last_seen={id: seen for id, seen in kept.items() if seen is not None},
        sessions=reader.list_sessions(),
    )


def find_misfiled(overview: ProjectOverview) -> list[MisfiledSession]:
    """Return sessions under `global` or an unknown project that ran in a known project's checkouts."""
    sources = (GLOBAL_PROJECT, *overview.list_unrecorded())
    homeless = [session for session in overview.sessions if session.project_id in sources]
    found: dict[SessionID, MisfiledSession] = {}
    for project in overview.projects:
        if project.id != GLOBAL_PROJECT:
            for session in adopt_sessions(_make_adoption(project, sources, overview), homeless):
                found.setdefault(session.id, MisfiledSession(session=session, project=project.id))
    return list(found.values())


def _make_adoption(project: Project, sources: tuple[ProjectID, ...], overview: ProjectOverview) -> Adoption:
    seen = overview.last_seen.get(project.id)
    home = seen.worktree if seen else project.worktree
    common_dir = seen.common_dir if seen else ""
    if not common_dir and os.path.exists(os.path.join(home, ".git")):
        common_dir = find_git_directories(home)[1]
    others = [
        overview.last_seen[each.id].worktree if each.id in overview.last_seen else each.worktree
        for each in overview.projects
        if each.id not in (project.id, GLOBAL_PROJECT)
    ]
    return Adoption(
        project=project.id,
        sources=sources,
        tops=tuple(dict.fromkeys([home, project.worktree, *project.sandboxes])),
        common_dir=common_dir,
        other_tops=tuple(others),
    )


async def list_family(store: Store, ids: Sequence[SessionID]) -> list[SessionInfo]:
    """Return these sessions and all their descendants. Raise `NotFoundError` if one does not exist."""
    sessions = await store.list_sessions()
    known = {session.id for session in sessions}
    for id in ids:
        if id not in known:
            raise NotFoundError("session", id, hint="see them all: weft session list --all")
    wanted = set(ids)
    while more := {each.id for each in sessions if each.parent_id in wanted} - wanted:
        wanted |= more
    return [session for session in sessions if session.id in wanted]


def make_misfiled(sessions: Sequence[SessionInfo], place: Place) -> list[MisfiledSession]:
    """Return the repair that moves these sessions to a place. A session whose directory is gone gets the place's directory."""
    misfiled: list[MisfiledSession] = []
    for session in sessions:
        gone = not os.path.isdir(session.directory)
        if session.project_id != place.project.id or gone:
            directory = place.directory if gone else ""
            misfiled.append(MisfiledSession(session=session, project=place.project.id, directory=directory))
    return misfiled


async def move_sessions(store: Store, misfiled: Sequence[MisfiledSession]) -> list[SessionInfo]:
    """Move sessions to the projects they belong to."""
    return [await store.edit(each.session.id, partial(_correct, each)) for each in misfiled]


def _correct(misfiled: MisfiledSession, session: SessionInfo) -> SessionInfo:
    return replace(session, project_id=misfiled.project, directory=misfiled.directory or session.directory)


async def merge_project(store: Store, source: ProjectID, target: ProjectID) -> list[SessionInfo]:
    """Move every session of one project to another. The record of the empty project stays."""
    if await store.find_project(target) is None:
        raise NotFoundError("project", target, hint="see them all: weft project list")
    sessions = await store.list_sessions(source)
    return await move_sessions(
        store, [MisfiledSession(session=session, project=target) for session in sessions]
    )
