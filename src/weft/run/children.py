"""Run child sessions for `task` calls and subtask parts, and end them with their parent."""

import asyncio
from typing import Any, Protocol

from msgspec.structs import replace

from weft.bus import Listener
from weft.errors import CursorLostError, DeadlineError, NotFoundError, ToolError
from weft.host.tasks import Deadline, open_tasks, undivided
from weft.model.agent import Agent
from weft.model.event import Event, MessageUpdated, PartUpdated, SessionFailed
from weft.model.failure import AnyFailure, aborted
from weft.model.ids import SessionID, checked
from weft.model.input import PromptInput, SessionInput
from weft.model.message import AssistantMessage, AssistantTime, MessagePath, MessageWithParts, UserMessage
from weft.model.part import ModelRef, Moment, SubtaskPart, TextPart
from weft.model.permission import CallRef
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.permission.rules import limits_for
from weft.run.attachments import Reader, resolve
from weft.run.calls import Caller, carry_out, context_for, unasked
from weft.run.changes import Changes
from weft.run.child_rules import Progress, denied_below, late, narrow, words_of
from weft.run.decide import Subtask
from weft.run.failure import to_failure
from weft.run.kit import Kit
from weft.run.processor import CallFailed, CallReported, CallStarted, Processor
from weft.session.lifecycle import create
from weft.tool.contract import Brought, Errand, Report, ToolContext
from weft.tool.task import TASK, hand_over, unknown

# A child tells of every call, and each report is stored: four a second are as many as a person can follow.
REPORT_SECONDS = 0.25


class Runs(Protocol):
    """What it takes to have a session run, and to end that."""

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts: ...

    async def abort(self, session: SessionID) -> bool: ...


class Spawner:
    def __init__(self, kit: Kit, runs: Runs) -> None:
        self._kit = kit
        self._runs = runs

    async def spawn(self, context: ToolContext, errand: Errand) -> Brought:
        """See the errand done by a child of the calling session, which has settled however this ends."""
        kit = self._kit
        agent = kit.agents.get(errand.agent)
        if agent is None:
            raise unknown(errand.agent, kit.agents)
        child = await self._child(context, errand, agent)
        model = agent.model or await self._model_of(context)
        progress = Progress(child.id, model, await kit.store.list_messages(child.id))
        await context.report(title=errand.description, metadata=progress.metadata())
        reader = Reader(place=kit.place, limits=limits_for(agent, child), agents=dict(kit.agents))
        # An agent's own model is left to be chosen where it is admitted, with those it falls back on.
        input = PromptInput(
            agent=errand.agent,
            model=None if agent.model else model,
            parts=await resolve(errand.prompt, reader),
        )
        answer = await self._watched(child.id, input, progress, context.report)
        progress.take(await kit.store.list_messages(child.id))
        await context.report(metadata=progress.metadata())
        if isinstance(answer, DeadlineError):
            raise late(child.id, answer)
        return Brought(session_id=child.id, text=words_of(answer, child.id), metadata=progress.metadata())

    # --- the child ---

    async def _child(self, context: ToolContext, errand: Errand, agent: Agent) -> Session:
        """A new child, or the one to go on with; either way no freer than the one who sends it."""
        kit = self._kit
        parent = await kit.store.get_session(context.session_id)
        depth = len(await self._above(parent)) + 1
        if depth > kit.subtasks.depth:
            raise ToolError(
                f"A task can be handed on {kit.subtasks.depth} levels deep, and no deeper. Do it yourself."
            )
        denied = denied_below(agent, kit.subtasks.primary_tools, deepest=depth == kit.subtasks.depth)
        if errand.session_id is None:
            title = f"{errand.description} (@{errand.agent} subagent)"
            input = SessionInput(parent_id=parent.id, title=title, permission=denied)
            child = await create(kit.maker, input, parent=parent)
        else:
            child = await self._earlier(parent, errand.session_id)
        sender = _named(context.agent, kit)
        if narrow(child, parent, denied, sender) == child:
            return child
        return await kit.journal.edit(child.id, lambda it: narrow(it, parent, denied, sender))

    async def _earlier(self, parent: Session, given: str) -> Session:
        """OpenCode goes on with any session of the project, the caller's own parent too, and would wait for ever."""
        try:
            found = await self._kit.store.get_session(SessionID(checked("session", given)))
        except NotFoundError:
            found = None
        if found is None or parent.id not in await self._above(found):
            raise ToolError(
                f"session_id: {given[:80]} is not a session that was started from here. Leave it out to start a new one."
            )
        return found

    async def _above(self, session: Session) -> list[SessionID]:
        """The sessions above it, the nearest first; at an end also where they go round in a circle."""
        above: list[SessionID] = []
        while session.parent_id is not None and session.parent_id not in above:
            above.append(session.parent_id)
            try:
                session = await self._kit.store.get_session(session.parent_id)
            except NotFoundError:
                break
        return above

    async def _model_of(self, context: ToolContext) -> ModelRef | None:
        """The model of the answer that the call stands in."""
        found = await self._kit.store.find_message(context.session_id, context.message_id)
        info = found.info if found else None
        if not isinstance(info, AssistantMessage) or not info.model_id:
            return None
        return ModelRef(provider_id=info.provider_id, model_id=info.model_id)

    # --- its run ---

    async def _watched(
        self, child: SessionID, input: PromptInput, progress: Progress, report: Report
    ) -> MessageWithParts | DeadlineError:
        """Its last answer, while it is told how it gets there; or that it took too long."""
        listener = self._kit.listen()
        async with open_tasks() as tasks:
            telling = tasks.create_task(self._tell(child, listener, progress, report))
            try:
                return await self._answered(child, input)
            except DeadlineError as error:
                return error
            finally:
                telling.cancel()

    async def _answered(self, child: SessionID, input: PromptInput) -> MessageWithParts:
        """Its last answer. Whoever stops waiting for a child ends it, and waits for that."""
        deadline = Deadline("subagent", self._kit.subtasks.seconds, self._kit.clock)
        async with deadline.running(), open_tasks() as tasks:
            asking = tasks.create_task(self._runs.prompt(child, input))
            try:
                await asyncio.wait([asking])
            finally:
                if not asking.done():
                    await undivided(self._end(child, asking))
        return asking.result()

    async def _end(self, child: SessionID, asking: asyncio.Task[MessageWithParts]) -> None:
        # First the asking: a prompt that is just being let in must not start a run behind our back.
        asking.cancel()
        await asyncio.wait([asking])
        await self._runs.abort(child)

    async def _tell(self, child: SessionID, listener: Listener, progress: Progress, report: Report) -> None:
        kit = self._kit
        while True:
            try:
                news = progress.feed(told.event for told in await listener.take())
            except CursorLostError:  # more has happened than is held
                listener, news = kit.listen(), True
                progress.take(await kit.store.list_messages(child))
            if news:
                await report(metadata=progress.metadata())
                await kit.clock.sleep(REPORT_SECONDS)


