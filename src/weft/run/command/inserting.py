"""The shell commands that a command's template inserts: judged by the rules of its agent, run, and their output kept.

They are run as if the agent had called its shell: the same rules, the same questions, the same bounds. OpenCode runs
them unasked, wherever its process happens to stand.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from weft.errors import NotFoundError, ToolError
from weft.host.tasks import open_tasks
from weft.model.agent import Agent
from weft.model.ids import MessageID
from weft.model.permission import CallRef, PermissionRequest
from weft.model.session import Session
from weft.permission.gate import Standing, Whereabouts
from weft.permission.limits import limits_for
from weft.plugin.hooks import CallTold
from weft.run.calls import Caller, context_for, unreported
from weft.run.hooked.called import after, before
from weft.run.kit import Kit
from weft.run.person.whereabouts import find_root
from weft.tool.contract import Ask, to_input
from weft.tool.truncate import bound

TOOL = "bash"
TIMEOUT_MS = 60_000
TOGETHER = 4
NOT_FILLED_IN = "[not run: what is typed behind a command is not put into the shell commands of its template]"


async def run_all(kit: Kit, session: Session, agent: Agent, commands: Sequence[str]) -> list[str]:
    """What each of them says, in order. Raises `NotPermittedError` if one may not be run.

    One that fails says so in its place.
    """
    places = asyncio.Semaphore(TOGETHER)

    async def one(command: str) -> str:
        async with places:
            return await _run(kit, session, agent, command)

    async with open_tasks() as tasks:
        running = [tasks.create_task(one(command)) for command in commands]
    return [task.result() for task in running]


async def _run(kit: Kit, session: Session, agent: Agent, command: str) -> str:
    if "$ARGUMENTS" in command:
        return NOT_FILLED_IN
    tool = kit.tools.get(TOOL)
    if tool is None:
        raise NotFoundError("tool", TOOL)
    caller = Caller(session=session.id, agent=agent.name, call=CallRef(message_id=MessageID(""), call_id=""))
    context = context_for(kit, caller, ask=_ask_for(kit, session, agent), report=unreported)
    wanted = {"command": command, "description": "Insert into a command", "timeout": TIMEOUT_MS}
    call = await before(
        kit.hooks, CallTold(tool=TOOL, session_id=session.id, call_id=context.call_id, args=wanted)
    )
    try:
        made = await tool.run(to_input(tool, call.args), context)
        result = await bound(await after(kit.hooks, call, made), context.desk.spill)
    except ToolError as error:
        return f"Error executing command: {error}"
    return result.output.removesuffix("\n")


def _ask_for(kit: Kit, session: Session, agent: Agent) -> Ask:
    """The gate, for what is asked before there is a prompt."""
    standing = Standing(
        limits=limits_for(agent, session), agent=agent.name, find=partial(_find_whereabouts, kit, session)
    )

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
        )
        await kit.gate.let_pass(request, standing)

    return ask


async def _find_whereabouts(kit: Kit, session: Session) -> Whereabouts:
    return Whereabouts(root_id=await find_root(kit.store, session))
