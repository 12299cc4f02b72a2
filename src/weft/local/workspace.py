"""The workspace around sessions: project, branch, agents, tools and helper programs."""

import asyncio
from collections.abc import Callable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from weft.config.load import Loaded
from weft.config.secrets import mask, secret_values
from weft.config.sources import Situation
from weft.errors import GitError, NotFoundError
from weft.host.git import Git
from weft.host.paths import Paths
from weft.local.logins import Ways
from weft.local.tools import Aides
from weft.model.agent import Agent, Skill
from weft.model.damage import Damage
from weft.model.event import ProjectUpdated
from weft.model.ids import ProjectID
from weft.model.part import ModelRef
from weft.model.project import Project
from weft.model.workspace import (
    AnyMcpStatus,
    FormatterStatus,
    LspStatus,
    ProjectChange,
    ToolInfo,
    Vcs,
    Whereabouts,
)
from weft.outlook import Mcp
from weft.provider.catalog.offers import Offers
from weft.run.kit import Kit
from weft.run.request import audience_of, to_specs
from weft.tool.contract import schema_of
from weft.tool.registry import UNSEEN


def _no_skills() -> tuple[Skill, ...]:
    return ()


def _no_offers() -> None:
    return None


class Known(Struct, frozen=True, kw_only=True):
    """Nothing is known of a house that was put together by hand. `offers` and `skills` are looked for
    when they are called; `ways` are those to log in."""

    env: Mapping[str, str] = {}
    paths: Paths = Paths(data="", config="", cache="", state="", home="", os_home="")
    situation: Situation | None = None
    loaded: Loaded | None = None
    offers: Callable[[], Offers | None] = _no_offers
    skills: Callable[[], tuple[Skill, ...]] = _no_skills
    ways: Ways = field(default_factory=Ways)


# What is written to see whether anything can be.
PROBE = ("weft-probe",)


class Around(Struct, frozen=True, kw_only=True):
    """`Surroundings` over a kit and what was found on opening."""

    kit: Kit
    known: Known
    aides: Aides
    mcp: Mcp

    async def get_whereabouts(self) -> Whereabouts:
        paths, place = self.known.paths, self.kit.place
        return Whereabouts(
            home=paths.os_home,
            state=paths.state,
            config=paths.config,
            data=paths.data,
            worktree=place.worktree,
            directory=place.directory,
        )

    async def get_vcs(self) -> Vcs:
        if self.kit.place.project.vcs is None:
            return Vcs()
        git, worktree = Git(self.known.env), self.kit.place.worktree
        try:
            return Vcs(branch=await asyncio.to_thread(git.find_branch, worktree))
        except GitError:
            return Vcs()  # no git to be had, or no repository any more: a screen then shows no branch

    async def check_store(self) -> None:
        for value in ({"at": self.kit.clock.now()}, None):  # and nothing stays behind
            await self.kit.store.keep(PROBE, value)

    async def list_damage(self) -> list[Damage]:
        return await self.kit.store.damage()

    # --- projects ---

    async def list_projects(self) -> list[Project]:
        return await self.kit.store.list_projects()

    async def update_project(self, id: ProjectID, change: ProjectChange) -> Project:
        found = next((each for each in await self.list_projects() if each.id == id), None)
        if found is None:
            raise NotFoundError("project", id[:80])
        said = {
            name: value
            for name in ("name", "icon", "commands")
            if (value := getattr(change, name)) is not None
        }
        time = replace(found.time, updated=self.kit.clock.now())
        changed = replace(found, time=time, **said)
        await self.kit.journal.commit(ProjectUpdated(info=changed))
        return changed

    # --- who answers, and with what ---

    async def list_agents(self) -> list[Agent]:
        first = self.kit.default_agent
        found = sorted(self.kit.agents.values(), key=lambda agent: agent.name != first)
        # What a person wrote into a prompt by `{env:…}`, or into options, is theirs to see and nobody's to be sent.
        secrets = secret_values(self.known.env)
        return [
            replace(
                agent,
                options=mask(agent.options, secrets=secrets),
                prompt=mask(agent.prompt, secrets=secrets),
            )
            for agent in found
        ]

    async def list_skills(self) -> list[Skill]:
        return list(await asyncio.to_thread(self.known.skills))

    async def list_tools(self, model: ModelRef | None = None) -> list[ToolInfo]:
        there = {**self.kit.tools, **self.kit.guests.tools()}
        tools = [tool for name, tool in there.items() if name not in UNSEEN]
        if model is None:
            return [
                ToolInfo(id=tool.name, description=tool.about, parameters=schema_of(tool)) for tool in tools
            ]
        agent, asked = self.kit.agents[self.kit.default_agent], self.kit.models.get(model).model
        specs = to_specs(tools, audience_of(self.kit, agent, asked))
        return [
            ToolInfo(id=spec.name, description=spec.about, parameters=dict(spec.schema)) for spec in specs
        ]

    # --- programs that help ---

    async def list_lsp(self) -> list[LspStatus]:
        return [
            LspStatus(id=name, name=name, root=root, status="error" if broken else "connected")
            for name, root, broken in self.aides.lookout.list_servers()
        ]

    async def list_formatters(self) -> list[FormatterStatus]:
        found = await asyncio.to_thread(self.aides.tidy.list_formatters)
        return [FormatterStatus(name=name, extensions=endings, enabled=used) for name, endings, used in found]

    async def list_mcp(self) -> dict[str, AnyMcpStatus]:
        return await self.mcp.list_servers(connect=True)
