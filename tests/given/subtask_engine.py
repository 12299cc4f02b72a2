"""An engine for tests of child sessions: agents, a provider with a script for each session, and functions to read results."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from given.engine import ALLOW, ECHO, NOW, open_engine
from given.prompt_keyed_provider import PromptKeyedProvider, Script
from weft.local.api import LocalApi
from weft.model.agent import AgentInfo
from weft.model.ids import SessionID
from weft.model.input import SessionInput, SubtaskInput
from weft.model.message import MessageWithParts
from weft.model.part import CompletedState, ErrorState, PendingState, RunningState, TextPart, ToolPart
from weft.model.permission import Rule
from weft.model.session import SessionInfo
from weft.provider.scripted import UseTool
from weft.testing.clock import HandClock
from weft.tool.contract import AnyTool
from weft.tool.registry import INVALID, TASK

GENERAL = AgentInfo(name="general", mode="subagent", description="For work of any kind.", permission=ALLOW)
EXPLORE = AgentInfo(name="explore", mode="subagent", description="For finding things.", permission=ALLOW)
SECRET = AgentInfo(name="secret", mode="subagent", hidden=True, permission=ALLOW)
NESTING = AgentInfo(
    name="nesting", mode="subagent", permission=(*ALLOW, Rule(permission="task", pattern="*", action="allow"))
)
AGENTS = (GENERAL, EXPLORE, SECRET, NESTING)


class SubtaskEngine(Struct, frozen=True, kw_only=True):
    api: LocalApi
    provider: PromptKeyedProvider
    clock: HandClock


@asynccontextmanager
async def open_subtask_engine(
    scripts: Mapping[str, Script], *, tools: tuple[AnyTool, ...] = (ECHO,), **more: Any
) -> AsyncIterator[SubtaskEngine]:
    clock = HandClock(NOW)
    provider = PromptKeyedProvider(scripts, clock)
    more.setdefault("agents", AGENTS)
    async with (
        asyncio.timeout(60),
        open_engine(clock=clock, provider=provider, tools=(INVALID, TASK, *tools), **more) as engine,
    ):
        yield SubtaskEngine(api=engine.api, provider=provider, clock=clock)


def task_call(prompt: str, agent: str = "general", **more: Any) -> UseTool:
    given = {"description": f"Do {prompt}", "prompt": prompt, "subagent_type": agent, **more}
    return UseTool(tool="task", input=given)


def subtask(prompt: str, agent: str = "general", **more: Any) -> SubtaskInput:
    return SubtaskInput(prompt=prompt, description=f"Do {prompt}", agent=agent, **more)


async def start(engine: SubtaskEngine, **given: Any) -> SessionID:
    return (await engine.api.create_session(SessionInput(**given))).id


def list_calls(messages: list[MessageWithParts]) -> list[ToolPart]:
    return [part for each in messages for part in each.parts if isinstance(part, ToolPart)]


def tasks_in(messages: list[MessageWithParts]) -> list[ToolPart]:
    return [part for part in list_calls(messages) if part.tool == "task"]


async def tasks_of(engine: SubtaskEngine, session: SessionID) -> list[ToolPart]:
    return tasks_in(await engine.api.list_messages(session))


async def children_of(engine: SubtaskEngine, session: SessionID) -> list[SessionInfo]:
    return await engine.api.list_children(session)


def get_completed(part: ToolPart) -> CompletedState:
    assert isinstance(part.state, CompletedState), part.state
    return part.state


def get_error(part: ToolPart) -> str:
    assert isinstance(part.state, ErrorState), part.state
    return part.state.error


def text_of(message: MessageWithParts) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, TextPart))


def open_parts(messages: list[MessageWithParts]) -> list[ToolPart]:
    return [
        part
        for message in messages
        for part in message.parts
        if isinstance(part, ToolPart) and isinstance(part.state, PendingState | RunningState)
    ]


def deny(permission: str, pattern: str = "*") -> Rule:
    return Rule(permission=permission, pattern=pattern, action="deny")
