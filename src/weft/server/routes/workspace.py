"""HTTP for the project, its agents, skills, tools and helper programs."""

from msgspec import Struct

from weft.errors import NotFoundError
from weft.model.agent import Agent, Skill
from weft.model.ids import ProjectID
from weft.model.part import ModelRef
from weft.model.project import Project
from weft.model.wire import Wire
from weft.model.workspace import (
    FileChange,
    FormatterStatus,
    LspStatus,
    ProjectChange,
    ToolInfo,
    Vcs,
    Whereabouts,
)
from weft.server.route import Call, route


class ToolQuery(Struct, frozen=True, kw_only=True):
    provider: str
    model: str


async def list_agents(call: Call) -> list[Agent]:
    """The agents there are, the one that is used when none is named first."""
    return await call.api.surroundings.list_agents()


async def list_skills(call: Call) -> list[Skill]:
    """The skills there are."""
    return await call.api.surroundings.list_skills()


async def list_lsp(call: Call) -> list[LspStatus]:
    """The language servers that were started."""
    return await call.api.surroundings.list_lsp()


async def list_formatters(call: Call) -> list[FormatterStatus]:
    """The formatters there are, and whether they are used here."""
    return await call.api.surroundings.list_formatters()


async def list_tool_ids(call: Call) -> list[str]:
    """The names of the tools there are."""
    return [tool.id for tool in await call.api.surroundings.list_tools()]


async def list_tools(call: Call) -> list[ToolInfo]:
    """The tools as a model is told of them."""
    asked: ToolQuery = call.query
    model = ModelRef(provider_id=asked.provider, model_id=asked.model)
    return await call.api.surroundings.list_tools(model)


OUTFIT_ROUTES = (
    route("GET", "/agent", "app.agents", list_agents),
    route("GET", "/skill", "app.skills", list_skills),
    route("GET", "/lsp", "lsp.status", list_lsp),
    route("GET", "/formatter", "formatter.status", list_formatters),
    route("GET", "/experimental/tool/ids", "tool.ids", list_tool_ids),
    route("GET", "/experimental/tool", "tool.list", list_tools, query=ToolQuery),
)


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


PROJECT_ROUTES = (
    route("GET", "/project", "project.list", list_projects),
    route("GET", "/project/current", "project.current", current_project),
    route("PATCH", PROJECT, "project.update", update_project, takes=ProjectChange),
    route("GET", f"{PROJECT}/directories", "project.directories", list_directories),
    route("GET", "/path", "path.get", get_path),
    route("GET", "/vcs", "vcs.get", get_vcs),
    route("GET", "/vcs/status", "vcs.status", list_vcs_status),
)
