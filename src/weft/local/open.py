"""Open weft for a directory: find its store, project and configuration, and build the `Api`."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from decimal import Decimal
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.api import Api
from weft.config.agents import build_agents, choose_agent
from weft.config.commands import build_commands
from weft.config.flags import read_flags
from weft.config.instructions import read_instructions, to_sources
from weft.config.load import Loaded, load_config
from weft.config.schema import Budget as BudgetConfig
from weft.config.schema import CompactAt, Config, Experimental, Limits, Own
from weft.config.skills import SkillFinder
from weft.config.sources import Situation
from weft.config.store_address import store_url
from weft.context.tokens import Threshold
from weft.errors import DocumentError, StoreError, WeftError
from weft.host.paths import Paths, paths_from
from weft.host.processes import tool_environment
from weft.host.web import fetch
from weft.local.api import Local
from weft.local.assemble import Seams, Settings, open_local, unheard
from weft.local.mcp import to_mcp
from weft.local.models import Around, find_models, find_offers
from weft.local.permissions import Permitting, permission_directory, person_of, to_terms
from weft.local.place import find_place, settle_place
from weft.local.plugins import Ground, configured, find_ways, open_plugins
from weft.local.reader import who_we_are
from weft.local.sandbox import read_asked, stand
from weft.local.telemetry import open_telemetry, read_telemetry
from weft.local.tools import to_equipment, to_workshop
from weft.local.undo import to_undoing
from weft.local.workspace import Known
from weft.model.agent import Skill
from weft.model.damage import Damage
from weft.model.project import Place
from weft.model.spending import Budget, Budgets
from weft.outlook import EditorWorkspace
from weft.project.facts import Resolution
from weft.provider.registry import Served
from weft.provider.tape import Tape, TapedModels
from weft.run.budget import stricter
from weft.run.kit import Compaction, Deadlines, Subtasks
from weft.search.background import open_indexer
from weft.search.library import Library
from weft.share.contract import to_share_settings
from weft.store.contract import Store
from weft.store.files.reader import Tree
from weft.store.url import open_store
from weft.tool.registry import equipped
from weft.trust.decision import is_trusted, list_held_back, to_warning

TOOL_SECONDS = 60 * 60
TURN_SECONDS = 6 * 60 * 60


class Opening(Struct, frozen=True, kw_only=True):
    """What is to be opened, and how.

    `answered` says that somebody will reply to questions about permissions. `models` are served beside the
    configured ones. `tape` records what models answer, or answers in their place. `warn` hears what is odd in the
    configuration and in force all the same, and what is wrong with the store and no reason to stop. `plugins` are
    modules, or functions that are hooks or tools, besides those that are found. `one_shot` says that one prompt is all
    there will be. `editor` has files open whose text may not be saved. `budgets` stand in place of the configured ones.
    `pages` is the address at
    which shared sessions are shown, by whoever serves them.
    """

    directory: str = "."
    env: Mapping[str, str] = os.environ
    store: str | None = None
    answered: bool = False
    one_shot: bool = False
    editor: EditorWorkspace | None = None
    models: tuple[Served, ...] = ()
    tape: Tape | None = None
    budgets: Budgets | None = None
    pages: str = ""
    plugins: tuple[Any, ...] = ()
    seams: Seams = Seams()
    warn: Callable[[WeftError], None] = unheard


@asynccontextmanager
async def open_app(opening: Opening) -> AsyncIterator[Local]:
    """An `Api` over a directory. Configuration that cannot be understood is refused here, not half obeyed."""
    env, paths = opening.env, paths_from(opening.env)
    url = store_url(env, paths, opening.store)

    def damaged(damage: Damage) -> None:
        opening.warn(DocumentError(damage.where, f"{damage.reason}; it is left out"))

    async with open_store(url, damaged=damaged) as store:
        found = await find_place(store, opening.directory, env, opening.seams.clock.now())
        situation = await asyncio.to_thread(to_situation, found.place, paths, env)
        loaded = await asyncio.to_thread(load_config, situation, fetch=fetch, strict=True)
        await _tell_held(loaded, situation, opening)
        await _tell_newer_home(url, opening)
        finder = SkillFinder(situation)
        skills = await asyncio.to_thread(finder.find)
        for warning in (*loaded.warnings, *skills.problems):
            opening.warn(warning)
        async with open_plugins(to_ground(loaded, situation, opening)) as plugins:
            loaded = await configured(loaded, plugins.hooks, found.place.directory, opening.warn)
            ways = find_ways(loaded, plugins.loaded, opening.seams.clock, opening.warn)
            around = Around(env=env, paths=paths, warn=opening.warn, ways=ways)
            models = find_models(loaded, around, opening.seams.clock, opening.models)
            if opening.tape is not None:
                opening.tape.at(to_places(found.place, paths))
                models = TapedModels(models, opening.tape)
            settings = to_settings(loaded, found.place, situation, opening, skills.skills)
            settings = replace(settings, known=to_known(loaded, situation, around, finder))
            settings = replace(settings, hooks=plugins.hooks, tools=(*settings.tools, *plugins.tools))
            settings = await _walled(settings, loaded, situation, opening)
            async with (
                aclosing(models),
                open_local(found.place, store, models, settings, opening.seams, warn=opening.warn) as local,
            ):
                await _record(store, local, found, opening)
                async with (
                    open_telemetry(read_telemetry(loaded, env), local.bus, opening.warn),
                    _indexed(local, url, paths) as indexed,
                    plugins.attached(indexed),
                ):
                    yield indexed


async def _record(store: Store, local: Local, found: Resolution, opening: Opening) -> None:
    """Store what was found out about the place. On a full or read-only disk that has to wait: reads are answered."""
    try:
        await settle_place(store, local.kit.journal, found)
    except StoreError as error:
        opening.warn(error)


def to_ground(loaded: Loaded, situation: Situation, opening: Opening) -> Ground:
    return Ground(
        loaded=loaded,
        situation=situation,
        clock=opening.seams.clock,
        warn=opening.warn,
        given=opening.plugins,
    )


@asynccontextmanager
async def _indexed(local: Local, url: str, paths: Paths) -> AsyncIterator[Local]:
    """The same with an index of its sessions that follows them, if it is one of files."""
    if not url.startswith("file:"):
        yield local
        return
    library = Library(Tree(url.removeprefix("file:")), paths.cache)
    async with open_indexer(library, local.bus, local.kit.clock):
        yield replace(local, library=library)


@asynccontextmanager
async def open_weft(
    directory: str = ".",
    *,
    store: str | None = None,
    answered: bool = False,
    models: tuple[Served, ...] = (),
    tape: Tape | None = None,
    plugins: tuple[Any, ...] = (),
) -> AsyncIterator[Api]:
    """weft for Python programs: an `Api` over a directory, as `weft run` has it there.

    `store` is an address (`memory:` keeps nothing), `models` are served beside the configured ones. Say `answered`
    if you reply to questions about permissions; otherwise what has to be asked is refused. A `tape` records what the
    models answer, or answers in their place (`weft.testing.replay`). `plugins` are modules, or functions that are hooks
    or tools, besides those that are configured.
    """
    opening = Opening(
        directory=directory, store=store, answered=answered, models=models, tape=tape, plugins=plugins
    )
    async with open_app(opening) as api:
        yield api


def to_places(place: Place, paths: Paths) -> dict[str, str]:
    """What is somewhere else on another machine, and may be spoken of in a request."""
    return {
        "directory": place.directory,
        "worktree": place.worktree,
        "config": paths.config,
        "data": paths.data,
        "home": paths.home,
    }


def to_known(loaded: Loaded, situation: Situation, around: Around, finder: SkillFinder) -> Known:
    """What front ends may ask about, found out when they do. What is odd about it has been said."""
    quiet = replace(around, warn=unheard)
    return Known(
        env=around.env,
        paths=around.paths,
        situation=situation,
        loaded=loaded,
        offers=lambda: find_offers(loaded, quiet),
        skills=lambda: finder.find().skills,
        ways=around.ways,
    )


async def _tell_newer_home(url: str, opening: Opening) -> None:
    """Say where the sessions are that a person with a later OpenCode looks for in vain."""
    if not url.startswith("file:"):
        return
    database = await asyncio.to_thread(Tree(url.removeprefix("file:")).find_newer_home)
    if database is not None:
        said = f"OpenCode 1.2 or later keeps its sessions in {database}, which weft does not work in"
        hint = f"weft import --from opencode-sqlite {database} brings them here and leaves it as it is"
        opening.warn(StoreError(said, hint=hint))


async def _tell_held(loaded: Loaded, situation: Situation, opening: Opening) -> None:
    """In one line: what does nothing cannot be missed only by who reads far."""
    held = [] if situation.trusted else await asyncio.to_thread(list_held_back, loaded, situation)
    if held:
        opening.warn(to_warning(situation, held))


async def _walled(settings: Settings, loaded: Loaded, situation: Situation, opening: Opening) -> Settings:
    """With the sandbox that is asked for around its tools. That there is none is said once, and work goes on or not."""
    asked = read_asked(loaded)
    if asked.mode == "off":
        return settings
    found = await asyncio.to_thread(stand, asked, situation)
    if found.warning is not None:
        opening.warn(found.warning)
    return replace(settings, workshop=replace(settings.workshop, sandbox=found.sandbox))


def to_situation(place: Place, paths: Paths, env: Mapping[str, str]) -> Situation:
    """Where one stands, and whether what lies there is trusted."""
    trusted = is_trusted(paths, env, place.worktree, place.directory)
    return Situation(
        directory=place.directory, worktree=place.worktree, paths=paths, env=env, trusted=trusted
    )


def to_settings(
    loaded: Loaded, place: Place, situation: Situation, opening: Opening, skills: tuple[Skill, ...]
) -> Settings:
    flags, paths = read_flags(opening.env), situation.paths
    agents = build_agents(loaded.config, paths, place.worktree, loaded.vouched)
    sources = to_sources(loaded, situation, fetch)
    return Settings(
        agents=agents,
        default_agent=choose_agent(agents, loaded.config),
        commands=build_commands(loaded.config, place.worktree),
        tools=equipped(to_equipment(loaded, flags, skills)),
        workshop=replace(to_workshop(loaded, flags, trusted=situation.trusted), jobs=paths.jobs),
        tool_output=paths.tool_output,
        environment=tool_environment(opening.env),
        output_limit=flags.output_token_max,
        compaction=to_compaction(loaded.config),
        subtasks=to_subtasks(loaded.config),
        deadlines=to_deadlines(loaded.config),
        continue_on_deny=bool((loaded.config.experimental or Experimental()).continue_loop_on_deny),
        budgets=to_budgets(loaded) if opening.budgets is None else opening.budgets,
        instructions=partial(read_instructions, sources),
        plans=paths.plans,
        plan_files=flags.plan_mode,
        guard_off=flags.disable_filetime_check,
        mcp=to_mcp(loaded.config, auth_file=paths.mcp_auth_file, one_shot=opening.one_shot),
        permitting=to_permitting(loaded, paths, opening),
        editor=opening.editor,
        sharing=to_share_settings(loaded.config, opening.env, opening.pages),
        undoing=to_undoing(
            loaded.config, loaded.vouched, paths, opening.env, store_url(opening.env, paths, opening.store)
        ),
    )


def to_permitting(loaded: Loaded, paths: Paths, opening: Opening) -> Permitting:
    kept = not store_url(opening.env, paths, opening.store).startswith("memory:")
    return Permitting(
        terms=to_terms(
            loaded.vouched, person=person_of(opening.env), owner=who_we_are(), answered=opening.answered
        ),
        directory=permission_directory(paths) if kept else "",
    )


def to_compaction(config: Config) -> Compaction:
    """Both are on unless switched off (the environment's switches are in the configuration by now)."""
    said = config.compaction
    own = config.experimental.weft if config.experimental else None
    at = (own.compaction if own else None) or CompactAt()
    return Compaction(
        auto=said is None or said.auto is not False,
        prune=said is None or said.prune is not False,
        threshold=None if at.threshold is None else to_threshold(at.threshold),
        models={model: to_threshold(given) for model, given in (at.models or {}).items()},
    )


def to_subtasks(config: Config) -> Subtasks:
    """`subagent_depth` is what later versions of OpenCode call it; 1.1.34 refuses a file that says so."""
    experimental, usual = config.experimental or Experimental(), Subtasks()
    own = experimental.weft or Own()
    seconds = own.deadlines.subtask if own.deadlines else None
    named = own.subagent_depth if own.subagent_depth is not None else config.subagent_depth
    return Subtasks(
        depth=usual.depth if named is None else named,
        seconds=seconds or usual.seconds,
        primary_tools=experimental.primary_tools or (),
    )


def to_deadlines(config: Config) -> Deadlines:
    """Long enough for honest work: what they are for is that nothing hangs for ever. OpenCode has none."""
    own = (config.experimental or Experimental()).weft or Own()
    said = own.deadlines
    return Deadlines(
        tool=said.tool if said and said.tool else TOOL_SECONDS,
        turn=said.turn if said and said.turn else TURN_SECONDS,
    )


def to_budgets(loaded: Loaded) -> Budgets:
    """A project that nobody has vouched for may lower a limit, and not raise one."""
    vouched = _budgets_of(loaded.vouched)
    return vouched if loaded.vouched is loaded.config else stricter(vouched, _budgets_of(loaded.config))


def _budgets_of(config: Config) -> Budgets:
    own = (config.experimental or Experimental()).weft or Own()
    said = own.budget or BudgetConfig()
    return Budgets(session=_budget(said.session), tree=_budget(said.tree), day=_budget(said.day))


def _budget(said: Limits | None) -> Budget:
    if said is None:
        return Budget()
    cost = None if said.cost is None else Decimal(str(said.cost))
    return Budget(cost=cost, tokens=said.tokens, steps=said.steps, seconds=said.seconds)


def to_threshold(given: int | str) -> Threshold:
    """A number of tokens stays one; "80%" is a share."""
    return given if isinstance(given, int) else int(given.rstrip("%")) / 100
