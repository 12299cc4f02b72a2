"""Open weft for a directory: find its store, project and configuration, and build the `Api`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from decimal import Decimal
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from weft.config.agents import build_agents, choose_agent
from weft.config.commands import build_commands
from weft.config.flags import read_flags
from weft.config.instructions import read_instructions, to_sources
from weft.config.load import LoadedConfig, load_config
from weft.config.schema import (
    BudgetConfig,
    CompactionThresholds,
    Config,
    LimitsConfig,
)
from weft.config.skills import SkillFinder
from weft.config.sources import ConfigScope
from weft.config.store_address import resolve_store_url
from weft.context.tokens import Threshold
from weft.errors import DocumentError, StoreError, WeftError
from weft.host.clock import Clock
from weft.host.paths import Paths, paths_from
from weft.host.processes import describe_process, tool_environment
from weft.host.web import fetch
from weft.local.api import LocalApi
from weft.local.assembly import (
    CarryFiles,
    Seams,
    Settings,
    ignore_warning,
    keep_files_in_place,
    open_local_api,
)
from weft.local.indexer import open_indexer
from weft.local.mcp_settings import to_mcp_settings
from weft.local.models import ProviderEnvironment, build_offers, load_models
from weft.local.permissions import PermissionSettings, get_person_name, make_confinement, to_ask_policy
from weft.local.place import find_place, record_place
from weft.local.plugins import open_plugins
from weft.local.sandbox import build_sandbox, read_sandbox_settings
from weft.local.telemetry import open_telemetry, read_telemetry_settings
from weft.local.tools import HelperSettings, to_tool_setup
from weft.local.undo import UndoSettings, to_undo_settings
from weft.local.workspace_sources import WorkspaceSources
from weft.model.agent import Skill
from weft.model.damage import Damage
from weft.model.principal import ADMINISTRATOR, Caller
from weft.model.project import Place
from weft.model.spending import Budget, Budgets
from weft.project.facts import Resolution
from weft.provider.registry import ServedModel
from weft.run.budget import take_stricter
from weft.run.runtime import CompactionPolicy, RunDeadlines, SubtaskLimits
from weft.sandbox.policy import NO_SANDBOX, Sandbox
from weft.share.contract import to_share_settings
from weft.store.contract import Store
from weft.store.reader import find_opencode_database
from weft.store.url import is_persistent, open_owned_store, open_store
from weft.tool.registry import list_tools
from weft.trust.decision import is_trusted, list_held_back, to_warning

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api.editor import EditorWorkspace
    from weft.local.provider_logins import LoginMethods
    from weft.local.workspace_sources import ChangeTools, Engine, OpenEngine
    from weft.provider.tape import Tape

TOOL_SECONDS = 60 * 60
TURN_SECONDS = 6 * 60 * 60


class OpenOptions(Struct, frozen=True, kw_only=True):
    """What to open, and how.

    * `can_ask` says that somebody answers permission requests and questions, `one_shot` that there will be one prompt only.
    * `editor` offers open files, with unsaved text, and terminals.
    * `models` are added to the configured ones; `budgets` replace the configured ones.
    * `tape` records the answers of models or replays them.
    * `share_url` is the address where shared sessions are served.
    * `plugins` are modules, hooks or tools besides those that are configured; `change_tools` replaces tools before they are offered.
    * `caller` is who the directory is opened for. A principal gets only its own part of the store and its own directories, and
      its limits apply.
    * `warn` receives problems of the configuration and the store that do not prevent work.
    * `opened_store` is the whole store, if it is open already. The administrator works in it, a principal through its connections.
    * `carry_files` creates the `CarriedFiles`, which store the files of sessions for other nodes.
    """

    directory: str = "."
    env: Mapping[str, str] = os.environ
    store: str | None = None
    can_ask: bool = False
    one_shot: bool = False
    editor: EditorWorkspace | None = None
    models: tuple[ServedModel, ...] = ()
    tape: Tape | None = None
    budgets: Budgets | None = None
    share_url: str = ""
    plugins: tuple[Any, ...] = ()
    change_tools: ChangeTools = tuple
    caller: Caller = ADMINISTRATOR
    seams: Seams = Seams()
    warn: Callable[[WeftError], None] = ignore_warning
    opened_store: Store | None = None
    carry_files: CarryFiles = keep_files_in_place


@asynccontextmanager
async def open_directory(options: OpenOptions) -> AsyncIterator[LocalApi]:
    """Open the `Api` of a directory. Raise `ConfigError` if the configuration is not valid."""
    env, paths = options.env, paths_from(options.env)
    url = resolve_store_url(env, paths, options.store)

    async with _open_store(url, paths, options) as store:
        found = await find_place(store, options.directory, env, options.seams.clock.now())
        scope = await asyncio.to_thread(read_scope, found.place, paths, env)
        scope = to_principal_scope(scope, options.caller)
        loaded = await asyncio.to_thread(load_config, scope, fetch=fetch, strict=True)
        await _warn_held_back(loaded, scope, options)
        await _warn_opencode_database(url, options)
        finder = SkillFinder(scope)
        skills = await asyncio.to_thread(finder.find)
        for warning in (*loaded.warnings, *skills.problems):
            options.warn(warning)
        async with open_plugins(
            loaded, scope, clock=options.seams.clock, warn=options.warn, extra=options.plugins
        ) as plugins:
            loaded = await plugins.change_config(loaded)
            logins = plugins.find_logins(loaded)
            environment = ProviderEnvironment(env=env, paths=paths, warn=options.warn, logins=logins)
            models = load_models(loaded, environment, options.seams.clock, options.models)
            if options.tape is not None:
                from weft.provider.tape import TapedRegistry  # noqa: PLC0415  few runs are recorded

                options.tape.set_places(to_tape_paths(found.place, paths))
                models = TapedRegistry(models, options.tape)
            settings = read_settings(loaded, found.place, scope, options, skills.skills, url)
            sources = replace(
                to_workspace_sources(loaded, scope, environment, finder, options.seams.clock),
                store=url,
                snapshots=choose_snapshots(settings.undo, options.caller),
                open_engine=_make_opener(options),
            )
            sandbox = await _open_sandbox(loaded, scope, options)
            settings = replace(
                settings,
                sources=sources,
                hooks=plugins.hooks,
                tools=options.change_tools((*settings.tools, *plugins.tools)),
                helpers=replace(settings.helpers, sandbox=sandbox),
                carry_files=options.carry_files,
            )
            async with (
                aclosing(models),
                open_local_api(
                    found.place, store, models, settings, options.seams, warn=options.warn
                ) as local,
            ):
                await _record(store, local, found, options)
                async with (
                    open_telemetry(read_telemetry_settings(loaded, env), local.bus, options.warn),
                    open_indexer(store, local.bus, local.runtime.clock),
                    plugins.attach(local),
                ):
                    yield local


def _make_opener(options: OpenOptions) -> OpenEngine:
    """Return a function that opens another directory, with the environment and the models of this one."""

    def open_engine(
        directory: str, store: str, *, tape: Tape | None = None, change_tools: ChangeTools = tuple
    ) -> AbstractAsyncContextManager[Engine]:
        other = OpenOptions(
            directory=directory,
            env=options.env,
            store=store,
            models=options.models,
            tape=tape or options.tape,
            budgets=options.budgets,
            plugins=options.plugins,
            change_tools=change_tools,
            caller=options.caller,
            seams=options.seams,
        )
        return open_directory(other)

    return open_engine


@asynccontextmanager
async def _open_store(url: str, paths: Paths, options: OpenOptions) -> AsyncIterator[Store]:
    principal, damaged = options.caller.principal, to_damage_warner(options.warn)
    if principal is None and options.opened_store is not None:
        yield options.opened_store
    elif principal is None:
        async with open_store(url, damaged=damaged, cache=paths.cache) as store:
            yield store
    else:
        async with open_owned_store(
            url, principal, damaged=damaged, cache=paths.cache, opened=options.opened_store
        ) as store:
            yield store


def to_damage_warner(warn: Callable[[WeftError], None]) -> Callable[[Damage], None]:
    """Return a function that warns of a document that cannot be read."""
    return lambda damage: warn(DocumentError(damage.where, f"{damage.reason}; the document is skipped"))


async def _record(store: Store, local: LocalApi, found: Resolution, options: OpenOptions) -> None:
    """Store the facts that were found out about the project. A full or read-only disk is only a warning: reading still works."""
    try:
        await record_place(store, local.runtime.journal, found)
    except StoreError as error:
        options.warn(error)


def to_tape_paths(place: Place, paths: Paths) -> dict[str, str]:
    """Return the paths that a tape replaces in requests, because they differ between machines."""
    return {
        "directory": place.directory,
        "worktree": place.worktree,
        "config": paths.config,
        "data": paths.data,
        "home": paths.home,
    }


def choose_snapshots(undo: UndoSettings, caller: Caller) -> str:
    """Return the directory of the store's snapshots: "" if they end with the process, and for a principal.

    The dataset of a store is found by the name of this directory, and contains the sessions of everybody.
    """
    return undo.base if caller.principal is None and not undo.temporary else ""


def to_workspace_sources(
    loaded: LoadedConfig,
    scope: ConfigScope,
    environment: ProviderEnvironment,
    finder: SkillFinder,
    clock: Clock,
) -> WorkspaceSources:
    """Return what the workspace shows to front ends. Its warnings were reported when the directory was opened."""

    @cache  # always the same object, because it holds the logins that were begun
    def get_logins() -> LoginMethods:
        from weft.local.provider_logins import find_login_methods  # noqa: PLC0415  a run needs no login

        return environment.logins or find_login_methods(loaded, (), clock, ignore_warning)

    quiet = replace(environment, warn=ignore_warning)
    return WorkspaceSources(
        env=environment.env,
        paths=environment.paths,
        scope=scope,
        loaded=loaded,
        offers=lambda: build_offers(loaded, quiet),
        skills=lambda: finder.find().skills,
        logins=get_logins,
    )


async def _warn_opencode_database(url: str, options: OpenOptions) -> None:
    """Warn if a later OpenCode keeps its sessions in a database, where weft does not look for them."""
    database = await asyncio.to_thread(find_opencode_database, url)
    if database is not None:
        reason = f"OpenCode 1.2 or later keeps its sessions in {database}, which weft does not work in"
        hint = (
            f"weft import --from opencode-sqlite {database} copies them here and does not change the database"
        )
        options.warn(StoreError(reason, hint=hint))


async def _warn_held_back(loaded: LoadedConfig, scope: ConfigScope, options: OpenOptions) -> None:
    """Warn in one line if settings of an untrusted project are held back."""
    held = [] if scope.trusted else await asyncio.to_thread(list_held_back, loaded, scope)
    if held:
        options.warn(to_warning(scope, held))


async def _open_sandbox(loaded: LoadedConfig, scope: ConfigScope, options: OpenOptions) -> Sandbox:
    """Build the configured sandbox. Warn once if it is not available here."""
    settings = read_sandbox_settings(loaded)
    if options.caller.principal is not None:
        settings = replace(settings, mode="required", hidden=options.caller.hidden)
    if settings.mode == "off":
        return NO_SANDBOX
    found = await asyncio.to_thread(build_sandbox, settings, scope)
    if found.warning is not None:
        options.warn(found.warning)
    return found.sandbox


def to_principal_scope(scope: ConfigScope, caller: Caller) -> ConfigScope:
    """Return the scope for a caller. A principal can write into its project, so that nothing there is trusted."""
    if caller.principal is None:
        return scope
    outputs = os.path.join(scope.paths.data, "principal", caller.principal.name)
    return replace(scope, trusted=False, paths=replace(scope.paths, outputs=outputs))


def read_scope(place: Place, paths: Paths, env: Mapping[str, str]) -> ConfigScope:
    """Return where configuration is read from, and whether the project is trusted."""
    trusted = is_trusted(paths, env, place.worktree, place.directory)
    return ConfigScope(
        directory=place.directory, worktree=place.worktree, paths=paths, env=env, trusted=trusted
    )


def read_settings(
    loaded: LoadedConfig,
    place: Place,
    scope: ConfigScope,
    options: OpenOptions,
    skills: tuple[Skill, ...],
    store_url: str,
) -> Settings:
    """Return the settings of an `Api`, from the configuration, the environment and the options."""
    flags, paths = read_flags(options.env), scope.paths
    agents = build_agents(loaded.config, paths, place.worktree, loaded.trusted_config)
    sources = to_sources(loaded, scope, fetch)
    return Settings(
        agents=agents,
        default_agent=choose_agent(agents, loaded.config),
        commands=build_commands(loaded.config, place.worktree),
        tools=list_tools(to_tool_setup(loaded, flags, skills)),
        helpers=HelperSettings(loaded=loaded, flags=flags, trusted=scope.trusted, jobs=paths.jobs),
        tool_output=paths.tool_output,
        environment=tool_environment(options.env),
        output_limit=flags.output_token_max,
        compaction=to_compaction(loaded.config),
        subtasks=to_subtasks(loaded.config),
        deadlines=to_deadlines(loaded.config),
        continue_on_deny=bool(loaded.config.experiments.continue_loop_on_deny),
        budgets=limit_budgets(
            to_budgets(loaded) if options.budgets is None else options.budgets, options.caller
        ),
        instructions=partial(read_instructions, sources),
        plans=paths.plans,
        plan_files=flags.plan_mode,
        guard_off=flags.disable_filetime_check,
        mcp=to_mcp_settings(loaded.config, auth_file=paths.mcp_auth_file, one_shot=options.one_shot),
        permissions=to_permission_settings(loaded, paths, options, store_url),
        editor=options.editor,
        sharing=to_share_settings(loaded.config, options.env, options.share_url),
        undo=to_undo_settings(loaded.config, loaded.trusted_config, paths, options.env, store_url),
    )


def to_permission_settings(
    loaded: LoadedConfig, paths: Paths, options: OpenOptions, store_url: str
) -> PermissionSettings:
    policy = to_ask_policy(
        loaded.trusted_config,
        person=get_person_name(options.env),
        owner=describe_process(),
        can_ask=options.can_ask,
    )
    principal = options.caller.principal
    if principal is not None:
        # Replies to its requests count as the principal's own, and cannot permit it other directories.
        policy = replace(policy, person=principal.name, limits=(make_confinement(paths),))
    return PermissionSettings(policy=policy, persistent=is_persistent(store_url))


def to_compaction(config: Config) -> CompactionPolicy:
    """Read when to compact and prune. Both are on unless they are switched off; the environment's switches are merged already."""
    configured, at = config.compaction, config.weft_settings.compaction or CompactionThresholds()
    return CompactionPolicy(
        auto=configured is None or configured.auto is not False,
        prune=configured is None or configured.prune is not False,
        threshold=None if at.threshold is None else to_threshold(at.threshold),
        models={model: to_threshold(threshold) for model, threshold in (at.models or {}).items()},
    )


