"""Run child sessions for `task` calls and subtask parts, and end them with their parent."""

import asyncio
from typing import Any, Protocol

from msgspec.structs import replace

from weft.bus import BusListener
from weft.errors import CursorLostError, DeadlineError, NotFoundError, ToolError
from weft.host.tasks import Deadline, open_tasks, run_to_completion
from weft.model.agent import AgentInfo
from weft.model.event import Event, MessageUpdated, PartUpdated, SessionFailed
from weft.model.failure import AnyFailure, aborted_failure
from weft.model.ids import SessionID, check_id
from weft.model.input import PromptInput, SessionInput
from weft.model.message import AssistantMessage, AssistantTime, MessagePath, MessageWithParts, UserMessage
from weft.model.part import ModelRef, Moment, SubtaskPart, TextPart
from weft.model.permission import CallRef
from weft.model.session import SessionInfo
from weft.model.transcript import Transcript
from weft.permission.rules import to_rulesets
from weft.run.attachments import MentionScope, resolve_mentions
from weft.run.calls import allow_all, execute_call, make_tool_context
from weft.run.changes import AnswerChanges
from weft.run.child_rules import ChildProgress, get_child_text, list_denied, narrow_child, to_deadline_error
from weft.run.decide import Subtask
from weft.run.failure import to_failure
from weft.run.processor import CallFailed, CallReported, CallStarted, Processor
from weft.run.runtime import Runtime
from weft.session.lifecycle import create
from weft.tool.contract import ChildResult, ChildTask, ReportProgress, ToolContext
from weft.tool.registry import TASK
from weft.tool.task import make_unknown_agent_error, run_child_task

# Every report is stored, and a person cannot follow more than four a second.
REPORT_INTERVAL_SECONDS = 0.25


class ChildRunner(Protocol):
    """Runs a session on behalf of another run, and aborts it: a child session, or the judge of trials."""

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts: ...

    async def abort(self, session: SessionID) -> bool: ...


