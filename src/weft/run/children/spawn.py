"""Send a child session on an errand, and bring back what it has to say. Nothing of it runs on behind that."""

import asyncio
from typing import Protocol

from weft.bus import Listener
from weft.errors import CursorLostError, DeadlineError, NotFoundError, ToolError
from weft.host.deadline import Deadline
from weft.host.tasks import open_tasks
from weft.host.undivided import undivided
from weft.model.agent import Agent
from weft.model.ids import SessionID, checked
from weft.model.input import PromptInput, SessionInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import ModelRef
from weft.model.session import Session
from weft.permission.limits import limits_for
from weft.run.children.mentions import Reader, resolve
from weft.run.children.outcome import late, words_of
from weft.run.children.progress import Progress
from weft.run.children.rules import denied_below, narrow
from weft.run.kit import Kit
from weft.session.lifecycle import create
from weft.tool.contract import Brought, Errand, Report, ToolContext
from weft.tool.task import unknown

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
