"""The tools and helper programs that configuration and environment allow."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from weft.config.flags import Flags
from weft.config.load import Loaded
from weft.config.schema import Config, Experimental
from weft.config.schema import Formatter as FormatterConfig
from weft.config.schema import LspServer as ServerConfig
from weft.config.skills import read_skill
from weft.host.clock import Clock
from weft.model.agent import Skill
from weft.model.project import Place
from weft.sandbox.policy import OPEN, Sandbox
from weft.tool.format import FORMATTERS, OXFMT, Formatter, Tidy
from weft.tool.lsp.pool import Watch, open_lookout
from weft.tool.lsp.servers import SERVERS, TY, Known
from weft.tool.programs import Ground
from weft.tool.registry import Equipment
from weft.tool.shell.jobs import Background, open_jobs
from weft.tool.skill import Shelf
from weft.tool.websearch import SERVICE


class Workshop(Struct, frozen=True, kw_only=True):
    """The programs that help tools, whether what the project brings along may be run, and the wall around them all.

    `jobs` is the directory in which other processes see what goes on in the background; without one, nobody does.
    """

    formatters: tuple[Formatter, ...] = ()
    servers: tuple[Known, ...] = ()
    trusted: bool = False
    sandbox: Sandbox = OPEN
    jobs: str = ""


class Aides(Struct, frozen=True, kw_only=True):
    """Those who help tools, at work in one directory."""

    tidy: Tidy
    lookout: Watch
    jobs: Background


@asynccontextmanager
async def open_aides(
    workshop: Workshop, place: Place, environment: Mapping[str, str], clock: Clock
) -> AsyncIterator[Aides]:
    """Nothing runs before it is needed. Leaving ends every program."""
    ground = Ground(
        directory=place.directory,
        worktree=place.worktree,
        environment=environment,
        trusted=workshop.trusted,
        sandbox=workshop.sandbox,
    )
    async with (
        open_lookout(workshop.servers, ground) as lookout,
        open_jobs(clock, workshop.jobs) as jobs,
    ):
        yield Aides(tidy=Tidy(workshop.formatters, ground), lookout=lookout, jobs=jobs)


def to_workshop(loaded: Loaded, flags: Flags, *, trusted: bool) -> Workshop:
    return Workshop(
        formatters=to_formatters(loaded, flags), servers=to_servers(loaded, flags), trusted=trusted
    )


def to_equipment(loaded: Loaded, flags: Flags, skills: tuple[Skill, ...]) -> Equipment:
    """Skills are given, and not looked for: what a model was told of stays as it was told, and telling it takes no time."""
    config = loaded.config
    return Equipment(
        shelf=Shelf(find=lambda: skills, read=read_skill),
        search=flags.exa_url or (SERVICE if flags.exa else None),
        lsp=flags.lsp_tool,
        batch=(config.experimental or Experimental()).batch_tool is True,
        planning=flags.plan_mode and flags.client == "cli",
    )


# --- formatters ---


def to_formatters(loaded: Loaded, flags: Flags) -> tuple[Formatter, ...]:
    known = (*FORMATTERS, OXFMT) if flags.oxfmt else FORMATTERS
    if False in (loaded.config.formatter, loaded.vouched.formatter):
        return ()
    named = _formatters(loaded.vouched)
    made = {each.name: each for each in known}
    for name, said in named.items():
        made[name] = _to_formatter(made.get(name), name, said)
    off = _switched_off(_formatters(loaded.config)) | _switched_off(named)
    return tuple(each for name, each in made.items() if name not in off and each.argv and each.endings)


def _formatters(config: Config) -> Mapping[str, FormatterConfig]:
    return config.formatter if isinstance(config.formatter, dict) else {}


def _to_formatter(known: Formatter | None, name: str, said: FormatterConfig) -> Formatter:
    """As a person configured it: used wherever its program is, without further conditions."""
    start = known or Formatter(name=name, argv=(), endings=())
    if not said.command:
        # OpenCode passes over an entry without a command; here it may also add to a formatter we know.
        return replace(
            start,
            endings=said.extensions or start.endings,
            environment={**start.environment, **(said.environment or {})},
        )
    return Formatter(
        name=name,
        argv=said.command,
        endings=said.extensions or start.endings,
        environment=said.environment or {},
        careful=True,
    )


# --- language servers ---


def to_servers(loaded: Loaded, flags: Flags) -> tuple[Known, ...]:
    known = (*(each for each in SERVERS if each.name != "pyright"), TY) if flags.lsp_ty else SERVERS
    if False in (loaded.config.lsp, loaded.vouched.lsp):
        return ()
    named = _servers(loaded.vouched)
    made = {each.name: each for each in known}
    for name, said in named.items():
        made[name] = _to_server(made.get(name), name, said)
    off = _switched_off(_servers(loaded.config)) | _switched_off(named)
    return tuple(each for name, each in made.items() if name not in off and each.argv and each.endings)


def _servers(config: Config) -> Mapping[str, ServerConfig]:
    return config.lsp if isinstance(config.lsp, dict) else {}


def _to_server(known: Known | None, name: str, said: ServerConfig) -> Known:
    start = known or Known(name=name, endings=(), argv=())
    return replace(
        start,
        endings=said.extensions or start.endings,
        argv=said.command or start.argv,
        environment={**start.environment, **(said.env or {})},
        options=said.initialization or start.options,
        # Whoever names a program vouches for it.
        careful=start.careful or bool(said.command),
    )


def _switched_off(named: Mapping[str, FormatterConfig] | Mapping[str, ServerConfig]) -> set[str]:
    return {name for name, said in named.items() if said.disabled}
