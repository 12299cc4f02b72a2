"""The tools and helper programs that configuration and environment allow."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from weft.config.flags import Flags
from weft.config.load import LoadedConfig
from weft.config.schema import Config, ExperimentalConfig, FormatterConfig
from weft.config.schema import LspServerConfig as ServerConfig
from weft.config.skills import read_skill
from weft.host.clock import Clock
from weft.model.agent import Skill
from weft.model.project import Place
from weft.sandbox.policy import NO_SANDBOX, Sandbox
from weft.tool.format import FORMATTERS, OXFMT, FileFormatter, FormatterRunner
from weft.tool.lsp.known_servers import SERVERS, TY, KnownServer
from weft.tool.lsp.pool import LanguageServerPool, open_language_servers
from weft.tool.programs import ProgramContext
from weft.tool.registry import ToolSetup
from weft.tool.shell.jobs import BackgroundJobs, open_jobs
from weft.tool.skill import SkillSource
from weft.tool.websearch import SERVICE


class HelperSettings(Struct, frozen=True, kw_only=True):
    """Which formatters and language servers to use, whether the project's own programs may run, and the sandbox.

    `jobs` is the directory where other processes see background jobs; without one, the jobs are not visible.
    """

    formatters: tuple[FileFormatter, ...] = ()
    servers: tuple[KnownServer, ...] = ()
    trusted: bool = False
    sandbox: Sandbox = NO_SANDBOX
    jobs: str = ""


class ToolHelpers(Struct, frozen=True, kw_only=True):
    """The formatters, language servers and background jobs of one directory."""

    formatters: FormatterRunner
    language_servers: LanguageServerPool
    jobs: BackgroundJobs


@asynccontextmanager
async def open_tool_helpers(
    settings: HelperSettings, place: Place, environment: Mapping[str, str], clock: Clock
) -> AsyncIterator[ToolHelpers]:
    """Open the helpers. A program starts when it is first needed; leaving the context ends all of them."""
    programs = ProgramContext(
        directory=place.directory,
        worktree=place.worktree,
        environment=environment,
        trusted=settings.trusted,
        sandbox=settings.sandbox,
    )
    async with (
        open_language_servers(settings.servers, programs) as language_servers,
        open_jobs(clock, settings.jobs) as jobs,
    ):
        yield ToolHelpers(
            formatters=FormatterRunner(settings.formatters, programs),
            language_servers=language_servers,
            jobs=jobs,
        )


def to_helper_settings(loaded: LoadedConfig, flags: Flags, *, trusted: bool) -> HelperSettings:
    return HelperSettings(
        formatters=to_formatters(loaded, flags), servers=to_language_servers(loaded, flags), trusted=trusted
    )


def to_equipment(loaded: LoadedConfig, flags: Flags, skills: tuple[Skill, ...]) -> ToolSetup:
    # `skills` is a fixed list, so that the tool description stays the same for the whole run.
    config = loaded.config
    return ToolSetup(
        shelf=SkillSource(find=lambda: skills, read=read_skill),
        search=flags.exa_url or (SERVICE if flags.exa else None),
        lsp=flags.lsp_tool,
        batch=(config.experimental or ExperimentalConfig()).batch_tool is True,
        planning=flags.plan_mode and flags.client == "cli",
    )


# --- formatters ---


def to_formatters(loaded: LoadedConfig, flags: Flags) -> tuple[FileFormatter, ...]:
    known = (*FORMATTERS, OXFMT) if flags.oxfmt else FORMATTERS
    if False in (loaded.config.formatter, loaded.vouched.formatter):
        return ()
    named = _formatters(loaded.vouched)
    result = {each.name: each for each in known}
    for name, entry in named.items():
        result[name] = _to_formatter(result.get(name), name, entry)
    off = _list_disabled(_formatters(loaded.config)) | _list_disabled(named)
    return tuple(each for name, each in result.items() if name not in off and each.argv and each.endings)


def _formatters(config: Config) -> Mapping[str, FormatterConfig]:
    return config.formatter if isinstance(config.formatter, dict) else {}


def _to_formatter(known: FileFormatter | None, name: str, entry: FormatterConfig) -> FileFormatter:
    """Return the formatter as configured: used wherever its program exists, without further conditions."""
    start = known or FileFormatter(name=name, argv=(), endings=())
    if not entry.command:
        # OpenCode ignores an entry without a command; here it may also extend a built-in formatter.
        return replace(
            start,
            endings=entry.extensions or start.endings,
            environment={**start.environment, **(entry.environment or {})},
        )
    return FileFormatter(
        name=name,
        argv=entry.command,
        endings=entry.extensions or start.endings,
        environment=entry.environment or {},
        careful=True,
    )


# --- language servers ---


def to_language_servers(loaded: LoadedConfig, flags: Flags) -> tuple[KnownServer, ...]:
    known = (*(each for each in SERVERS if each.name != "pyright"), TY) if flags.lsp_ty else SERVERS
    if False in (loaded.config.lsp, loaded.vouched.lsp):
        return ()
    named = _servers(loaded.vouched)
    result = {each.name: each for each in known}
    for name, entry in named.items():
        result[name] = _to_server(result.get(name), name, entry)
    off = _list_disabled(_servers(loaded.config)) | _list_disabled(named)
    return tuple(each for name, each in result.items() if name not in off and each.argv and each.endings)


def _servers(config: Config) -> Mapping[str, ServerConfig]:
    return config.lsp if isinstance(config.lsp, dict) else {}


def _to_server(known: KnownServer | None, name: str, entry: ServerConfig) -> KnownServer:
    start = known or KnownServer(name=name, endings=(), argv=())
    return replace(
        start,
        endings=entry.extensions or start.endings,
        argv=entry.command or start.argv,
        environment={**start.environment, **(entry.env or {})},
        options=entry.initialization or start.options,
        # A program that the person configured is trusted.
        careful=start.careful or bool(entry.command),
    )


def _list_disabled(named: Mapping[str, FormatterConfig] | Mapping[str, ServerConfig]) -> set[str]:
    return {name for name, entry in named.items() if entry.disabled}
