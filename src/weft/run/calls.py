"""Carry out tool calls: find the tool, check what the model wrote, ask, run, bring back what came of it."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from weft.errors import NotPermittedError, RejectedError, WeftError
from weft.model.agent import Agent
from weft.model.ids import SessionID
from weft.model.input import FileInput
from weft.model.permission import CallRef, PermissionRequest
from weft.model.session import Session
from weft.permission.rules import merge
from weft.provider.chunk import ToolCall
from weft.run.kit import Kit
from weft.run.processor import CallDone, CallFailed, CallStarted
from weft.tool.contract import AnyTool, Ask, Report, ToolContext, ToolResult, to_input
from weft.tool.registry import UNSEEN
from weft.tool.truncate import bound

INVALID = "invalid"


def prepare(call: ToolCall, tools: Mapping[str, AnyTool]) -> CallStarted:
    """The call as it can be carried out. One that cannot becomes a call of `invalid`, which tells the model why."""
    name = call.tool if call.tool in tools else call.tool.lower()
    if name not in tools:
        return _invalid(
            call,
            f"there is no tool {call.tool!r}; there are {', '.join(each for each in tools if each not in UNSEEN)}",
        )
    try:
        arguments = msgspec.json.decode(call.raw.strip() or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return _invalid(call, f"the arguments are not JSON: {error}")
    if not isinstance(arguments, dict):
        return _invalid(call, "the arguments are not a JSON object")
    return CallStarted(call_id=call.call_id, tool=name, input=arguments, metadata=call.metadata)


def _invalid(call: ToolCall, error: str) -> CallStarted:
    return CallStarted(
        call_id=call.call_id, tool=INVALID, input={"tool": call.tool, "error": error}, metadata=call.metadata
    )


async def carry_out(call: CallStarted, tool: AnyTool, context: ToolContext) -> CallDone | CallFailed:
    """Run the tool to its end. Whatever it raises becomes a result the model can read."""
    try:
        result = await bound(await tool.run(to_input(tool, call.input), context), context.desk.spill)
    except NotPermittedError as error:
        return CallFailed(call_id=call.call_id, error=str(error), refused=isinstance(error, RejectedError))
    except WeftError as error:
        return CallFailed(call_id=call.call_id, error=str(error))
    except Exception as error:  # noqa: BLE001  a tool is a stranger's code: its fault ends the call, not the run
        return CallFailed(call_id=call.call_id, error=f"{type(error).__name__}: {error}")
    return _done(call, result)


def _done(call: CallStarted, result: ToolResult) -> CallDone:
    return CallDone(
        call_id=call.call_id,
        title=result.title,
        output=result.output,
        metadata=result.metadata,
        files=tuple(
            FileInput(mime=file.mime, url=file.url, filename=file.filename) for file in result.attachments
        ),
    )


class Caller(Struct, frozen=True, kw_only=True):
    """On whose behalf a tool is used: the session, its agent, and the call in a message."""

    session: SessionID
    agent: str
    call: CallRef


def context_for(kit: Kit, caller: Caller, *, ask: Ask, report: Report) -> ToolContext:
    return ToolContext(
        session_id=caller.session,
        message_id=caller.call.message_id,
        call_id=caller.call.call_id,
        agent=caller.agent,
        directory=kit.place.directory,
        worktree=kit.place.worktree,
        clock=kit.clock,
        ask=ask,
        report=report,
        desk=kit.desk(caller.session),
    )


def ask_for(kit: Kit, session: Session, agent: Agent, call: CallRef) -> Ask:
    """The gate, as one call of a tool sees it."""

    async def ask(
        permission: str,
        *patterns: str,
        always: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        request = PermissionRequest(
            id=kit.mint.permission(),
            session_id=session.id,
            permission=permission,
            patterns=patterns,
            metadata=metadata or {},
            always=always,
            tool=call,
        )
        await kit.gate.let_pass(request, merge(agent.permission, session.permission or ()))

    return ask


async def unasked(
    permission: str,
    *patterns: str,
    always: tuple[str, ...] = (),
    metadata: dict[str, Any] | None = None,
) -> None:
    """For what the person does with their own hand: nobody else needs to agree."""


async def unreported(*, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
    """For a use of a tool that nobody watches."""
