"""HTTP routes of OpenCode 1.18 under `/api`, as far as its terminal and web clients call them."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import InvalidInputError
from weft.model.agent import AgentInfo, Command, Mode
from weft.model.catalog import CachePrice, Limit, Modalities
from weft.model.ids import ProjectID
from weft.model.part import CacheTokens, Tokens
from weft.model.project import Project
from weft.model.provider import ListedModel, ProviderInfo
from weft.model.session import SessionInfo, SessionTime, get_weft_data
from weft.model.session_query import SessionQuery, parse_cursor, to_cursor
from weft.model.spending import Spent
from weft.model.wire import Wire, always
from weft.model.workspace import Kind, WorkspacePaths
from weft.server.route import DirectoryCall, ServerCall, route


class ProjectPlace(Wire, frozen=True, kw_only=True):
    id: str
    directory: str


class Location(Wire, frozen=True, kw_only=True):
    directory: str
    project: ProjectPlace


class RequestOptions(Wire, frozen=True, kw_only=True):
    headers: dict[str, str] = always({})
    body: dict[str, Any] = always({})


class NamedModel(Wire, frozen=True, kw_only=True):
    id: str
    provider_id: str


class RuleInfo(Wire, frozen=True, kw_only=True):
    action: str
    resource: str
    effect: str


class AgentV2Info(Wire, frozen=True, kw_only=True):
    id: str
    model: NamedModel | None = None
    request: RequestOptions
    system: str | None = None
    description: str | None = None
    mode: Mode
    hidden: bool = always(False)
    color: str | None = None
    steps: int | None = None
    permissions: tuple[RuleInfo, ...]


class ModelApiInfo(Wire, frozen=True, kw_only=True):
    id: str
    type: Literal["aisdk"]
    package: str
    url: str | None = None


class Abilities(Wire, frozen=True, kw_only=True):
    tools: bool
    input: tuple[str, ...]
    output: tuple[str, ...]


class PriceInfo(Wire, frozen=True, kw_only=True):
    input: Decimal
    output: Decimal
    cache: CachePrice


class VariantInfo(Wire, frozen=True, kw_only=True):
    id: str
    headers: dict[str, str] = always({})
    body: dict[str, Any] = always({})


class ModelInfo(Wire, frozen=True, kw_only=True):
    id: str
    provider_id: str
    family: str | None = None
    name: str
    api: ModelApiInfo
    capabilities: Abilities
    request: RequestOptions
    variants: tuple[VariantInfo, ...]
    time: dict[str, int]
    cost: tuple[PriceInfo, ...]
    status: str
    enabled: bool
    limit: Limit


class ProviderApi(Wire, frozen=True, kw_only=True):
    type: Literal["aisdk"]
    package: str


class ProviderShort(Wire, frozen=True, kw_only=True):
    id: str
    name: str
    api: ProviderApi
    request: RequestOptions


class LoginMethodInfo(Wire, frozen=True, kw_only=True):
    type: Literal["key"]
    label: str


class IntegrationInfo(Wire, frozen=True, kw_only=True):
    id: str
    name: str
    methods: tuple[LoginMethodInfo, ...]
    connections: tuple[dict[str, str], ...]


class CommandInfo(Wire, frozen=True, kw_only=True):
    name: str
    template: str
    description: str | None = None
    agent: str | None = None
    subtask: bool | None = None


class SkillInfo(Wire, frozen=True, kw_only=True):
    name: str
    description: str | None = None
    location: str
    content: str


class DirectoryEntry(Wire, frozen=True, kw_only=True):
    path: str
    type: Kind


class LocationRef(Wire, frozen=True, kw_only=True):
    directory: str


class SessionV2Info(Wire, frozen=True, kw_only=True):
    id: str
    parent_id: str | None = None
    project_id: str
    cost: Decimal
    tokens: Tokens
    time: SessionTime
    title: str
    location: LocationRef


class SessionPage(Wire, frozen=True, kw_only=True):
    data: tuple[SessionV2Info, ...]
    cursor: dict[str, str]


def to_location(paths: WorkspacePaths, project: Project) -> Location:
    return Location(
        directory=paths.directory, project=ProjectPlace(id=project.id, directory=project.worktree)
    )


def to_agent(agent: AgentInfo) -> AgentV2Info:
    model = agent.model
    return AgentV2Info(
        id=agent.name,
        model=None if model is None else NamedModel(id=model.model_id, provider_id=model.provider_id),
        request=RequestOptions(),
        system=agent.prompt,
        description=agent.description,
        mode=agent.mode,
        hidden=agent.hidden,
        color=agent.color,
        steps=agent.steps,
        permissions=tuple(
            RuleInfo(action=rule.permission, resource=rule.pattern, effect=rule.action)
            for rule in agent.permission
        ),
    )


def to_model(model: ListedModel) -> ModelInfo:
    capabilities, cost = model.capabilities, model.cost
    return ModelInfo(
        id=model.id,
        provider_id=model.provider_id,
        family=model.family,
        name=model.name,
        api=ModelApiInfo(id=model.api.id, type="aisdk", package=model.api.npm, url=model.api.url or None),
        capabilities=Abilities(
            tools=capabilities.toolcall,
            input=tuple(_list_modalities(capabilities.input)),
            output=tuple(_list_modalities(capabilities.output)),
        ),
        request=RequestOptions(),
        variants=tuple(VariantInfo(id=name) for name in model.variants or {}),
        time={"released": 0},
        cost=(PriceInfo(input=cost.input, output=cost.output, cache=cost.cache),)
        if cost is not None and model.priced
        else (),
        status=model.status,
        enabled=True,
        limit=model.limit,
    )


def _list_modalities(modalities: Modalities) -> Iterator[str]:
    return (name for name in ("text", "audio", "image", "video", "pdf") if getattr(modalities, name))


def to_provider(provider: ProviderInfo) -> ProviderShort:
    package = next((model.api.npm for model in provider.models.values()), "")
    return ProviderShort(
        id=provider.id,
        name=provider.name,
        api=ProviderApi(type="aisdk", package=package),
        request=RequestOptions(),
    )


def to_integration(provider: ProviderInfo, *, connected: bool) -> IntegrationInfo:
    connection = (
        {"type": "env", "name": provider.env[0]} if provider.env and provider.source == "env" else None
    )
    return IntegrationInfo(
        id=provider.id,
        name=provider.name,
        methods=(LoginMethodInfo(type="key", label="API key"),),
        connections=(connection,) if connected and connection is not None else (),
    )


def to_session(session: SessionInfo) -> SessionV2Info:
    ledger = get_weft_data(session).spent
    spent = Spent() if ledger is None else ledger.own
    return SessionV2Info(
        id=session.id,
        parent_id=session.parent_id,
        project_id=session.project_id,
        cost=spent.cost,
        tokens=Tokens(
            input=spent.input,
            output=spent.output,
            reasoning=spent.reasoning,
            cache=CacheTokens(read=spent.cache_read, write=spent.cache_write),
        ),
        time=session.time,
        title=session.title,
        location=LocationRef(directory=session.directory),
    )


T = TypeVar("T")

DEFAULT_LIMIT = 100
MAX_SESSIONS = 5000


class LocatedData(Wire, Generic[T], frozen=True, kw_only=True):
    """A value, and the location it is valid for."""

    location: Location
    data: T


class Healthy(Wire, frozen=True, kw_only=True):
    healthy: bool


class FindQuery(Struct, frozen=True, kw_only=True):
    query: str
    type: Kind | None = None
    limit: int | None = None


class DirectoryQuery(Struct, frozen=True, kw_only=True):
    path: str | None = None


class PageQuery(Struct, frozen=True, kw_only=True):
    """`cursor` is the `next` of the previous page."""

    limit: int | None = None
    order: Literal["asc", "desc"] = "desc"
    search: str | None = None
    project: ProjectID | None = None
    directory: str | None = None
    cursor: str | None = None


async def get_health(call: ServerCall) -> Healthy:
    """Return that the server answers."""
    del call
    return Healthy(healthy=True)


async def get_location(call: DirectoryCall) -> Location:
    """Return the directory and its project."""
    return await _get_location(call)


async def list_agents(call: DirectoryCall) -> LocatedData[list[AgentV2Info]]:
    """List the agents."""
    agents = await call.api.workspace.list_agents()
    return LocatedData(location=await _get_location(call), data=[to_agent(agent) for agent in agents])


async def list_models(call: DirectoryCall) -> LocatedData[list[ModelInfo]]:
    """List the models that can be used now."""
    models = [to_model(model) for each in await _list_connected(call) for model in each.models.values()]
    return LocatedData(location=await _get_location(call), data=models)


async def list_providers(call: DirectoryCall) -> LocatedData[list[ProviderShort]]:
    """List the providers that can be used now."""
    providers = [to_provider(each) for each in await _list_connected(call)]
    return LocatedData(location=await _get_location(call), data=providers)


async def list_integrations(call: DirectoryCall) -> LocatedData[list[IntegrationInfo]]:
    """List all providers with their login methods."""
    providers = await call.api.configuration.list_providers()
    integrations = [to_integration(each, connected=each.id in providers.connected) for each in providers.all]
    return LocatedData(location=await _get_location(call), data=integrations)


async def list_references(call: DirectoryCall) -> LocatedData[list[dict[str, Any]]]:
    """List other locations that agents may read: none."""
    return LocatedData(location=await _get_location(call), data=[])


async def list_commands(call: DirectoryCall) -> LocatedData[list[CommandInfo]]:
    """List the commands."""
    commands = [_to_command(command) for command in await call.api.list_commands()]
    return LocatedData(location=await _get_location(call), data=commands)


async def list_skills(call: DirectoryCall) -> LocatedData[list[SkillInfo]]:
    """List the skills. Their content is read when an agent loads one."""
    skills = [
        SkillInfo(name=skill.name, description=skill.description, location=skill.location, content="")
        for skill in await call.api.workspace.list_skills()
    ]
    return LocatedData(location=await _get_location(call), data=skills)


async def find_entries(call: DirectoryCall) -> LocatedData[list[DirectoryEntry]]:
    """Find files and directories by letters of their names."""
    query: FindQuery = call.query
    limit = min(max(query.limit or DEFAULT_LIMIT, 1), DEFAULT_LIMIT)
    names = await call.api.files.find_files(query.query, kind=query.type, limit=limit)
    return LocatedData(location=await _get_location(call), data=[_to_entry(name) for name in names])


async def list_entries(call: DirectoryCall) -> LocatedData[list[DirectoryEntry]]:
    """List a directory."""
    query: DirectoryQuery = call.query
    nodes = await call.api.files.list_directory(query.path or ".")
    return LocatedData(
        location=await _get_location(call),
        data=[DirectoryEntry(path=node.path, type=node.type) for node in nodes],
    )


async def list_sessions(call: DirectoryCall) -> SessionPage:
    """List the sessions of every project, most recently updated first."""
    query: PageQuery = call.query
    if query.limit is not None and query.limit < 1:
        raise InvalidInputError("limit", "it is less than one")
    size = min(query.limit or DEFAULT_LIMIT, MAX_SESSIONS)
    selection = SessionQuery(
        project_id=query.project or None,
        everywhere=True,
        directory=query.directory or None,
        search=query.search or None,
        order="updated",
    )
    if query.order == "asc":
        found = _continue_oldest_first(await call.api.list_sessions(selection), query.cursor)
    else:
        page_query = replace(selection, after=query.cursor or None, limit=size + 1)
        found = await call.api.list_sessions(page_query)
    cursor = {"next": to_cursor(found[size - 1], "updated")} if len(found) > size else {}
    return SessionPage(data=tuple(to_session(session) for session in found[:size]), cursor=cursor)


def _continue_oldest_first(newest_first: list[SessionInfo], cursor: str | None) -> list[SessionInfo]:
    """Return the sessions after a cursor, oldest first. A store sorts newest first, so this order has to read all of them."""
    found = list(reversed(newest_first))
    if not cursor:
        return found
    time, id = parse_cursor(cursor)
    return [each for each in found if (-each.time.updated, each.id) < (-time, id)]


def _to_command(command: Command) -> CommandInfo:
    return CommandInfo(
        name=command.name,
        template=command.template,
        description=command.description,
        agent=command.agent,
        subtask=command.subtask,
    )


def _to_entry(name: str) -> DirectoryEntry:
    return DirectoryEntry(path=name.rstrip("/"), type="directory" if name.endswith("/") else "file")


async def _list_connected(call: DirectoryCall) -> list[ProviderInfo]:
    providers = await call.api.configuration.list_providers()
    return [each for each in providers.all if each.id in providers.connected]


async def _get_location(call: DirectoryCall) -> Location:
    return to_location(await call.api.workspace.get_paths(), await call.api.current_project())


ROUTES = (
    route("GET", "/api/health", "v2.health.get", get_health),
    route("GET", "/api/location", "v2.location.get", get_location),
    route("GET", "/api/agent", "v2.agent.list", list_agents),
    route("GET", "/api/model", "v2.model.list", list_models),
    route("GET", "/api/provider", "v2.provider.list", list_providers),
    route("GET", "/api/integration", "v2.integration.list", list_integrations),
    route("GET", "/api/reference", "v2.reference.list", list_references),
    route("GET", "/api/command", "v2.command.list", list_commands),
    route("GET", "/api/skill", "v2.skill.list", list_skills),
    route("GET", "/api/session", "v2.session.list", list_sessions, query=PageQuery),
)

FILE_ROUTES = (
    route("GET", "/api/fs/find", "v2.fs.find", find_entries, query=FindQuery),
    route("GET", "/api/fs/list", "v2.fs.list", list_entries, query=DirectoryQuery),
)
