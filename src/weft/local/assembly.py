"""Build the `Api` of one directory from its settings: journal, permissions, tools, terminals, MCP servers and runs."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from weft.bus import Bus
from weft.config.commands import build_commands
from weft.config.schema import Config
from weft.context.compaction import recall
from weft.errors import ModelNotFoundError, WeftError
from weft.host.clock import Clock, SystemClock
from weft.host.processes import describe_process
from weft.host.tasks import OnDemand, open_tasks
from weft.journal import Journal, open_journal
from weft.local.api import LocalApi, SessionStatuses
from weft.local.api_parts import ApiParts, get_servers, open_mcp, open_terminals
from weft.local.mcp_settings import McpLaunch, McpSettings
from weft.local.permissions import PermissionSettings, open_gates, permission_project, to_consult
from weft.local.tools import HelperSettings, LazyLanguageServers, ToolHelpers, open_tool_helpers
from weft.local.undo import UndoSettings, make_undo_context, open_undo_snapshots
from weft.local.workspace_sources import WorkspaceSources
from weft.model.agent import AgentInfo, Command, ReadInstructions, no_instructions
from weft.model.catalog import Model
from weft.model.event import FileEdited, SessionDeleted, TodoUpdated
from weft.model.ids import Mint, SessionID
from weft.model.part import ModelRef
from weft.model.project import Place
from weft.model.search import RecallMatch
from weft.model.session import Todo
from weft.model.spending import Budgets
from weft.permission.gate import Gate
from weft.permission.policy import GateContext
from weft.permission.questions import QuestionGate
from weft.plugin.hooks import NO_HOOKS, Hooks
from weft.provider.registry import Registry
from weft.run.runner import Runner
from weft.run.runtime import (
    CarriedFiles,
    CompactionPolicy,
    FilesInPlace,
    RunDeadlines,
    Runtime,
    SubtaskLimits,
)
from weft.session.lifecycle import SessionMaker
from weft.session.reservations import DirectoryBudgets
from weft.share.contract import LazyShareClient, ShareContext, ShareSettings
from weft.share.sharer import open_sharer
from weft.store.contract import Store
from weft.tool.buffers import SessionFiles
from weft.tool.contract import AnyTool, ReadGuard, Recall, SessionHistory, ToolResources
from weft.tool.spill import Spill
from weft.undo.context import UndoContext
from weft.undo.recovery import recover_file_changes

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api.editor import EditorWorkspace
    from weft.local.mcp import LocalMcp

# Sessions that know which files they have read. One that ran longer ago has to read a file again before changing it.
MAX_GUARDS = 1000
Warn = Callable[[WeftError], None]
# Creates the `CarriedFiles` of a directory, which store the files of its sessions for other nodes.
CarryFiles = Callable[[UndoContext], CarriedFiles]


def keep_files_in_place(_: UndoContext) -> CarriedFiles:
    """Store no files for other nodes: they stay in their directory."""
    return FilesInPlace()


def ignore_warning(_: WeftError) -> None:
    """Drop a warning."""


class Seams(Struct, frozen=True, kw_only=True):
    """The clock, the source of random bytes, and the name of this process in leases. Tests replace them."""

    clock: Clock = SystemClock()
    random: Callable[[int], bytes] = os.urandom
    owner: Callable[[], str] = describe_process


class Settings(Struct, frozen=True, kw_only=True):
    """What an `Api` needs from the configuration and the environment."""

    agents: Mapping[str, AgentInfo]
    default_agent: str
    tools: tuple[AnyTool, ...]
    tool_output: str
    environment: Mapping[str, str]
    output_limit: int
    commands: Mapping[str, Command] | None = None
    helpers: HelperSettings = HelperSettings()
    compaction: CompactionPolicy = CompactionPolicy()
    subtasks: SubtaskLimits = SubtaskLimits()
    deadlines: RunDeadlines = RunDeadlines()
    continue_on_deny: bool = False
    budgets: Budgets = Budgets()
    instructions: ReadInstructions = no_instructions
    plans: str = ""
    plan_files: bool = False
    guard_off: bool = False
    permissions: PermissionSettings = PermissionSettings()
    undo: UndoSettings = UndoSettings()
    mcp: McpSettings = McpSettings()
    sources: WorkspaceSources = WorkspaceSources()
    sharing: ShareSettings = ShareSettings()
    hooks: Hooks = NO_HOOKS
    editor: EditorWorkspace | None = None
    carry_files: CarryFiles = keep_files_in_place


@asynccontextmanager
async def open_local_api(
    place: Place,
    store: Store,
    models: Registry,
    settings: Settings,
    seams: Seams,
    *,
    warn: Warn = ignore_warning,
) -> AsyncIterator[LocalApi]:
    """Open the `Api` of a directory. Leaving the context ends its runs and flushes the journal."""
    clock, bus, mint = seams.clock, Bus(), Mint(seams.clock.now, seams.random)
    async with (
        open_journal(store, bus, clock, directory=place.directory) as journal,
        open_sharer(_make_share_context(store, journal, clock, models, settings), bus) as sharer,
        _open_gates(settings, place, clock, mint, journal, store) as (gate, questions),
        open_tool_helpers(settings.helpers, place, settings.environment, clock) as helpers,
        open_undo_snapshots(settings.undo, place) as snapshots,
        open_terminals(place.directory, settings.environment, mint, journal.commit) as terminals,
        _open_mcp(settings, place, journal) as mcp,
    ):
        statuses, spill = SessionStatuses(bus, journal.announce), Spill(settings.tool_output, mint)
        maker = SessionMaker(journal=journal, clock=clock, mint=mint, random=seams.random, place=place)
        runtime = Runtime(
            store=store,
            journal=journal,
            clock=clock,
            mint=mint,
            jitter=lambda: int.from_bytes(seams.random(4)) / 2**32,
            place=place,
            owner=seams.owner(),
            platform=sys.platform,
            models=models,
            agents=settings.agents,
            default_agent=settings.default_agent,
            output_limit=settings.output_limit,
            compaction=settings.compaction,
            instructions=settings.instructions,
            plans=settings.plans,
            plan_files=settings.plan_files,
            tools={tool.name: tool for tool in settings.tools},
            commands=_list_commands(place, settings),
            gate=gate,
            questions=questions,
            make_resources=_make_resources(store, journal, spill, settings, helpers, place, bus),
            end_jobs=helpers.jobs.end,
            hooks=settings.hooks,
            mcp=partial(get_servers, mcp),
            maker=maker,
            listen=bus.listen,
            subtasks=settings.subtasks,
            deadlines=settings.deadlines,
            continue_on_deny=settings.continue_on_deny,
            budgets=DirectoryBudgets(store, settings.budgets),
            undo_context=make_undo_context(maker, store, snapshots, settings.undo),
        )
        parts = ApiParts(runtime, settings.sources, helpers=helpers, mcp=mcp, terminals=terminals)
        async with _open_runner(runtime, settings.carry_files, spill, warn) as runner:
            yield LocalApi(
                runtime=runtime, bus=bus, runner=runner, statuses=statuses, parts=parts, sharing=sharer
            )


@asynccontextmanager
async def _open_runner(
    runtime: Runtime, carry_files: CarryFiles, spill: Spill, warn: Warn
) -> AsyncIterator[Runner]:
    """Remove old outputs, settle what a dead process left behind, and start a runner. Leaving ends all runs."""
    await spill.remove_old(runtime.clock.now())
    async with open_tasks() as tasks:
        runner = Runner(replace(runtime, files=carry_files(runtime.undo_context)), tasks)
        log = runtime.store.event_log
        if log is not None:
            log.watch_leases(runner.end_lost_run)
        for error in (*await runner.settle_dead_runs(), *await recover_file_changes(runtime.undo_context)):
            warn(error)
        try:
            yield runner
        finally:
            runtime.gate.close()
            runtime.questions.close()
            await runner.close()
            if log is not None:
                log.unwatch_leases(runner.end_lost_run)


def _open_gates(
    settings: Settings, place: Place, clock: Clock, mint: Mint, journal: Journal, store: Store
) -> AbstractAsyncContextManager[tuple[Gate, QuestionGate]]:
    context = GateContext(
        clock=clock,
        mint=mint,
        project=permission_project(place),
        publish=journal.commit,
        consult=to_consult(settings.hooks),
    )
    return open_gates(settings.permissions, context, store)


def _open_mcp(
    settings: Settings, place: Place, journal: Journal
) -> AbstractAsyncContextManager[OnDemand[LocalMcp]]:
    # A tool of a server must not take the name of a built-in tool.
    launch = McpLaunch(
        directory=place.directory, environment=settings.environment, sandbox=settings.helpers.sandbox
    )
    reserved = frozenset(tool.name for tool in settings.tools)
    return open_mcp(settings.mcp, launch, journal.commit, reserved=reserved)


def _make_share_context(
    store: Store, journal: Journal, clock: Clock, models: Registry, settings: Settings
) -> ShareContext:
    def find_model(ref: ModelRef) -> Model | None:
        try:
            return models.get(ref).model
        except ModelNotFoundError:
            return None

    return ShareContext(
        store=store,
        journal=journal,
        clock=clock,
        remote=LazyShareClient(clock),
        settings=settings.sharing,
        find_model=find_model,
    )


def _list_commands(place: Place, settings: Settings) -> Mapping[str, Command]:
    return build_commands(Config(), place.worktree) if settings.commands is None else settings.commands


def _make_resources(
    store: Store,
    journal: Journal,
    spill: Spill,
    settings: Settings,
    helpers: ToolHelpers,
    place: Place,
    bus: Bus,
) -> Callable[[SessionID], ToolResources]:
    """Return a function that makes the resources of a session: what its tools share between calls."""
    guards: dict[SessionID, ReadGuard] = {}

    def get_guard(session: SessionID) -> ReadGuard:
        guard = guards.pop(session, None) or ReadGuard(off=settings.guard_off)
        guards[session] = guard  # the last one is that of the session that ran last
        if len(guards) > MAX_GUARDS:
            del guards[next(iter(guards))]
        return guard

    def forget_removed(event: SessionDeleted) -> None:
        guards.pop(event.info.id, None)

    bus.watch(forget_removed, SessionDeleted)

    async def report_edited(path: str) -> None:
        # Format first, so that listeners read the final file. OpenCode publishes first and formats afterwards.
        await helpers.programs.get().formatters(path)
        await journal.commit(FileEdited(file=path))

    def make_recall(session: SessionID) -> Recall:
        async def recall_words(words: str, *, limit: int) -> list[RecallMatch]:
            return recall(await store.list_messages(session), words, limit=limit)

        return recall_words

    def open_history(session: SessionID) -> SessionHistory:
        from weft.local.history import ProjectHistory  # noqa: PLC0415  few runs search other sessions

        return ProjectHistory(store, place.project.id, session)

    def make_for_session(session: SessionID) -> ToolResources:
        return ToolResources(
            guard=get_guard(session),
            spill=spill,
            todos=SessionTodos(store, journal, session),
            after_edit=report_edited,
            recall=make_recall(session),
            environment=settings.environment,
            files=SessionFiles(session, settings.editor),
            terminals=settings.editor,
            language_servers=LazyLanguageServers(helpers.programs),
            jobs=helpers.jobs,
            history=partial(open_history, session),
            sandbox=settings.helpers.sandbox,
        )

    return make_for_session


class SessionTodos:
    """The todo list of a session, as tools use it."""

    def __init__(self, store: Store, journal: Journal, session: SessionID) -> None:
        self._store = store
        self._journal = journal
        self._session = session

    async def read(self) -> Sequence[Todo]:
        return await self._store.list_todos(self._session)

    async def write(self, todos: Sequence[Todo]) -> None:
        await self._journal.commit(TodoUpdated(session_id=self._session, todos=tuple(todos)))