class ChildSpawner:
    """Runs child sessions for tool calls."""

    def __init__(self, runtime: Runtime, runs: ChildRunner) -> None:
        self._runtime = runtime
        self._runs = runs

    async def spawn(self, context: ToolContext, child_task: ChildTask) -> ChildResult:
        """Run a task in a child of the calling session. The child has settled when this returns or raises."""
        runtime = self._runtime
        agent = runtime.agents.get(child_task.agent)
        if agent is None:
            raise make_unknown_agent_error(child_task.agent, runtime.agents)
        child = await self._get_or_create_child(context, child_task, agent)
        model = agent.model or await self._find_model(context)
        progress = ChildProgress(child.id, model, await runtime.store.list_messages(child.id))
        await context.report(title=child_task.description, metadata=progress.metadata())
        scope = MentionScope(
            place=runtime.place, rulesets=to_rulesets(agent, child), agents=dict(runtime.agents)
        )
        # An agent's own model is chosen when the prompt is admitted, together with its fallbacks.
        input = PromptInput(
            agent=child_task.agent,
            model=None if agent.model else model,
            parts=await resolve_mentions(child_task.prompt, scope),
        )
        answer = await self._run_reporting(child.id, input, progress, context.report)
        progress.reset(await runtime.store.list_messages(child.id))
        await context.report(metadata=progress.metadata())
        if isinstance(answer, DeadlineError):
            raise to_deadline_error(child.id, answer)
        return ChildResult(
            session_id=child.id, text=get_child_text(answer, child.id), metadata=progress.metadata()
        )

    # --- the session ---

    async def _get_or_create_child(
        self, context: ToolContext, child_task: ChildTask, agent: AgentInfo
    ) -> SessionInfo:
        """Return a new child session, or the one to continue, limited by the rules of its parent session."""
        runtime = self._runtime
        parent = await runtime.store.get_session(context.session_id)
        depth = len(await self._list_ancestors(parent)) + 1
        if depth > runtime.subtasks.depth:
            raise ToolError(
                f"Tasks can be nested {runtime.subtasks.depth} levels deep, and no deeper. Do it yourself."
            )
        denied = list_denied(agent, runtime.subtasks.primary_tools, deepest=depth == runtime.subtasks.depth)
        if child_task.session_id is None:
            title = f"{child_task.description} (@{child_task.agent} subagent)"
            input = SessionInput(parent_id=parent.id, title=title, permission=denied)
            child = await create(runtime.maker, input, parent=parent)
        else:
            child = await self._get_earlier_child(parent, child_task.session_id)
        starter = _find_agent(context.agent, runtime)
        if narrow_child(child, parent, denied, starter) == child:
            return child
        return await runtime.journal.edit(
            child.id, lambda session: narrow_child(session, parent, denied, starter)
        )

    async def _get_earlier_child(self, parent: SessionInfo, session_id: str) -> SessionInfo:
        """Return an earlier child to continue. Raise `ToolError` if the id is not that of a session below the parent.

        OpenCode accepts any session, even the caller's parent, and then waits for ever.
        """
        try:
            session = await self._runtime.store.get_session(SessionID(check_id("session", session_id)))
        except NotFoundError:
            session = None
        if session is None or parent.id not in await self._list_ancestors(session):
            raise ToolError(
                f"session_id: {session_id[:80]} is not a session that was started from here. Leave it out to start a new one."
            )
        return session

    async def _list_ancestors(self, session: SessionInfo) -> list[SessionID]:
        """Return the ancestors of a session, the nearest first. A cycle ends the list."""
        ancestors: list[SessionID] = []
        while session.parent_id is not None and session.parent_id not in ancestors:
            ancestors.append(session.parent_id)
            try:
                session = await self._runtime.store.get_session(session.parent_id)
            except NotFoundError:
                break
        return ancestors

    async def _find_model(self, context: ToolContext) -> ModelRef | None:
        """Return the model of the answer that made the call."""
        message = await self._runtime.store.find_message(context.session_id, context.message_id)
        info = message.info if message else None
        if not isinstance(info, AssistantMessage) or not info.model_id:
            return None
        return ModelRef(provider_id=info.provider_id, model_id=info.model_id)

    # --- its run ---

    async def _run_reporting(
        self, child: SessionID, input: PromptInput, progress: ChildProgress, report: ReportProgress
    ) -> MessageWithParts | DeadlineError:
        """Run the child while reporting its progress. Return its last answer, or the error if it took too long."""
        listener = self._runtime.listen()
        async with open_tasks() as tasks:
            reporting = tasks.create_task(self._report_progress(child, listener, progress, report))
            try:
                return await self._run_child(child, input)
            except DeadlineError as error:
                return error
            finally:
                reporting.cancel()

    async def _run_child(self, child: SessionID, input: PromptInput) -> MessageWithParts:
        """Run the child and return its last answer. If the caller is cancelled or the time is up, abort the child and wait until it has settled.

        Raise `DeadlineError` if the time is up.
        """
        deadline = Deadline("subagent", self._runtime.subtasks.seconds, self._runtime.clock)
        async with deadline.running(), open_tasks() as tasks:
            prompting = tasks.create_task(self._runs.prompt(child, input))
            try:
                await asyncio.wait([prompting])
            finally:
                if not prompting.done():
                    await run_to_completion(self._end(child, prompting))
        return prompting.result()

    async def _end(self, child: SessionID, prompting: asyncio.Task[MessageWithParts]) -> None:
        # Cancel the prompt first: it might be about to start a run after the abort.
        prompting.cancel()
        await asyncio.wait([prompting])
        await self._runs.abort(child)

    async def _report_progress(
        self, child: SessionID, listener: BusListener, progress: ChildProgress, report: ReportProgress
    ) -> None:
        """Report the progress of the child whenever it changes, until cancelled."""
        runtime = self._runtime
        while True:
            try:
                changed = progress.feed(envelope.event for envelope in await listener.take())
            except CursorLostError:  # more happened than the bus holds
                listener, changed = runtime.listen(), True
                progress.reset(await runtime.store.list_messages(child))
            if changed:
                await report(metadata=progress.metadata())
                await runtime.clock.sleep(REPORT_INTERVAL_SECONDS)


def _find_agent(name: str, runtime: Runtime) -> AgentInfo | None:
    """Return an agent by the key in the configuration, else by its own name, else None."""
    configured = runtime.agents.get(name)
    return configured or next((agent for agent in runtime.agents.values() if agent.name == name), None)


FAILED_PREFIX = "Tool execution failed"
FINISH_REASON = "tool-calls"
# OpenCode's sentence: after a command, the model summarises the result.
SUMMARY_PROMPT = "Summarize the task tool output above and continue with your task."


