"""Find sessions recorded under no project or the wrong one, and where they belong."""

import os
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import NotFoundError
from weft.model.ids import GLOBAL_PROJECT, ProjectID, SessionID
from weft.model.project import Place, Project
from weft.model.session import Session
from weft.project.facts import Adoption, Alias, alias_from_plain, alias_key
from weft.project.look import follow
from weft.project.resolve import adopted
from weft.store.contract import Store


class Stray(Struct, frozen=True, kw_only=True):
    """A session that is to belong to another project than it is recorded under."""

    session: Session
    project: ProjectID
    directory: str = ""


class Surroundings(Struct, frozen=True, kw_only=True):
    """All projects, where each was last seen, and all sessions."""

    projects: Sequence[Project]
    aliases: Mapping[ProjectID, Alias]
    sessions: Sequence[Session]

    def recordless(self) -> list[ProjectID]:
        """Ids that sessions are recorded under, and that no record explains."""
        known = {project.id for project in self.projects}
        named = {session.project_id for session in self.sessions}
        return sorted(named - known - {GLOBAL_PROJECT})


async def look_around(store: Store) -> Surroundings:
    projects = await store.list_projects()
    kept = {project.id: alias_from_plain(await store.kept(alias_key(project.id))) for project in projects}
    return Surroundings(
        projects=projects,
        aliases={id: alias for id, alias in kept.items() if alias is not None},
        sessions=await store.list_sessions(),
    )


def find_strays(around: Surroundings) -> list[Stray]:
    """Sessions under `global`, or under an id without a record, that were held in a project's checkouts."""
    sources = (GLOBAL_PROJECT, *around.recordless())
    homeless = [session for session in around.sessions if session.project_id in sources]
    found: dict[SessionID, Stray] = {}
    for project in around.projects:
        if project.id != GLOBAL_PROJECT:
            for session in adopted(_adoption(project, sources, around), homeless):
                found.setdefault(session.id, Stray(session=session, project=project.id))
    return list(found.values())


def _adoption(project: Project, sources: tuple[ProjectID, ...], around: Surroundings) -> Adoption:
    alias = around.aliases.get(project.id)
    home = alias.worktree if alias else project.worktree
    common_dir = alias.common_dir if alias else ""
    if not common_dir and os.path.exists(os.path.join(home, ".git")):
        common_dir = follow(home)[1]
    others = [
        around.aliases[each.id].worktree if each.id in around.aliases else each.worktree
        for each in around.projects
        if each.id not in (project.id, GLOBAL_PROJECT)
    ]
    return Adoption(
        project=project.id,
        sources=sources,
        tops=tuple(dict.fromkeys([home, project.worktree, *project.sandboxes])),
        common_dir=common_dir,
        strangers=tuple(others),
    )


async def list_family(store: Store, ids: Sequence[SessionID]) -> list[Session]:
    """The sessions named, and all that were started from them."""
    sessions = await store.list_sessions()
    known = {session.id for session in sessions}
    for id in ids:
        if id not in known:
            raise NotFoundError("session", id, hint="see them all: weft session list --all")
    wanted = set(ids)
    while more := {each.id for each in sessions if each.parent_id in wanted} - wanted:
        wanted |= more
    return [session for session in sessions if session.id in wanted]


def to_strays(sessions: Sequence[Session], place: Place) -> list[Stray]:
    """What it takes for these to belong to a place. One whose directory is gone is held in the place from now on."""
    strays: list[Stray] = []
    for session in sessions:
        gone = not os.path.isdir(session.directory)
        if session.project_id != place.project.id or gone:
            directory = place.directory if gone else ""
            strays.append(Stray(session=session, project=place.project.id, directory=directory))
    return strays


async def adopt(store: Store, strays: Sequence[Stray]) -> list[Session]:
    """Record them where they belong."""
    return [await store.edit(stray.session.id, partial(_placed, stray)) for stray in strays]


def _placed(stray: Stray, session: Session) -> Session:
    return replace(session, project_id=stray.project, directory=stray.directory or session.directory)


async def merge(store: Store, source: ProjectID, target: ProjectID) -> list[Session]:
    """Every session of one project becomes one of another's. The project's record stays, with no sessions."""
    if await store.find_project(target) is None:
        raise NotFoundError("project", target, hint="see them all: weft project list")
    sessions = await store.list_sessions(source)
    return await adopt(store, [Stray(session=session, project=target) for session in sessions])
