"""HTTP for the project and its place."""

from weft.errors import NotFoundError
from weft.model.around.files import FileChange
from weft.model.around.place import ProjectChange, Vcs, Whereabouts
from weft.model.ids import ProjectID
from weft.model.project import Project
from weft.model.wire import Wire
from weft.server.route import Call, route

PROJECT = "/project/{projectID}"


class ProjectDirectory(Wire, frozen=True, kw_only=True):
    directory: str


class ChangedFile(Wire, frozen=True, kw_only=True):
    """A file that is not as committed, in the words of later versions."""

    file: str
    additions: int
    deletions: int
    status: str


async def list_projects(call: Call) -> list[Project]:
    """Every project there is."""
    return await call.api.surroundings.list_projects()


async def current_project(call: Call) -> Project:
    """The project of this directory."""
    return await call.api.current_project()


async def update_project(call: Call) -> Project:
    """Give a project a name, a picture or a command to start with."""
    change: ProjectChange = call.body
    return await call.api.surroundings.update_project(ProjectID(call.names["projectID"]), change)


async def list_directories(call: Call) -> list[ProjectDirectory]:
    """The checkouts of a project."""
    id = call.names["projectID"]
    for project in [await call.api.current_project(), *await call.api.surroundings.list_projects()]:
        if project.id == id:
            found = dict.fromkeys((project.worktree, *project.sandboxes))
            return [ProjectDirectory(directory=each) for each in found]
    raise NotFoundError("project", id[:80])


async def get_path(call: Call) -> Whereabouts:
    """Where we are, and where things are kept."""
    return await call.api.surroundings.get_whereabouts()


async def get_vcs(call: Call) -> Vcs:
    """What version control says."""
    return await call.api.surroundings.get_vcs()


async def list_vcs_status(call: Call) -> list[ChangedFile]:
    """The files that are not as committed."""
    return [_to_changed(each) for each in await call.api.files.list_changed()]


def _to_changed(change: FileChange) -> ChangedFile:
    return ChangedFile(
        file=change.path, additions=change.added, deletions=change.removed, status=change.status
    )


ROUTES = (
    route("GET", "/project", "project.list", list_projects),
    route("GET", "/project/current", "project.current", current_project),
    route("PATCH", PROJECT, "project.update", update_project, takes=ProjectChange),
    route("GET", f"{PROJECT}/directories", "project.directories", list_directories),
    route("GET", "/path", "path.get", get_path),
    route("GET", "/vcs", "vcs.get", get_vcs),
    route("GET", "/vcs/status", "vcs.status", list_vcs_status),
)
