"""Build every capability for one directory from its configuration."""

import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from msgspec import Struct

from weft.bus import Bus
from weft.config.commands import build_commands
from weft.config.schema import Config
from weft.context.compaction import recall
from weft.errors import ModelNotFoundError, WeftError
from weft.host.clock import Clock, SystemClock
from weft.host.tasks import open_tasks
from weft.journal import Journal, open_journal
from weft.local.api import Local, Statuses
from weft.local.configuration import Configured
from weft.local.files import ProjectFiles
from weft.local.mcp import Base, KeptServers, McpSettings, open_mcp
from weft.local.permissions import Permitting, consulting, name_of, open_gates
from weft.local.terminals import OpenTerminals, open_terminals
from weft.local.tools import Aides, Workshop, open_aides
from weft.local.undo import Undoing, open_undoing, to_undoer
from weft.local.workspace import Around as Surrounding
from weft.local.workspace import Known
from weft.local.worktrees import KeptWorktrees
from weft.model.agent import Agent, Command, ReadInstructions, no_instructions
from weft.model.catalog import Model
from weft.model.event import FileEdited
from weft.model.ids import Mint, SessionID
from weft.model.part import ModelRef
from weft.model.project import Place
from weft.model.search import Recalled
from weft.model.spending import Budgets
from weft.outlook import EditorWorkspace
from weft.permission.gate import Gate
from weft.permission.questions import Questions
from weft.permission.terms import Around
from weft.plugin.hooks import UNHOOKED, Hooks
from weft.provider.registry import Registry
from weft.run.kit import Compaction, Deadlines, Kit, Subtasks
from weft.run.runner import Runner
from weft.session.budget import Purse
from weft.session.lifecycle import Maker, SessionTodos
from weft.share.contract import Afar, Ground, ShareSettings
from weft.share.sharer import Sharer, open_sharer
from weft.store.contract import Store
from weft.tool.buffers import Files
from weft.tool.contract import AnyTool, Desk, Guard, Recall
from weft.tool.spill import Spill
from weft.undo.recovery import recover

Warn = Callable[[WeftError], None]


def unheard(_: WeftError) -> None:
    """For who wants no warnings."""


class Seams(Struct, frozen=True, kw_only=True):
    """Where a test may put something else than the machine: time and chance."""

    clock: Clock = SystemClock()
    random: Callable[[int], bytes] = os.urandom


class Settings(Struct, frozen=True, kw_only=True):
    """What configuration and environment came to, as far as a run needs it."""

    agents: Mapping[str, Agent]
    default_agent: str
    tools: tuple[AnyTool, ...]
    tool_output: str
    environment: Mapping[str, str]
    output_limit: int
    commands: Mapping[str, Command] | None = None
    workshop: Workshop = Workshop()
    compaction: Compaction = Compaction()
    subtasks: Subtasks = Subtasks()
    deadlines: Deadlines = Deadlines()
    continue_on_deny: bool = False
    budgets: Budgets = Budgets()
    instructions: ReadInstructions = no_instructions
    plans: str = ""
    plan_files: bool = False
    guard_off: bool = False
    permitting: Permitting = Permitting()
    undoing: Undoing = Undoing()
    mcp: McpSettings = McpSettings()
    known: Known = Known()
    sharing: ShareSettings = ShareSettings()
    hooks: Hooks = UNHOOKED
    editor: EditorWorkspace | None = None


class Beside(Struct, frozen=True):
    """What is opened for a directory and is not part of a run."""

    bus: Bus
    statuses: Statuses
    aides: Aides
    terminals: OpenTerminals
    mcp: KeptServers
    sharer: Sharer


