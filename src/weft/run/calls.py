"""Carry out tool calls: find the tool, check the arguments, ask, run, store what came of it."""

import asyncio
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from weft.context.reminders import NAME as HAND_OVER
from weft.context.reminders import wanted
from weft.errors import (
    BlockedError,
    CorrectedError,
    DeadlineError,
    NotFoundError,
    NotPermittedError,
    RejectedError,
    UnansweredError,
    WeftError,
)
from weft.host.tasks import Deadline
from weft.model.agent import Agent
from weft.model.ids import SessionID
from weft.model.input import FileInput
from weft.model.message import AssistantMessage
from weft.model.part import AgentPart
from weft.model.permission import CallRef, PermissionRequest
from weft.model.session import Session
from weft.permission.gate import Standing
from weft.permission.rules import judge, limits_for, watch_named, watch_writers
from weft.plugin.hooks import Hooks
from weft.provider.chunk import ToolCall
from weft.run.answer import Answer, Queue
from weft.run.changes import watched
from weft.run.doom import NOT_AGAIN, Doom, find_doom, hint, is_unclear, made_for, said_for, was_blocked
from weft.run.hooks import after, before, to_told
from weft.run.kit import Kit
from weft.run.processor import CallDone, CallFailed, CallReported, CallStarted
from weft.run.questions import find_whereabouts
from weft.run.structured import hand_over
from weft.store.contract import Store
from weft.tool.contract import AnyTool, Ask, Permits, Report, ToolContext, ToolResult, to_input
from weft.tool.registry import INVALID
from weft.tool.truncate import bound


