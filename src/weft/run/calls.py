"""Carry out tool calls: find the tool, check what the model wrote, ask, run, bring back what came of it."""

from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.errors import BlockedError, NotPermittedError, RejectedError, WeftError
from weft.model.agent import Agent
from weft.model.ids import SessionID
from weft.model.input import FileInput
from weft.model.permission import CallRef, PermissionRequest
from weft.model.session import Session
from weft.permission.gate import Standing
from weft.permission.limits import judge, limits_for
from weft.permission.writing import watch_named, watch_writers
from weft.plugin.hooks import Hooks
from weft.provider.chunk import ToolCall
from weft.run.children.named import let_named
from weft.run.hooked.called import after, before, to_told
from weft.run.kit import Kit
from weft.run.person.whereabouts import find_whereabouts
from weft.run.processor import CallDone, CallFailed, CallStarted
from weft.run.watched import watched
from weft.tool.contract import AnyTool, Ask, Permits, Report, ToolContext, ToolResult, to_input
from weft.tool.invalid import INVALID
from weft.tool.truncate import bound


def prepare(call: ToolCall, offered: Collection[str], known: Collection[str]) -> CallStarted:
    """Return the call as it can be carried out. One that cannot becomes a call of `invalid`, which tells the model why.

    Only the tools that the request `offered` can be called. A tool that is `known` and was not offered (the prompt or a
    rule switched it off, or this is the last step) is refused like one that does not exist.
    """
    name = call.tool if call.tool in offered else call.tool.lower()
    if name not in offered:
        return _invalid(call, unavailable(call.tool, offered, known))
    try:
        arguments = msgspec.json.decode(call.raw.strip() or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return _invalid(call, f"the arguments are not JSON: {error}")
    if not isinstance(arguments, dict):
        return _invalid(call, "the arguments are not a JSON object")
    return CallStarted(call_id=call.call_id, tool=name, input=arguments, metadata=call.metadata)


def unavailable(tool: str, offered: Iterable[str], known: Collection[str]) -> str:
    """Tell the model why a tool cannot be called, and which ones can."""
    others = ", ".join(offered) or "none"
    if tool in known or tool.lower() in known:
        return f"the tool {tool!r} is not available in this step; there are {others}"
    return f"there is no tool {tool!r}; there are {others}"


def _invalid(call: ToolCall, error: str) -> CallStarted:
    return CallStarted(
        call_id=call.call_id,
        tool=INVALID.name,
        input={"tool": call.tool, "error": error},
        metadata=call.metadata,
    )


async def carry_out(
    call: CallStarted, tool: AnyTool, context: ToolContext, hooks: Hooks
) -> CallDone | CallFailed:
    """Run the tool to its end. Whatever it raises becomes a result the model can read.

    Plugins are asked first: what they make of the arguments is what is checked, judged by the rules, and done.
    """
    try:
        hooked = await before(hooks, to_told(call, context.session_id))
        result = await after(hooks, hooked, await _run(tool, hooked.args, context))
        result = await bound(result, context.desk.spill)
    except BlockedError as error:
        return CallFailed(call_id=call.call_id, error=f"Blocked by a plugin: {error}")
    except NotPermittedError as error:
        return CallFailed(call_id=call.call_id, error=str(error), refused=isinstance(error, RejectedError))
    except WeftError as error:
        return CallFailed(call_id=call.call_id, error=str(error))
    except Exception as error:  # noqa: BLE001  a tool is a stranger's code: its fault ends the call, not the run
        return CallFailed(call_id=call.call_id, error=f"{type(error).__name__}: {error}")
    return _done(call, result)


async def _run(tool: AnyTool, given: dict[str, Any], context: ToolContext) -> ToolResult:
    wanted = to_input(tool, given)
    if tool.announces:
        return await tool.run(wanted, context)
    async with watched(context) as watching:
        return await tool.run(wanted, watching)


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
    context = ToolContext(
        session_id=caller.session,
        message_id=caller.call.message_id,
        call_id=caller.call.call_id,
        agent=caller.agent,
        directory=kit.place.directory,
        worktree=kit.place.worktree,
        clock=kit.clock,
        ask=let_named(kit.store, caller.session, caller.call, ask),
        report=report,
        desk=kit.desk(caller.session),
        agents=kit.agents,
    )
    return replace(context, spawn=partial(kit.spawn, context))


def permits_for(session: Session, agent: Agent) -> Permits:
    """What the rules let an agent do unasked."""
    limits = limits_for(agent, session)
    return lambda permission, pattern: judge(permission, pattern, limits).action == "allow"


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
        told = metadata or {}
        limits = watch_writers(standing.limits, permission, told.get("mayWrite", ()))
        limits = watch_named(limits, permission, told.get("perhaps", ()))
        await kit.gate.let_pass(
            request, standing if limits is standing.limits else replace(standing, limits=limits)
        )

    standing = Standing(
        limits=limits_for(agent, session),
        agent=agent.name,
        find=partial(find_whereabouts, kit, session, call),
    )
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