async def run_subtask(runtime: Runtime, transcript: Transcript, subtask: Subtask) -> None:
    """Run a subtask in a child session. Its result is stored as an answer, which is complete when this returns or raises."""
    await _SubtaskAnswer(runtime, transcript, subtask).run()


class _SubtaskAnswer:
    """The answer that holds the `task` call of one subtask."""

    def __init__(self, runtime: Runtime, transcript: Transcript, subtask: Subtask) -> None:
        self._runtime = runtime
        self._transcript = transcript
        self._prompt = subtask.prompt
        self._part = subtask.part
        self._processor = Processor(self._make_message(), runtime.mint, runtime.clock.now)
        self._changes = AnswerChanges(runtime, self._processor, transcript)

    async def run(self) -> None:
        started = CallStarted(call_id=self._part.id, tool=TASK.name, input=to_task_arguments(self._part))
        try:
            await self._commit([MessageUpdated(info=self._processor.message), *self._processor.feed(started)])
            task = replace(TASK, run=run_child_task)
            outcome = await execute_call(started, task, self._make_context(), self._runtime.hooks)
        except asyncio.CancelledError:
            await self._fail(aborted_failure())
            raise
        except BaseException as error:
            await self._fail(to_failure(error))
            raise
        if isinstance(outcome, CallFailed):
            outcome = replace(
                outcome, error=f"{FAILED_PREFIX}: {outcome.error}" if outcome.error else FAILED_PREFIX
            )
        await self._commit(
            [*self._processor.feed(outcome), self._make_finished_event(), *self._make_summary_prompt()]
        )
        await self._store_changes()

    def _make_context(self) -> ToolContext:
        async def report(*, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
            reported = CallReported(call_id=self._part.id, title=title, metadata=metadata)
            await self._commit(self._processor.feed(reported))

        message = self._processor.message
        call = CallRef(message_id=message.id, call_id=self._part.id)
        return make_tool_context(
            self._runtime, message.session_id, agent=self._part.agent, call=call, ask=allow_all, report=report
        )

    def _make_finished_event(self) -> Event:
        message = self._processor.message
        completed = max(self._runtime.clock.now(), message.time.created)
        time = replace(message.time, completed=completed)
        return MessageUpdated(info=replace(message, finish=FINISH_REASON, time=time))

    def _make_summary_prompt(self) -> list[Event]:
        """Return the prompt for a summary if a command started the subtask. Otherwise the model just sees the result."""
        if not self._part.command:
            return []
        prompt = self._prompt
        message = UserMessage(
            id=self._runtime.mint.message(),
            session_id=prompt.session_id,
            time=Moment(created=self._transcript.next_time(self._runtime.clock.now())),
            agent=prompt.agent,
            model=prompt.model,
            tools=prompt.tools,
            format=prompt.format,
            fallback=prompt.fallback,
        )
        text = TextPart(
            id=self._runtime.mint.part(),
            session_id=prompt.session_id,
            message_id=message.id,
            text=SUMMARY_PROMPT,
            synthetic=True,
        )
        return [MessageUpdated(info=message), PartUpdated(part=text)]

    async def _fail(self, failure: AnyFailure) -> None:
        failed = SessionFailed(session_id=self._prompt.session_id, error=failure)
        await self._commit([*self._processor.settle(failure), failed])
        await run_to_completion(self._store_changes())

    async def _store_changes(self) -> None:
        await self._changes.take_from_child(self._part.id)
        await self._changes.store_totals(self._prompt.id)

    async def _commit(self, events: list[Event]) -> None:
        await self._runtime.journal.commit(*events, into=self._transcript)

    def _make_message(self) -> AssistantMessage:
        runtime, prompt, part = self._runtime, self._prompt, self._part
        model = part.model or prompt.model
        return AssistantMessage(
            id=runtime.mint.message(),
            session_id=prompt.session_id,
            time=AssistantTime(created=self._transcript.next_time(runtime.clock.now())),
            parent_id=prompt.id,
            model_id=model.model_id if model else "",
            provider_id=model.provider_id if model else "",
            mode=part.agent,
            agent=part.agent,
            path=MessagePath(cwd=runtime.place.directory, root=runtime.place.worktree),
        )


def to_task_arguments(part: SubtaskPart) -> dict[str, Any]:
    """Return the arguments of a `task` call for a subtask."""
    arguments = {"prompt": part.prompt, "description": part.description, "subagent_type": part.agent}
    return {**arguments, "command": part.command} if part.command else arguments
