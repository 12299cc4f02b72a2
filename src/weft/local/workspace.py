"""The workspace around sessions: project, branch, agents, tools and helper programs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from weft.config.secrets import list_secret_values, redact_settings
from weft.errors import GitError, NotFoundError, UnsupportedError
from weft.host.git import Git
from weft.host.tasks import OnDemand
from weft.local.tools import ToolHelpers
from weft.local.workspace_sources import WorkspaceSources
from weft.model.agent import AgentInfo, Skill
from weft.model.damage import Damage
from weft.model.event import ProjectUpdated
from weft.model.health import DoctorFinding, StorageReport
from weft.model.ids import ProjectID
from weft.model.part import ModelRef
from weft.model.project import Project
from weft.model.trust import TrustReport
from weft.model.workspace import (
    AnyMcpStatus,
    FormatterStatus,
    LspStatus,
    ProjectChange,
    ToolInfo,
    Vcs,
    WorkspacePaths,
)
from weft.run.request import make_audience, to_specs
from weft.run.runtime import Runtime
from weft.tool.contract import schema_of
from weft.trust.decision import ProjectTrust, get_trust, make_report, trust_as_reported

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.local.mcp import LocalMcp


# The key that `check_store` writes and removes.
PROBE = ("weft-probe",)


class LocalWorkspace(Struct, frozen=True, kw_only=True):
    """The `Workspace` of a directory."""

    runtime: Runtime
    sources: WorkspaceSources
    helpers: ToolHelpers
    mcp: OnDemand[LocalMcp]

    async def get_paths(self) -> WorkspacePaths:
        paths, place = self.sources.paths, self.runtime.place
        return WorkspacePaths(
            home=paths.os_home,
            state=paths.state,
            config=paths.config,
            data=paths.data,
            worktree=place.worktree,
            directory=place.directory,
        )

    async def get_vcs(self) -> Vcs:
        if self.runtime.place.project.vcs is None:
            return Vcs()
        git, worktree = Git(self.sources.env), self.runtime.place.worktree
        try:
            return Vcs(branch=await asyncio.to_thread(git.find_branch, worktree))
        except GitError:
            return Vcs()  # git is missing, or the repository is gone: front ends then show no branch

    async def check_store(self) -> None:
        for value in ({"at": self.runtime.clock.now()}, None):  # the second write removes the first
            await self.runtime.store.put_value(PROBE, value)

    async def list_damage(self) -> list[Damage]:
        return await self.runtime.store.damage()

    async def list_findings(self) -> list[DoctorFinding]:
        from weft.local.health import list_findings  # noqa: PLC0415  few calls examine the store
        from weft.maintenance.environment import DoctorInput  # noqa: PLC0415  few calls examine the store

        sources = self._get_files("examining the store")
        await self.runtime.journal.flush()
        input = DoctorInput(
            env=sources.env,
            paths=sources.paths,
            directory=self.runtime.place.directory,
            url=sources.store,
            now=self.runtime.clock.now(),
        )
        return await asyncio.to_thread(list_findings, input)

    async def measure_storage(self) -> StorageReport:
        from weft.local.health import measure_storage  # noqa: PLC0415  few calls measure the store

        sources = self._get_files("measuring the store")
        await self.runtime.journal.flush()
        return await asyncio.to_thread(measure_storage, sources.store, sources.paths)

    # --- trust ---

    async def get_trust(self) -> TrustReport:
        return await asyncio.to_thread(make_report, self._open_trust())

    async def trust(self, fingerprint: str) -> TrustReport:
        return await asyncio.to_thread(
            trust_as_reported, self._open_trust(), fingerprint, self.runtime.clock.now()
        )

    async def revoke_trust(self) -> TrustReport:
        trust = self._open_trust()
        await asyncio.to_thread(trust.revoke)
        return await asyncio.to_thread(make_report, trust)

    def _open_trust(self) -> ProjectTrust:
        sources = self._get_files("trusting a project")
        return get_trust(self.runtime.place.directory, sources.env)

    def _get_files(self, what: str) -> WorkspaceSources:
        """Return the sources. Raise `UnsupportedError` in a program that works without files."""
        if not self.sources.store or not self.sources.paths.data:
            raise UnsupportedError(f"{what}, in a program without files")
        return self.sources

    # --- projects ---

    async def list_projects(self) -> list[Project]:
        return await self.runtime.store.list_projects()

    async def update_project(self, id: ProjectID, change: ProjectChange) -> Project:
        found = next((each for each in await self.list_projects() if each.id == id), None)
        if found is None:
            raise NotFoundError("project", id[:80])
        changes = {
            name: value
            for name in ("name", "icon", "commands")
            if (value := getattr(change, name)) is not None
        }
        time = replace(found.time, updated=self.runtime.clock.now())
        changed = replace(found, time=time, **changes)
        await self.runtime.journal.commit(ProjectUpdated(info=changed))
        return changed

    # --- agents, skills and tools ---

    async def list_agents(self) -> list[AgentInfo]:
        first = self.runtime.default_agent
        found = sorted(self.runtime.agents.values(), key=lambda agent: agent.name != first)
        # A prompt or an option may contain a secret through `{env:…}`.
        secrets = list_secret_values(self.sources.env)
        return [
            replace(
                agent,
                options=redact_settings(agent.options, secrets=secrets),
                prompt=redact_settings(agent.prompt, secrets=secrets),
            )
            for agent in found
        ]

    async def list_skills(self) -> list[Skill]:
        return list(await asyncio.to_thread(self.sources.skills))

    async def list_tools(self, model: ModelRef | None = None) -> list[ToolInfo]:
        available = {**self.runtime.tools, **self.runtime.mcp().tools()}
        tools = [tool for tool in available.values() if not tool.hidden]
        if model is None:
            return [
                ToolInfo(id=tool.name, description=tool.about, parameters=schema_of(tool)) for tool in tools
            ]
        agent, found = self.runtime.agents[self.runtime.default_agent], self.runtime.models.get(model).model
        specs = to_specs(tools, make_audience(self.runtime, agent, found))
        return [
            ToolInfo(id=spec.name, description=spec.about, parameters=dict(spec.schema)) for spec in specs
        ]

    # --- helper programs ---

    async def list_lsp(self) -> list[LspStatus]:
        return [
            LspStatus(id=name, name=name, root=root, status="error" if broken else "connected")
            for name, root, broken in self.helpers.programs.get().language_servers.list_servers()
        ]

    async def list_formatters(self) -> list[FormatterStatus]:
        found = await asyncio.to_thread(self.helpers.programs.get().formatters.list_formatters)
        return [FormatterStatus(name=name, extensions=endings, enabled=used) for name, endings, used in found]

    async def list_mcp(self) -> dict[str, AnyMcpStatus]:
        return await self.mcp.get().list_servers(connect=True)
