"""Weft at work in a sandbox: the real store, the real tools, the real clock, and a scripted model."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace

from opencode.sandbox import Sandbox
from weft.app.assemble import Seams, Settings, open_local
from weft.app.local import Local
from weft.host.clock import SystemClock
from weft.host.git import Git
from weft.host.process import tool_environment
from weft.model.agent import Agent
from weft.model.event import ProjectUpdated
from weft.model.input import PromptInput, TextInput
from weft.model.part import ModelRef
from weft.model.permission import Rule
from weft.model.place import Place
from weft.project.facts import Known
from weft.project.id_file import write_id
from weft.project.look import look
from weft.project.resolve import resolve
from weft.provider.demo import scripted_model
from weft.provider.registry import Registry, Served
from weft.provider.scripted import AnyMove, ScriptedProvider
from weft.store.contract import Store
from weft.store.url import open_store
from weft.tool.registry import TOOLS

# The same name as in the sandbox's configuration: each program goes on with the model the other one used.
FAKE = replace(scripted_model("fake-model"), provider_id="fake")
ALLOW = (Rule(permission="*", pattern="*", action="allow"),)


class Engine(Struct, frozen=True, kw_only=True):
    api: Local
    store: Store
    provider: ScriptedProvider


@asynccontextmanager
async def open_engine(sandbox: Sandbox, *script: Sequence[AnyMove]) -> AsyncIterator[Engine]:
    clock = SystemClock()
    provider = ScriptedProvider(script, clock)
    settings = Settings(
        agents={"build": Agent(name="build", mode="primary", permission=ALLOW)},
        default_agent="build",
        tools=TOOLS,
        tool_output=str(sandbox.storage.parent / "tool-output"),
        environment=tool_environment(sandbox.env),
    )
    models = Registry(
        [Served(FAKE, provider)], default=ModelRef(provider_id=FAKE.provider_id, model_id=FAKE.id)
    )
    async with open_sandbox_store(sandbox) as store:
        place = await find_place(sandbox, store)
        async with open_local(place, store, models, settings, Seams(clock=clock)) as api:
            yield Engine(api=api, store=store, provider=provider)


def open_sandbox_store(sandbox: Sandbox) -> "AsyncIterator[Store]":
    return open_store(f"file:{sandbox.storage}")


async def find_place(sandbox: Sandbox, store: Store) -> Place:
    known = Known(projects={project.id: project for project in await store.list_projects()}, aliases={})
    at = look(str(sandbox.project))
    found = resolve(at, known, git=Git(os.environ), now=SystemClock().now())
    if found.project is not None:
        await store.apply(ProjectUpdated(info=found.project))
    if found.id_file is not None:
        write_id(found.id_file)
    return found.place


def say(words: str) -> PromptInput:
    return PromptInput(parts=(TextInput(text=words),))
