"""A whole engine in memory: a scripted model, tools of the test, a manual clock, reproducible ids."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from msgspec import Struct

from weft.host.clock import Clock
from weft.host.processes import describe_process
from weft.local.api import LocalApi
from weft.local.assembly import Seams, Settings, open_local_api
from weft.model.agent import AgentInfo
from weft.model.catalog import Model
from weft.model.ids import ProjectID
from weft.model.input import PromptInput, TextInput
from weft.model.part import ModelRef
from weft.model.permission import Rule
from weft.model.project import Place, Project, ProjectTime
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.contract import Provider
from weft.provider.registry import Registry, ServedModel
from weft.provider.scripted import AnyMove, ScriptedProvider
from weft.run.runtime import CompactionPolicy
from weft.store.contract import Store
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult

NOW = 1_790_000_000_000
MODEL = make_scripted_model("test")
ALLOW = (Rule(permission="*", pattern="*", action="allow"),)
PLACE = Place(
    project=Project(id=ProjectID("global"), worktree="/", time=ProjectTime(created=NOW, updated=NOW)),
    directory="/nowhere",
    worktree="/nowhere",
)


class EchoInput(Struct, frozen=True):
    words: str


async def echo(wanted: EchoInput, ctx: ToolContext) -> ToolResult:
    await ctx.ask("echo", wanted.words)
    return ToolResult(title=f"Echo {wanted.words}", output=wanted.words)


ECHO: AnyTool = Tool(name="echo", about="Say it back.", takes=EchoInput, run=echo)


class Engine(Struct, frozen=True, kw_only=True):
    api: LocalApi
    store: Store
    provider: ScriptedProvider


@asynccontextmanager
async def open_engine(
    *script: Sequence[AnyMove],
    store: Store | None = None,
    clock: Clock | None = None,
    tools: tuple[AnyTool, ...] = (ECHO,),
    model: Model = MODEL,
    rules: tuple[Rule, ...] = ALLOW,
    place: Place = PLACE,
    seed: int = 1,
    provider: Provider | None = None,
    agents: tuple[AgentInfo, ...] = (),
    small: ServedModel | None = None,
    more_models: tuple[ServedModel, ...] = (),
    auto: bool = True,
    skip_waits: bool = False,
    owner: str = "",
    **settings: Any,
) -> AsyncIterator[Engine]:
    clock = clock or (InstantClock(NOW) if skip_waits else HandClock(NOW))
    store = store or MemoryStore()
    scripted = ScriptedProvider(script, clock)
    home = os.environ["HOME"]
    build = AgentInfo(name="build", mode="primary", permission=rules, steps=settings.pop("steps", None))
    made = Settings(
        agents={"build": build, **{agent.name: agent for agent in agents}},
        compaction=CompactionPolicy(auto=auto),
        default_agent="build",
        tools=tools,
        tool_output=settings.pop("tool_output", f"{home}/tool-output"),
        environment={"HOME": home},  # or else a login shell reads the files of whoever runs the tests
        output_limit=32_000,
        **settings,
    )
    named = ModelRef(provider_id=model.provider_id, model_id=model.id)
    models = Registry(
        [ServedModel(model, provider or scripted), *([small] if small else []), *more_models],
        default=named,
        small=ModelRef(provider_id=small.model.provider_id, model_id=small.model.id) if small else None,
    )
    seams = Seams(
        clock=clock, random=Random(seed).randbytes, owner=(lambda: owner) if owner else describe_process
    )
    async with open_local_api(place, store, models, made, seams) as api:
        yield Engine(api=api, store=store, provider=scripted)


class InstantClock(HandClock):
    """A clock that does not wait: each sleep moves the time forward and returns."""

    async def sleep(self, seconds: float) -> None:
        self.turn(round(seconds * 1000))
        await asyncio.sleep(0)


def text_prompt(words: str, **more: Any) -> PromptInput:
    return PromptInput(parts=(TextInput(text=words),), **more)