def _named(name: str, kit: Kit) -> Agent | None:
    """An agent by the name it goes by, which need not be the one it is configured under."""
    found = kit.agents.get(name)
    return found or next((agent for agent in kit.agents.values() if agent.name == name), None)


FAILED = "Tool execution failed"
FINISH = "tool-calls"
# OpenCode's sentence: after a command the model is to say what came of it.
SUMMARISE = "Summarize the task tool output above and continue with your task."


async def run_subtask(kit: Kit, transcript: Transcript, subtask: Subtask) -> None:
    """Have a child do it. What it brings stands in a message of its own, complete when this returns or raises."""
    await _Handover(kit, transcript, subtask).run()


class _Handover:
    """A subtask under way."""

    def __init__(self, kit: Kit, transcript: Transcript, subtask: Subtask) -> None:
        self._kit = kit
        self._transcript = transcript
        self._prompt = subtask.prompt
        self._part = subtask.part
        self._processor = Processor(self._message(), kit.mint, kit.clock.now)
        self._changes = Changes(kit, self._processor, transcript)

    async def run(self) -> None:
        started = CallStarted(call_id=self._part.id, tool=TASK.name, input=to_arguments(self._part))
        try:
            await self._commit([MessageUpdated(info=self._processor.message), *self._processor.feed(started)])
            task = replace(TASK, run=hand_over)
            outcome = await carry_out(started, task, self._context(), self._kit.hooks)
        except asyncio.CancelledError:
            await self._fail(aborted())
            raise
        except BaseException as error:
            await self._fail(to_failure(error))
            raise
        if isinstance(outcome, CallFailed):
            outcome = replace(outcome, error=f"{FAILED}: {outcome.error}" if outcome.error else FAILED)
        await self._commit([*self._processor.feed(outcome), self._finished(), *self._request()])
        await self._keep()

    def _context(self) -> ToolContext:
        async def report(*, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
            said = CallReported(call_id=self._part.id, title=title, metadata=metadata)
            await self._commit(self._processor.feed(said))

        message = self._processor.message
        call = CallRef(message_id=message.id, call_id=self._part.id)
        caller = Caller(session=message.session_id, agent=self._part.agent, call=call)
        return context_for(self._kit, caller, ask=unasked, report=report)

    def _finished(self) -> Event:
        message = self._processor.message
        time = replace(message.time, completed=self._kit.clock.now())
        return MessageUpdated(info=replace(message, finish=FINISH, time=time))

    def _request(self) -> list[Event]:
        """After a command, the prompt that asks for a summary. Without one the model is shown the result as it is."""
        if not self._part.command:
            return []
        like = self._prompt
        message = UserMessage(
            id=self._kit.mint.message(),
            session_id=like.session_id,
            time=Moment(created=self._transcript.next_time(self._kit.clock.now())),
            agent=like.agent,
            model=like.model,
            tools=like.tools,
            format=like.format,
            fallback=like.fallback,
        )
        words = TextPart(
            id=self._kit.mint.part(),
            session_id=like.session_id,
            message_id=message.id,
            text=SUMMARISE,
            synthetic=True,
        )
        return [MessageUpdated(info=message), PartUpdated(part=words)]

    async def _fail(self, failure: AnyFailure) -> None:
        said = SessionFailed(session_id=self._prompt.session_id, error=failure)
        await self._commit([*self._processor.settle(failure), said])
        await undivided(self._keep())

    async def _keep(self) -> None:
        await self._changes.take_sent(self._part.id)
        await self._changes.add_up(self._prompt.id)

    async def _commit(self, events: list[Event]) -> None:
        await self._kit.journal.commit(*events, into=self._transcript)

    def _message(self) -> AssistantMessage:
        kit, prompt, part = self._kit, self._prompt, self._part
        model = part.model or prompt.model
        return AssistantMessage(
            id=kit.mint.message(),
            session_id=prompt.session_id,
            time=AssistantTime(created=self._transcript.next_time(kit.clock.now())),
            parent_id=prompt.id,
            model_id=model.model_id if model else "",
            provider_id=model.provider_id if model else "",
            mode=part.agent,
            agent=part.agent,
            path=MessagePath(cwd=kit.place.directory, root=kit.place.worktree),
        )


def to_arguments(part: SubtaskPart) -> dict[str, Any]:
    given = {"prompt": part.prompt, "description": part.description, "subagent_type": part.agent}
    return {**given, "command": part.command} if part.command else given
