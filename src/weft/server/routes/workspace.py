"""HTTP routes for the project, its agents, skills, commands, tools, helper programs and trust, and for the health of its store."""

from msgspec import Struct

from weft.errors import NotFoundError
from weft.model.agent import AgentInfo, Command, Skill
from weft.model.damage import Damage
from weft.model.health import DoctorFinding, StorageReport
from weft.model.ids import ProjectID
from weft.model.part import ModelRef
from weft.model.project import Project
from weft.model.trust import TrustReport
from weft.model.wire import Wire
from weft.model.workspace import (
    FileChange,
    FormatterStatus,
    LspStatus,
    ProjectChange,
    ToolInfo,
    Vcs,
    WorkspacePaths,
)
from weft.server.route import DirectoryCall, route


class ToolQuery(Struct, frozen=True, kw_only=True):
    provider: str
    model: str


async def list_agents(call: DirectoryCall) -> list[AgentInfo]:
    """List the agents, the default one first."""
    return await call.api.workspace.list_agents()


async def list_skills(call: DirectoryCall) -> list[Skill]:
    """List the skills."""
    return await call.api.workspace.list_skills()


async def list_lsp(call: DirectoryCall) -> list[LspStatus]:
    """List the language servers that were started."""
    return await call.api.workspace.list_lsp()


async def list_formatters(call: DirectoryCall) -> list[FormatterStatus]:
    """List the formatters, and whether each is used here."""
    return await call.api.workspace.list_formatters()


async def list_tool_ids(call: DirectoryCall) -> list[str]:
    """List the names of the tools."""
    return [tool.id for tool in await call.api.workspace.list_tools()]


async def list_tools(call: DirectoryCall) -> list[ToolInfo]:
    """List the tools as a model sees them."""
    query: ToolQuery = call.query
    model = ModelRef(provider_id=query.provider, model_id=query.model)
    return await call.api.workspace.list_tools(model)


TOOLING_ROUTES = (
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
    """A file that differs from the last commit, in the form of later versions."""

    file: str
    additions: int
    deletions: int
    status: str


async def list_projects(call: DirectoryCall) -> list[Project]:
    """List every known project."""
    return await call.api.workspace.list_projects()


async def current_project(call: DirectoryCall) -> Project:
    """Return the project of this directory."""
    return await call.api.current_project()


async def update_project(call: DirectoryCall) -> Project:
    """Change the name, the icon or the start command of a project."""
    change: ProjectChange = call.body
    return await call.api.workspace.update_project(ProjectID(call.path_params["projectID"]), change)


async def list_directories(call: DirectoryCall) -> list[ProjectDirectory]:
    """List the checkouts of a project."""
    id = call.path_params["projectID"]
    for project in [await call.api.current_project(), *await call.api.workspace.list_projects()]:
        if project.id == id:
            directories = dict.fromkeys((project.worktree, *project.sandboxes))
            return [ProjectDirectory(directory=each) for each in directories]
    raise NotFoundError("project", id[:80])


async def get_path(call: DirectoryCall) -> WorkspacePaths:
    """Return the directories of the project and of the server."""
    return await call.api.workspace.get_paths()


async def get_vcs(call: DirectoryCall) -> Vcs:
    """Return the state of version control."""
    return await call.api.workspace.get_vcs()


async def list_vcs_status(call: DirectoryCall) -> list[ChangedFile]:
    """List the files that differ from the last commit."""
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


# --- what OpenCode does not have ---


async def get_command(call: DirectoryCall) -> Command:
    """Return a command."""
    return await call.api.get_command(call.path_params["name"])


async def list_all_tools(call: DirectoryCall) -> list[ToolInfo]:
    """List the tools of this project, as models see them."""
    return await call.api.workspace.list_tools()


async def list_damage(call: DirectoryCall) -> list[Damage]:
    """List stored documents that cannot be read, with the reason. This reads every document."""
    return await call.api.workspace.list_damage()


async def list_findings(call: DirectoryCall) -> list[DoctorFinding]:
    """Examine machine, configuration and store, and list each problem with its repair. This reads every document."""
    return await call.api.workspace.list_findings()


async def measure_storage(call: DirectoryCall) -> StorageReport:
    """Return the space that the store takes: by kind, by project, and the largest sessions."""
    return await call.api.workspace.measure_storage()


class TrustInput(Wire, frozen=True, kw_only=True):
    """The fingerprint of the report that was read."""

    fingerprint: str


async def get_trust(call: DirectoryCall) -> TrustReport:
    """Return whether the project is trusted, and what it brings along."""
    return await call.api.workspace.get_trust()


async def give_trust(call: DirectoryCall) -> TrustReport:
    """Trust the project as it was reported; 409 if it has changed since. The directory is opened again."""
    input: TrustInput = call.body
    report = await call.api.workspace.trust(input.fingerprint)
    await call.server.dispose(call.directory)
    return report


async def revoke_trust(call: DirectoryCall) -> TrustReport:
    """Stop trusting the project. The directory is opened again."""
    report = await call.api.workspace.revoke_trust()
    await call.server.dispose(call.directory)
    return report


WEFT_ROUTES = (
    route("GET", "/weft/damage", "weft.damage", list_damage, returns=list[Damage]),
    route("GET", "/weft/doctor", "weft.doctor", list_findings, returns=list[DoctorFinding]),
    route("GET", "/weft/storage", "weft.storage", measure_storage),
    route("GET", "/weft/trust", "weft.trust.get", get_trust),
    route("DELETE", "/weft/trust", "weft.trust.revoke", revoke_trust),
    route("GET", "/weft/command/{name}", "weft.command.get", get_command),
    route("GET", "/weft/tool", "weft.tool.list", list_all_tools),
)
# A trusted project may run programs of its own, so without a shell nobody can trust one from afar.
SHELL_ROUTES = (route("POST", "/weft/trust", "weft.trust.give", give_trust, takes=TrustInput),)