def let_named(store: Store, session: SessionID, call: CallRef, ask: Ask) -> Ask:
    """The gate of a call, open for a task for an agent that the prompt names.

    OpenCode then lets every agent pass, and takes a name in a task that a model wrote for a person's, too.
    """

    async def asked(
        permission: str,
        *patterns: str,
        always: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        if permission == "task" and patterns and set(patterns) <= await named_in_prompt(store, session, call):
            return
        await ask(permission, *patterns, always=always, metadata=metadata)

    return asked


async def named_in_prompt(store: Store, session: SessionID, call: CallRef) -> set[str]:
    """The agents that the prompt names which a call is made for. Of a child none: a model wrote its prompt."""
    try:
        if (await store.get_session(session)).parent_id is not None:
            return set()
    except NotFoundError:
        return set()
    answer = await store.find_message(session, call.message_id)
    if answer is None or not isinstance(answer.info, AssistantMessage) or not answer.info.parent_id:
        return set()
    prompt = await store.find_message(session, answer.info.parent_id)
    return {part.name for part in (prompt.parts if prompt else ()) if isinstance(part, AgentPart)}


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


# They have deadlines of their own: a command's is the model's to choose, a subtask's counts for all below it, and of a
# batch each call has one.
OWN_CLOCK = frozenset({"bash", "task", "batch"})


class Calling:
    """The calls of an answer while they are under way. What comes of them goes to the queue, like the stream.

    `offered` are the tools that the request offered to the model; no other can be called.
    """

    def __init__(self, answer: Answer, agent: Agent, queue: Queue) -> None:
        self._answer = answer
        self._kit = answer.kit
        self._agent = agent
        self._queue = queue
        self._format = wanted(answer.step.prompt)
        self._seen: set[str] = set()
        self._open: set[str] = set()
        self._awaited: dict[str, asyncio.Future[bool]] = {}
        self._hopeless: dict[str, str] = {}
        self._asking_of_loops = asyncio.Lock()
        self._loop_refused = False
        self.offered: tuple[str, ...] = ()
        self.begun = 0
        self.refused = False

    @property
    def under_way(self) -> bool:
        return bool(self._open)

    async def start(self, call: ToolCall, tasks: asyncio.TaskGroup) -> None:
        # Some servers give every call of an answer the same id; a history needs them apart.
        self.begun += 1
        if call.call_id in self._seen:
            call = replace(call, call_id=f"{call.call_id}_{self.begun}")
        self._seen.add(call.call_id)
        started = prepare(call, self.offered, self._kit.tools)
        # `running` is stored before the tool runs: after a crash it is known that the call may have had effects.
        await self._answer.commit(self._answer.processor.feed(started))
        self._open.add(started.call_id)
        tasks.create_task(self._make(started))

    async def settle(self, outcome: CallDone | CallFailed) -> None:
        self._open.discard(outcome.call_id)
        self.refused |= isinstance(outcome, CallFailed) and outcome.refused
        await self._answer.commit(self._answer.processor.feed(outcome))
        await self._answer.changes.take_sent(outcome.call_id)
        awaited = self._awaited.pop(outcome.call_id, None)
        if awaited is not None and not awaited.done():
            awaited.set_result(isinstance(outcome, CallDone))

    async def also(self, tool: str, arguments: dict[str, Any], *, error: str = "") -> bool:
        """A call that another one makes: it goes the way of all calls, and is waited for."""
        id = self._kit.mint.part()
        if tool not in self.offered or tool not in self._kit.tools:
            error = error or unavailable(tool, self.offered, self._kit.tools)
        self._hopeless[id] = error
        self._awaited[id] = asyncio.get_running_loop().create_future()
        raw = msgspec.json.encode(arguments).decode()
        self._queue.put_nowait(ToolCall(call_id=id, tool=tool, raw=raw))
        return await self._awaited[id]

    async def _make(self, call: CallStarted) -> None:
        if error := self._hopeless.pop(call.call_id, ""):
            self._queue.put_nowait(CallFailed(call_id=call.call_id, error=error))
            return
        if self._format is not None and call.tool == HAND_OVER:
            handed = hand_over(call, self._format)
            if handed.value is not UNSET:
                self._answer.processor.structure(handed.value)
            self._queue.put_nowait(handed.outcome)
            return
        context = self._context(call.call_id)
        blocked = await self._blocked(call, context) or await self._doubted(call, context)
        self._queue.put_nowait(blocked or await self._carried_out(call, context))

    async def _carried_out(self, call: CallStarted, context: ToolContext) -> CallDone | CallFailed:
        """A tool that never returns is ended; the model reads that it was."""
        seconds = None if call.tool in OWN_CLOCK else self._kit.deadlines.tool
        tool = INVALID if call.tool == INVALID.name else self._kit.tools[call.tool]
        try:
            async with Deadline(f"tool {call.tool}", seconds, self._kit.clock).running():
                outcome = await carry_out(call, tool, context, self._kit.hooks)
        except DeadlineError as error:
            return CallFailed(call_id=call.call_id, error=str(error))
        if isinstance(outcome, CallFailed) and self._kit.continue_on_deny:
            return replace(outcome, refused=False)
        return outcome

    async def _blocked(self, call: CallStarted, context: ToolContext) -> CallFailed | None:
        """Ask whether a call that goes round in a circle may be made. Return its failure if not.

        A person who says no ends the run. A rule that forbids it, or nobody to ask, first has the model told; a circle in
        a later answer then ends the run.
        """
        history, prompt = self._answer.transcript.messages(), self._answer.step.prompt
        here = CallRef(message_id=self._answer.message.id, call_id=call.call_id)
        made = made_for(history, prompt, before=here)
        doom = find_doom(made, call.tool, call.input, said_for(history, prompt))
        if doom is None:
            return None
        # One at a time: a no to the first answers for the others, too.
        async with self._asking_of_loops:
            if self._loop_refused:
                return CallFailed(call_id=call.call_id, error=hint(doom), refused=True)
            return await self._asked_of_loop(call, context, doom)

    async def _asked_of_loop(self, call: CallStarted, context: ToolContext, doom: Doom) -> CallFailed | None:
        metadata = {"tool": call.tool, "input": call.input}
        try:
            await context.ask("doom_loop", call.tool, always=(call.tool,), metadata=metadata)
        except CorrectedError as error:
            return CallFailed(call_id=call.call_id, error=f"{hint(doom)} {error}")
        except NotPermittedError as error:
            self._loop_refused = isinstance(error, RejectedError) and not isinstance(error, UnansweredError)
            refused = self._loop_refused or self._was_blocked_before()
            return CallFailed(call_id=call.call_id, error=hint(doom), refused=refused)
        return None

    def _was_blocked_before(self) -> bool:
        """Whether the model has read in an earlier answer that it goes round in a circle."""
        own, history = self._answer.message.id, self._answer.transcript.messages()
        before = [message for message in history if message.info.id != own]
        return was_blocked(made_for(before, self._answer.step.prompt))

    async def _doubted(self, call: CallStarted, context: ToolContext) -> CallFailed | None:
        """What a crash cut off is not simply done again: whether it took effect is for the person to say."""
        if not is_unclear(self._answer.transcript.messages(), call.call_id, call.tool, call.input):
            return None
        try:
            await context.ask("interrupted", call.tool, metadata={"tool": call.tool, "input": call.input})
        except NotPermittedError:
            return CallFailed(call_id=call.call_id, error=NOT_AGAIN)
        return None

    def _context(self, call_id: str) -> ToolContext:
        async def report(*, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
            self._queue.put_nowait(CallReported(call_id=call_id, title=title, metadata=metadata))

        session = self._answer.session
        call = CallRef(message_id=self._answer.message.id, call_id=call_id)
        caller = Caller(session=session.id, agent=self._agent.name, call=call)
        context = context_for(
            self._kit, caller, ask=ask_for(self._kit, session, self._agent, call), report=report
        )
        return replace(
            context,
            call=self.also,
            watch=self._answer.changes.watch(call_id),
            permits=permits_for(session, self._agent),
        )
