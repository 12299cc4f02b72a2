"""Values in the words of OpenCode 1.18, made from ours."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Literal

from weft.model.agent import Agent, Mode
from weft.model.around.files import Kind
from weft.model.around.place import Whereabouts
from weft.model.around.provider import ListedModel, ProviderInfo
from weft.model.catalog import CachePrice, Limit, Modalities
from weft.model.part import CacheTokens, Tokens
from weft.model.project import Project
from weft.model.session import Session, SessionTime, own_of
from weft.model.spent import Spent
from weft.model.wire import Wire, always


class ProjectPlace(Wire, frozen=True, kw_only=True):
    id: str
    directory: str


class Location(Wire, frozen=True, kw_only=True):
    directory: str
    project: ProjectPlace


class Request(Wire, frozen=True, kw_only=True):
    headers: dict[str, str] = always({})
    body: dict[str, Any] = always({})


class NamedModel(Wire, frozen=True, kw_only=True):
    id: str
    provider_id: str


class RuleInfo(Wire, frozen=True, kw_only=True):
    action: str
    resource: str
    effect: str


class AgentInfo(Wire, frozen=True, kw_only=True):
    id: str
    model: NamedModel | None = None
    request: Request
    system: str | None = None
    description: str | None = None
    mode: Mode
    hidden: bool = always(False)
    color: str | None = None
    steps: int | None = None
    permissions: tuple[RuleInfo, ...]


class Api(Wire, frozen=True, kw_only=True):
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
    api: Api
    capabilities: Abilities
    request: Request
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
    request: Request


class Way(Wire, frozen=True, kw_only=True):
    type: Literal["key"]
    label: str


class IntegrationInfo(Wire, frozen=True, kw_only=True):
    id: str
    name: str
    methods: tuple[Way, ...]
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


class Entry(Wire, frozen=True, kw_only=True):
    path: str
    type: Kind


class LocationRef(Wire, frozen=True, kw_only=True):
    directory: str


class SessionInfo(Wire, frozen=True, kw_only=True):
    id: str
    parent_id: str | None = None
    project_id: str
    cost: Decimal
    tokens: Tokens
    time: SessionTime
    title: str
    location: LocationRef


class SessionPage(Wire, frozen=True, kw_only=True):
    data: tuple[SessionInfo, ...]
    cursor: dict[str, str]


def place_of(place: Whereabouts, project: Project) -> Location:
    return Location(
        directory=place.directory, project=ProjectPlace(id=project.id, directory=project.worktree)
    )


def to_agent(agent: Agent) -> AgentInfo:
    model = agent.model
    return AgentInfo(
        id=agent.name,
        model=None if model is None else NamedModel(id=model.model_id, provider_id=model.provider_id),
        request=Request(),
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
    can, cost = model.capabilities, model.cost
    return ModelInfo(
        id=model.id,
        provider_id=model.provider_id,
        family=model.family,
        name=model.name,
        api=Api(id=model.api.id, type="aisdk", package=model.api.npm, url=model.api.url or None),
        capabilities=Abilities(
            tools=can.toolcall, input=tuple(_kinds(can.input)), output=tuple(_kinds(can.output))
        ),
        request=Request(),
        variants=tuple(VariantInfo(id=name) for name in model.variants or {}),
        time={"released": 0},
        cost=(PriceInfo(input=cost.input, output=cost.output, cache=cost.cache),)
        if cost is not None and model.priced
        else (),
        status=model.status,
        enabled=True,
        limit=model.limit,
    )


def _kinds(modalities: Modalities) -> Iterator[str]:
    return (name for name in ("text", "audio", "image", "video", "pdf") if getattr(modalities, name))


def to_provider(provider: ProviderInfo) -> ProviderShort:
    package = next((model.api.npm for model in provider.models.values()), "")
    return ProviderShort(
        id=provider.id, name=provider.name, api=ProviderApi(type="aisdk", package=package), request=Request()
    )


def to_integration(provider: ProviderInfo, *, connected: bool) -> IntegrationInfo:
    named = {"type": "env", "name": provider.env[0]} if provider.env and provider.source == "env" else None
    return IntegrationInfo(
        id=provider.id,
        name=provider.name,
        methods=(Way(type="key", label="API key"),),
        connections=(named,) if connected and named is not None else (),
    )


def to_session(session: Session) -> SessionInfo:
    ledger = own_of(session).spent
    spent = Spent() if ledger is None else ledger.own
    return SessionInfo(
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
