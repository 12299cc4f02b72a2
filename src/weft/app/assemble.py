"""Build every capability for one directory, out of what was found about it."""

import os
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from msgspec import Struct

from weft.app.local import Local
from weft.bus import Bus
from weft.host.clock import Clock, SystemClock
from weft.host.tasks import open_tasks
from weft.journal import Journal, open_journal
from weft.model.agent import Agent, ReadInstructions, no_instructions
from weft.model.event import FileEdited
from weft.model.ids import Mint, SessionID
from weft.model.project import Place
from weft.permission.gate import Gate
from weft.provider.registry import Registry
from weft.run.kit import Compaction, Kit
from weft.run.runner import Runner
from weft.session.lifecycle import Maker
from weft.session.todo import SessionTodos
from weft.store.contract import Store
from weft.tool.contract import AnyTool
from weft.tool.desk import Desk
from weft.tool.guard import Guard
from weft.tool.spill import Spill


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
    compaction: Compaction = Compaction()
    instructions: ReadInstructions = no_instructions
    plans: str = ""
    plan_files: bool = False
    guard_off: bool = False
    answered: bool = False


@asynccontextmanager
async def open_local(
    place: Place, store: Store, models: Registry, settings: Settings, seams: Seams
) -> AsyncIterator[Local]:
    """An `Api` over this directory. Leaving ends its runs and writes what is unwritten."""
    clock, bus = seams.clock, Bus()
    mint = Mint(clock.now, seams.random)
    spill = Spill(settings.tool_output, mint)
    async with open_journal(store, bus, clock, directory=place.directory) as journal, open_tasks() as tasks:
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
            gate=Gate(journal.commit, answered=settings.answered),
            desk=_desks(store, journal, spill, settings),
        )
        await spill.sweep(clock.now())
        maker = Maker(journal=journal, clock=clock, mint=mint, random=seams.random, place=place)
        runner = Runner(kit, tasks)
        await runner.recover()
        try:
            yield Local(kit=kit, bus=bus, runner=runner, maker=maker)
        finally:
            await runner.close()


def _desks(store: Store, journal: Journal, spill: Spill, settings: Settings) -> Callable[[SessionID], Desk]:
    """A desk for each session, the same one every time."""
    guards: defaultdict[SessionID, Guard] = defaultdict(lambda: Guard(off=settings.guard_off))

    async def edited(path: str) -> None:
        await journal.commit(FileEdited(file=path))

    def desk(session: SessionID) -> Desk:
        return Desk(
            guard=guards[session],
            spill=spill,
            todos=SessionTodos(store, journal, session),
            edited=edited,
            environment=settings.environment,
        )

    return desk
