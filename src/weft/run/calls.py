"""Run tool calls: store each as running, check whether it loops or was interrupted, run its tool, store the result.

Whether a call is permitted is up to its tool, which asks by `ctx.ask` before it acts.
"""

import asyncio
from collections.abc import Collection, Iterable
from functools import partial
from itertools import chain, count
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from weft.context.reminders import VALUE_TOOL, find_json_format
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
from weft.host.processes import remove_record
from weft.host.tasks import Deadline
from weft.model.agent import AgentInfo
from weft.model.ids import MessageID, SessionID
from weft.model.input import FileInput
from weft.model.message import AssistantMessage
from weft.model.part import AgentPart
from weft.model.permission import CallRef, PermissionRequest
from weft.model.session import SessionInfo
from weft.model.verdict import CallEvidence
from weft.permission.gate import CallOrigin, PermissionCaller
from weft.permission.rules import add_questions, judge, to_rulesets
from weft.plugin.hooks import Hooks
from weft.provider.chunk import ToolCall, ToolInputStart
from weft.run.answer import AnswerQueue, PendingAnswer
from weft.run.changes import watch_tool
from weft.run.doom import (
    CallLoop,
    describe_loop,
    find_loop,
    list_calls,
    list_recent_texts,
    was_blocked,
)
from weft.run.hooks import apply_after_hooks, apply_before_hooks, to_call_hook_input
from weft.run.json_schema import check_handed_value
from weft.run.processor import CallDone, CallFailed, CallNoted, CallReported, CallStarted
from weft.run.runtime import Runtime
from weft.store.contract import Store
from weft.tool.contract import (
    AnyTool,
    AskPermission,
    Permits,
    ReportProgress,
    ToolContext,
    ToolResult,
    to_input,
)
from weft.tool.registry import INVALID
from weft.tool.truncate import truncate_result