def to_subtasks(config: Config) -> SubtaskLimits:
    # Later versions of OpenCode have `subagent_depth` at the root; 1.1.34 refuses a file with that key.
    experimental, defaults = config.experiments, SubtaskLimits()
    own = config.weft_settings
    seconds = own.deadlines.subtask if own.deadlines else None
    depth = own.subagent_depth if own.subagent_depth is not None else config.subagent_depth
    return SubtaskLimits(
        depth=defaults.depth if depth is None else depth,
        seconds=seconds or defaults.seconds,
        primary_tools=experimental.primary_tools or (),
    )


def to_deadlines(config: Config) -> RunDeadlines:
    # The defaults only keep a run from hanging forever. OpenCode has no deadlines.
    configured = config.weft_settings.deadlines
    return RunDeadlines(
        tool=configured.tool if configured and configured.tool else TOOL_SECONDS,
        turn=configured.turn if configured and configured.turn else TURN_SECONDS,
    )


def to_budgets(loaded: LoadedConfig) -> Budgets:
    """Read the budgets. An untrusted project may lower a limit, but not raise one."""
    trusted = _read_budgets(loaded.trusted_config)
    return (
        trusted
        if loaded.trusted_config is loaded.config
        else take_stricter(trusted, _read_budgets(loaded.config))
    )


def limit_budgets(budgets: Budgets, caller: Caller) -> Budgets:
    """Return the budgets with the limits that a principal has for a day. Its own days are counted in its own store."""
    if caller.principal is None:
        return budgets
    limits = caller.principal.limits
    return take_stricter(budgets, Budgets(day=Budget(cost=limits.cost, tokens=limits.tokens)))


def _read_budgets(config: Config) -> Budgets:
    configured = config.weft_settings.budget or BudgetConfig()
    return Budgets(
        session=_to_budget(configured.session),
        tree=_to_budget(configured.tree),
        day=_to_budget(configured.day),
    )


def _to_budget(configured: LimitsConfig | None) -> Budget:
    if configured is None:
        return Budget()
    cost = None if configured.cost is None else Decimal(str(configured.cost))
    return Budget(cost=cost, tokens=configured.tokens, steps=configured.steps, seconds=configured.seconds)


def to_threshold(setting: int | str) -> Threshold:
    """Read a number of tokens, or a share of the usable ones such as "80%"."""
    return setting if isinstance(setting, int) else int(setting.rstrip("%")) / 100