@asynccontextmanager
async def open_local(
    place: Place, store: Store, models: Registry, settings: Settings, seams: Seams, *, warn: Warn = unheard
) -> AsyncIterator[Local]:
    """An `Api` over this directory. Leaving ends its runs and writes what is unwritten."""
    clock, bus, mint = seams.clock, Bus(), Mint(seams.clock.now, seams.random)
    statuses, spill = Statuses(bus, directory=place.directory), Spill(settings.tool_output, mint)
    async with (
        open_journal(store, bus, clock, directory=place.directory) as journal,
        open_sharer(_ground(store, journal, clock, models, settings), bus) as sharer,
        _open_gates(settings, place, clock, mint, journal) as (gate, questions),
        open_aides(settings.workshop, place, settings.environment, clock) as aides,
        open_undoing(settings.undoing, place) as snapshots,
        open_terminals(place.directory, settings.environment, mint, journal.commit) as terminals,
        _open_mcp(settings, place, journal) as mcp,
        open_tasks() as tasks,
    ):
        maker = Maker(journal=journal, clock=clock, mint=mint, random=seams.random, place=place)
        kit = Kit(
            store=store,
            journal=journal,
            clock=clock,
            mint=mint,
            chance=lambda: int.from_bytes(seams.random(4)) / 2**32,
            place=place,
            owner=f"process {os.getpid()} on {os.uname().nodename}",
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
            commands=_commands(place, settings),
            gate=gate,
            questions=questions,
            desk=_desks(store, journal, spill, settings, aides),
            end_jobs=aides.jobs.end,
            hooks=settings.hooks,
            guests=mcp.pool,
            maker=maker,
            listen=bus.listen,
            subtasks=settings.subtasks,
            deadlines=settings.deadlines,
            continue_on_deny=settings.continue_on_deny,
            purse=Purse(store, settings.budgets),
            undoer=to_undoer(maker, store, snapshots, theirs=settings.undoing.theirs),
        )
        await spill.sweep(clock.now())
        runner = Runner(kit, tasks)
        for unsettled in (*await runner.recover(), *await recover(kit.undoer)):
            warn(unsettled)
        try:
            yield _local(kit, runner, settings, Beside(bus, statuses, aides, terminals, mcp, sharer))
        finally:
            gate.close()
            questions.close()
            await runner.close()


def _open_gates(
    settings: Settings, place: Place, clock: Clock, mint: Mint, journal: Journal
) -> AbstractAsyncContextManager[tuple[Gate, Questions]]:
    around = Around(
        clock=clock,
        mint=mint,
        project=name_of(place),
        tell=journal.commit,
        consult=consulting(settings.hooks),
    )
    return open_gates(settings.permitting, around)


def _local(kit: Kit, runner: Runner, settings: Settings, beside: Beside) -> Local:
    return Local(
        kit=kit,
        bus=beside.bus,
        runner=runner,
        maker=kit.maker,
        statuses=beside.statuses,
        surroundings=Surrounding(kit=kit, known=settings.known, aides=beside.aides, mcp=beside.mcp),
        configuration=Configured(settings.known, kit.models, kit.clock.now),
        files=ProjectFiles(kit.place, settings.known.env, settings.environment),
        terminals=beside.terminals,
        mcp=beside.mcp,
        worktrees=KeptWorktrees(place=kit.place, paths=settings.known.paths, env=settings.known.env),
        sharing=beside.sharer,
        revoke=beside.sharer.revoke,
        welcome=beside.sharer.welcome,
    )


def _open_mcp(settings: Settings, place: Place, journal: Journal) -> AbstractAsyncContextManager[KeptServers]:
    """No tool of a server gets the name of one of ours."""
    base = Base(
        directory=place.directory, environment=settings.environment, sandbox=settings.workshop.sandbox
    )
    reserved = frozenset(tool.name for tool in settings.tools)
    return open_mcp(settings.mcp, base, journal.commit, reserved=reserved)


def _ground(store: Store, journal: Journal, clock: Clock, models: Registry, settings: Settings) -> Ground:
    def find_model(ref: ModelRef) -> Model | None:
        try:
            return models.get(ref).model
        except ModelNotFoundError:
            return None

    return Ground(
        store=store,
        journal=journal,
        clock=clock,
        remote=Afar(clock),
        settings=settings.sharing,
        find_model=find_model,
    )


def _commands(place: Place, settings: Settings) -> Mapping[str, Command]:
    """As configured; the built-in ones are there in any case."""
    return build_commands(Config(), place.worktree) if settings.commands is None else settings.commands


def _desks(
    store: Store, journal: Journal, spill: Spill, settings: Settings, aides: Aides
) -> Callable[[SessionID], Desk]:
    """A desk for each session, the same one every time."""
    guards: defaultdict[SessionID, Guard] = defaultdict(lambda: Guard(off=settings.guard_off))

    async def edited(path: str) -> None:
        # First, so that whoever is told of the file reads it as it stays. OpenCode tells, and then formats.
        await aides.tidy(path)
        await journal.commit(FileEdited(file=path))

    def recall_in(session: SessionID) -> Recall:
        async def found(words: str, *, limit: int) -> list[Recalled]:
            return recall(await store.list_messages(session), words, limit=limit)

        return found

    def desk(session: SessionID) -> Desk:
        return Desk(
            guard=guards[session],
            spill=spill,
            todos=SessionTodos(store, journal, session),
            edited=edited,
            recall=recall_in(session),
            environment=settings.environment,
            files=Files(session, settings.editor),
            terminals=settings.editor,
            lookout=aides.lookout,
            jobs=aides.jobs,
            sandbox=settings.workshop.sandbox,
        )

    return desk
