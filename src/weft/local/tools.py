"""The tools and helper programs that configuration and environment allow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from weft.config.flags import Flags
from weft.config.load import LoadedConfig
from weft.config.skills import read_skill
from weft.host.clock import Clock
from weft.host.tasks import OnDemand, open_on_demand
from weft.model.agent import Skill
from weft.model.project import Place
from weft.sandbox.policy import NO_SANDBOX, Sandbox
from weft.tool.inputs import DEFAULT_COMMAND_TIMEOUT_MS
from weft.tool.language_servers import Diagnostics
from weft.tool.registry import ToolSetup
from weft.tool.shell.jobs import BackgroundJobs, open_jobs
from weft.tool.skill import SkillSource
from weft.tool.websearch import SERVICE_URL

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.local.helper_programs import HelperPrograms


class HelperSettings(Struct, frozen=True, kw_only=True):
    """Where formatters and language servers are configured, whether the project's own programs may run, and the sandbox.

    Without a configuration, there are neither. `jobs` is the directory where other processes see background jobs; without
    one, the jobs are not visible.
    """

    loaded: LoadedConfig | None = None
    flags: Flags = Flags()
    trusted: bool = False
    sandbox: Sandbox = NO_SANDBOX
    jobs: str = ""


class LazyLanguageServers:
    """The language servers of a directory. The code that runs them is loaded when a tool first reads or changes a file."""

    def __init__(self, programs: OnDemand[HelperPrograms]) -> None:
        self._programs = programs

    async def diagnose(self, *paths: str) -> Diagnostics:
        return await self._programs.get().language_servers.diagnose(*paths)

    def warm_up(self, path: str) -> None:
        self._programs.get().language_servers.warm_up(path)

    async def request(self, path: str, method: str, params: dict[str, Any]) -> list[Any] | None:
        return await self._programs.get().language_servers.request(path, method, params)


class ToolHelpers(Struct, frozen=True, kw_only=True):
    """The formatters, language servers and background jobs of one directory, and the environment of its programs."""

    environment: Mapping[str, str]
    programs: OnDemand[HelperPrograms]
    jobs: BackgroundJobs


@asynccontextmanager
async def open_tool_helpers(
    settings: HelperSettings, place: Place, environment: Mapping[str, str], clock: Clock
) -> AsyncIterator[ToolHelpers]:
    """Open the helpers. A program starts when it is first needed; leaving the context ends all of them."""

    def make_programs(tasks: asyncio.TaskGroup) -> HelperPrograms:
        from weft.local.helper_programs import HelperPrograms  # noqa: PLC0415  only work on files needs it
        from weft.tool.programs import ProgramContext  # noqa: PLC0415  only work on files needs it

        context = ProgramContext(
            directory=place.directory,
            worktree=place.worktree,
            environment=environment,
            trusted=settings.trusted,
            sandbox=settings.sandbox,
        )
        return HelperPrograms(settings.loaded, settings.flags, context, tasks)

    async with (
        open_on_demand(make_programs, lambda made: made.close()) as programs,
        open_jobs(clock, settings.jobs) as jobs,
    ):
        yield ToolHelpers(environment=environment, programs=programs, jobs=jobs)


def to_tool_setup(loaded: LoadedConfig, flags: Flags, skills: tuple[Skill, ...]) -> ToolSetup:
    # `skills` is a fixed list, so that the tool description stays the same for the whole run.
    config = loaded.config
    own = config.weft_settings
    return ToolSetup(
        skills=SkillSource(find=lambda: skills, read=read_skill),
        search=flags.exa_url or (SERVICE_URL if flags.exa else None),
        lsp=flags.lsp_tool,
        batch=config.experiments.batch_tool is True,
        history=own.history is True,
        command_timeout_ms=flags.bash_default_timeout_ms or DEFAULT_COMMAND_TIMEOUT_MS,
        planning=flags.plan_mode and flags.client == "cli",
    )