def allow_mentioned_agents(
    store: Store, session: SessionID, call: CallRef, ask: AskPermission
) -> AskPermission:
    """Return a function that allows tasks for the agents that the prompt mentions, and passes everything else on to `ask`.

    If a prompt mentions an agent, OpenCode allows tasks for every agent, even if a model wrote the prompt.
    """

    async def ask_unless_mentioned(
        permission: str,
        *patterns: str,
        always: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        if (
            permission == "task"
            and patterns
            and set(patterns) <= await find_mentioned_agents(store, session, call)
        ):
            return
        await ask(permission, *patterns, always=always, metadata=metadata)

    return ask_unless_mentioned


async def find_mentioned_agents(store: Store, session: SessionID, call: CallRef) -> set[str]:
    """Return the agents that the prompt of a call mentions. A child session has none: a model wrote its prompt."""
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


def prepare_call(call: ToolCall, offered: Collection[str], registered: Collection[str]) -> CallStarted:
    """Return the call to run. A call that cannot run becomes a call of the tool `invalid`, which tells the model why.

    Only tools that the request `offered` can be called. A tool that is `registered` but was not offered (the prompt or a rule
    switched it off, or this is the last step) is refused like one that does not exist.
    """
    name = call.tool if call.tool in offered else call.tool.lower()
    if name not in offered:
        return _to_invalid(call, describe_unavailable(call.tool, offered, registered))
    try:
        arguments = msgspec.json.decode(call.raw.strip() or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        return _to_invalid(call, f"the arguments are not JSON: {error}")
    except RecursionError:
        return _to_invalid(call, "the arguments are nested too deeply")
    if not isinstance(arguments, dict):
        return _to_invalid(call, "the arguments are not a JSON object")
    return CallStarted(call_id=call.call_id, tool=name, input=arguments, metadata=call.metadata)


def describe_unavailable(tool: str, offered: Iterable[str], registered: Collection[str]) -> str:
    """Tell the model why a tool cannot be called, and which ones can."""
    others = ", ".join(offered) or "none"
    if tool in registered or tool.lower() in registered:
        return f"the tool {tool!r} is not available in this step; there are {others}"
    return f"there is no tool {tool!r}; there are {others}"


def _to_invalid(call: ToolCall, error: str) -> CallStarted:
    return CallStarted(
        call_id=call.call_id,
        tool=INVALID.name,
        input={"tool": call.tool, "error": error},
        metadata=call.metadata,
    )


async def execute_call(
    call: CallStarted, tool: AnyTool, context: ToolContext, hooks: Hooks
) -> CallDone | CallFailed:
    """Run the tool and return its result. An error becomes a result that the model can read.

    Plugins come first: the arguments that they return are those that are checked against the rules and used.
    """
    try:
        hooked = await apply_before_hooks(hooks, to_call_hook_input(call, context.session_id))
        result = await apply_after_hooks(hooks, hooked, await _run_tool(tool, hooked.args, context))
        result = await truncate_result(result, context.resources.spill)
    except BlockedError as error:
        return CallFailed(call_id=call.call_id, error=f"Blocked by a plugin: {error}")
    except NotPermittedError as error:
        return CallFailed(call_id=call.call_id, error=str(error), refused=isinstance(error, RejectedError))
    except WeftError as error:
        return CallFailed(call_id=call.call_id, error=str(error))
    except Exception as error:  # noqa: BLE001  tools are foreign code: their fault ends the call, not the run
        return CallFailed(call_id=call.call_id, error=f"{type(error).__name__}: {error}")
    return _to_done(call, result)


async def _run_tool(tool: AnyTool, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    """Run a tool, and watch all files meanwhile unless the tool needs no watching."""
    input = to_input(tool, arguments)
    if not tool.watch_all:
        return await tool.run(input, context)
    async with watch_tool(context) as watched_context:
        return await tool.run(input, watched_context)


def _to_done(call: CallStarted, result: ToolResult) -> CallDone:
    return CallDone(
        call_id=call.call_id,
        title=result.title,
        output=result.output,
        metadata=result.metadata,
        files=tuple(
            FileInput(mime=file.mime, url=file.url, filename=file.filename) for file in result.attachments
        ),
    )


def make_tool_context(
    runtime: Runtime,
    session: SessionID,
    *,
    agent: str,
    call: CallRef,
    ask: AskPermission,
    report: ReportProgress,
) -> ToolContext:
    """Return the context in which a tool runs for a call of an agent in a session."""
    context = ToolContext(
        session_id=session,
        message_id=call.message_id,
        call_id=call.call_id,
        agent=agent,
        directory=runtime.place.directory,
        worktree=runtime.place.worktree,
        clock=runtime.clock,
        ask=allow_mentioned_agents(runtime.store, session, call, ask),
        report=report,
        resources=runtime.make_resources(session),
        agents=runtime.agents,
    )
    return replace(context, spawn=partial(runtime.spawn, context))


def make_permits(session: SessionInfo, agent: AgentInfo) -> Permits:
    """Return a function that says whether the rules allow something without asking."""
    rulesets = to_rulesets(agent, session)
    return lambda permission, pattern: judge(permission, pattern, rulesets).action == "allow"


def make_ask(runtime: Runtime, session: SessionInfo, agent: AgentInfo, call: CallRef | None) -> AskPermission:
    """Return the function with which one tool call asks for permission. Without a `call`, there is no prompt yet."""
    caller = PermissionCaller(
        rulesets=to_rulesets(agent, session),
        agent=agent.name,
        find=partial(get_call_origin, runtime, session, call),
    )

    async def ask(
        permission: str,
        *patterns: str,
        always: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        details = metadata or {}
        added = add_questions(
            caller.rulesets,
            permission,
            patterns,
            may_write=details.get("mayWrite", ()),
            perhaps=details.get("perhaps", ()),
        )
        if added.reasons:
            why = dict.fromkeys((*details.get("why", ()), *added.reasons.values()))
            details = {**details, "why": list(why)}
        request = PermissionRequest(
            id=runtime.mint.permission(),
            session_id=session.id,
            permission=permission,
            patterns=patterns,
            metadata=details,
            always=always,
            tool=call,
        )
        await runtime.gate.let_pass(
            request, replace(caller, rulesets=added.rulesets, added_reasons=added.reasons)
        )

    return ask


MAX_SESSION_DEPTH = 100
# Why a person is asked about a call, in words that they read.
LOOP_REASON = "the same call was made again and again"
INTERRUPTED_REASON = "a crash cut this call off, and it may have taken effect"


async def get_call_origin(runtime: Runtime, session: SessionInfo, call: CallRef | None) -> CallOrigin:
    """Return the root session and the prompt that a tool call belongs to. Without a call there is no prompt yet."""
    return CallOrigin(
        root_id=await get_root_session(runtime.store, session),
        turn_id=None if call is None else await _find_turn(runtime.store, session.id, call),
    )


async def get_root_session(store: Store, session: SessionInfo) -> SessionID:
    """Return the root of a session's tree. The depth is limited because damaged documents may form a cycle."""
    for _ in range(MAX_SESSION_DEPTH):
        if session.parent_id is None:
            break
        try:
            session = await store.get_session(session.parent_id)
        except NotFoundError:
            break
    return session.id


async def _find_turn(store: Store, session: SessionID, call: CallRef) -> MessageID | None:
    message = await store.find_message(session, call.message_id)
    info = message.info if message else None
    return info.parent_id if isinstance(info, AssistantMessage) else None


async def allow_all(
    permission: str,
    *patterns: str,
    always: tuple[str, ...] = (),
    metadata: dict[str, Any] | None = None,
) -> None:
    """Allow everything: the person acts themselves."""


async def ignore_report(*, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
    """Drop the report: nobody watches this use of a tool."""


class ToolCalls:
    """The tool calls of one answer. They run as tasks, and put their results into the queue of the answer.

    `offered` are the tools that the request offered to the model; no other can be called. `count` is the number of calls so
    far, and `refused` says that a person refused one.
    """

    def __init__(self, answer: PendingAnswer, agent: AgentInfo, queue: AnswerQueue) -> None:
        self._answer = answer
        self._runtime = answer.runtime
        self._agent = agent
        self._queue = queue
        self._format = find_json_format(answer.step.prompt)
        self._call_ids: set[str] = set()
        self._announced: dict[str, str] = {}  # our ids of calls that have begun, by the server's
        self._running: set[str] = set()
        self._nested_results: dict[str, asyncio.Future[bool]] = {}
        self._nested_errors: dict[str, str] = {}
        self._records: dict[str, str] = {}
        self._loop_lock = asyncio.Lock()
        self._has_refused_loop = False
        self.offered: tuple[str, ...] = ()
        self.count = 0
        self.refused = False

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    def announce(self, begun: ToolInputStart) -> ToolInputStart:
        """Return the beginning of a call with the id that the call will have."""
        if begun.call_id not in self._call_ids:
            return begun
        if begun.call_id not in self._announced:
            self._announced[begun.call_id] = self._take_id(begun.call_id)
        return replace(begun, call_id=self._announced[begun.call_id])

    def _take_id(self, id: str) -> str:
        """Return an id that no other call has. Some servers give all calls of an answer the same id, but ours must be unique."""
        numbered = (f"{id}_{number}" for number in count(len(self._call_ids) + 1))
        unique = next(each for each in chain((id,), numbered) if each not in self._call_ids)
        self._call_ids.add(unique)
        return unique

    async def start(self, call: ToolCall, tasks: asyncio.TaskGroup) -> None:
        """Store a call as running, and start it as a task."""
        self.count += 1
        call = replace(call, call_id=self._announced.pop(call.call_id, None) or self._take_id(call.call_id))
        started = prepare_call(call, self.offered, self._runtime.tools)
        tool = self._runtime.tools.get(started.tool)
        if tool is not None and tool.notes:
            started = replace(started, evidence=self._complete_evidence(CallEvidence()))
        # Store the call as running before the tool runs: after a crash it shows that the call may have had effects.
        await self._answer.commit(self._answer.processor.feed(started))
        self._running.add(started.call_id)
        tasks.create_task(self._run(started))

    async def store_result(self, outcome: CallDone | CallFailed) -> None:
        """Store the result of a call, and the files that a child session changed for it."""
        self._running.discard(outcome.call_id)
        self.refused |= isinstance(outcome, CallFailed) and outcome.refused
        await self._answer.commit(self._answer.processor.feed(outcome))
        if record := self._records.pop(outcome.call_id, ""):
            await asyncio.to_thread(remove_record, record)
        await self._answer.changes.take_from_child(outcome.call_id)
        result = self._nested_results.pop(outcome.call_id, None)
        if result is not None and not result.done():
            result.set_result(isinstance(outcome, CallDone))

    async def call_nested(self, tool: str, arguments: dict[str, Any], *, error: str = "") -> bool:
        """Make a call on behalf of another call, and wait for it. Return True if it succeeded.

        With an `error`, the call is stored as failed without running.
        """
        id = self._runtime.mint.part()
        if tool not in self.offered or tool not in self._runtime.tools:
            error = error or describe_unavailable(tool, self.offered, self._runtime.tools)
        self._nested_errors[id] = error
        self._nested_results[id] = asyncio.get_running_loop().create_future()
        raw = msgspec.json.encode(arguments).decode()
        self._queue.put(ToolCall(call_id=id, tool=tool, raw=raw))
        return await self._nested_results[id]

    async def _run(self, call: CallStarted) -> None:
        if error := self._nested_errors.pop(call.call_id, ""):
            self._queue.put(CallFailed(call_id=call.call_id, error=error))
            return
        if self._format is not None and call.tool == VALUE_TOOL:
            handed = check_handed_value(call, self._format)
            if handed.value is not UNSET:
                self._answer.processor.set_value(handed.value)
            self._queue.put(handed.outcome)
            return
        context = self._make_context(call.call_id)
        failed = await self._check_loop(call, context) or await self._check_interrupted(call, context)
        self._queue.put(failed or await self._execute(call, context))

    async def _execute(self, call: CallStarted, context: ToolContext) -> CallDone | CallFailed:
        """Run the tool within its deadline. The model reads a failure if the time is up."""
        tool = INVALID if call.tool == INVALID.name else self._runtime.tools[call.tool]
        seconds = None if tool.own_deadline else self._runtime.deadlines.tool
        try:
            async with Deadline(f"tool {call.tool}", seconds, self._runtime.clock).running():
                outcome = await execute_call(call, tool, context, self._runtime.hooks)
        except DeadlineError as error:
            return CallFailed(call_id=call.call_id, error=str(error))
        if isinstance(outcome, CallFailed) and self._runtime.continue_on_deny:
            return replace(outcome, refused=False)
        return outcome

    async def _check_loop(self, call: CallStarted, context: ToolContext) -> CallFailed | None:
        """Ask for permission if the call repeats in a loop. Return a failure if it must not run.

        A person who refuses ends the run. If a rule forbids the call, or there is nobody to ask, the model first reads that it
        loops, and a loop in a later answer ends the run.
        """
        history, prompt = self._answer.transcript.messages(), self._answer.step.prompt
        current = CallRef(message_id=self._answer.message.id, call_id=call.call_id)
        calls = list_calls(history, prompt, before=current)
        loop = find_loop(calls, call.tool, call.input, list_recent_texts(history, prompt))
        if loop is None:
            return None
        # One question at a time: refusing the first refuses the others, too.
        async with self._loop_lock:
            if self._has_refused_loop:
                return CallFailed(call_id=call.call_id, error=describe_loop(loop), refused=True)
            return await self._ask_about_loop(call, context, loop)

    async def _ask_about_loop(
        self, call: CallStarted, context: ToolContext, loop: CallLoop
    ) -> CallFailed | None:
        metadata = {"tool": call.tool, "input": call.input, "why": [LOOP_REASON]}
        try:
            await context.ask("doom_loop", call.tool, always=(call.tool,), metadata=metadata)
        except CorrectedError as error:
            return CallFailed(call_id=call.call_id, error=f"{describe_loop(loop)} {error}")
        except NotPermittedError as error:
            self._has_refused_loop = isinstance(error, RejectedError) and not isinstance(
                error, UnansweredError
            )
            refused = self._has_refused_loop or self._was_blocked_before()
            return CallFailed(call_id=call.call_id, error=describe_loop(loop), refused=refused)
        return None

    def _was_blocked_before(self) -> bool:
        """Return True if a call in an earlier answer to this prompt was blocked because of a loop."""
        own_id, history = self._answer.message.id, self._answer.transcript.messages()
        before = [message for message in history if message.info.id != own_id]
        return was_blocked(list_calls(before, self._answer.step.prompt))

    async def _check_interrupted(self, call: CallStarted, context: ToolContext) -> CallFailed | None:
        """Ask before repeating a call that a crash interrupted, unless its verdict proves that this is safe."""
        from weft.session.verdict import NOT_REPEATED, is_unsafe_to_repeat  # noqa: PLC0415  an answer without tool calls needs none

        if not is_unsafe_to_repeat(self._answer.transcript.messages(), call.call_id, call.tool, call.input):
            return None
        try:
            metadata = {"tool": call.tool, "input": call.input, "why": [INTERRUPTED_REASON]}
            await context.ask("interrupted", call.tool, metadata=metadata)
        except NotPermittedError:
            return CallFailed(call_id=call.call_id, error=NOT_REPEATED)
        return None

    def _complete_evidence(self, evidence: CallEvidence) -> CallEvidence:
        from weft.host.machine import identify_machine  # noqa: PLC0415  few calls note anything

        covered = self._runtime.undo_context.snapshots.coverage().extent == "all"
        return replace(evidence, machine=identify_machine(), covered=covered)

    def _make_context(self, call_id: str) -> ToolContext:
        async def report(*, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
            self._queue.put(CallReported(call_id=call_id, title=title, metadata=metadata))

        async def note(evidence: CallEvidence) -> None:
            if evidence.command is not None:
                self._records[call_id] = evidence.command.record
            noted = CallNoted(call_id=call_id, evidence=self._complete_evidence(evidence))
            await self._answer.commit(self._answer.processor.feed(noted))

        session = self._answer.session
        call = CallRef(message_id=self._answer.message.id, call_id=call_id)
        context = make_tool_context(
            self._runtime,
            session.id,
            agent=self._agent.name,
            call=call,
            ask=make_ask(self._runtime, session, self._agent, call),
            report=report,
        )
        return replace(
            context,
            call=self.call_nested,
            watch=self._answer.changes.watch(call_id),
            note=note,
            permits=make_permits(session, self._agent),
        )
