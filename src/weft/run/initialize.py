"""Initialise a project: have an agent write down what others need to know of it."""

from msgspec.structs import replace

from weft.model.event import ProjectUpdated
from weft.model.ids import MessageID, SessionID
from weft.model.input import PromptInput, TextInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import ModelRef
from weft.run.kit import Kit
from weft.run.runner import Runner
from weft.window.written import written


async def initialize(
    kit: Kit, runner: Runner, session: SessionID, *, model: ModelRef | None, message_id: MessageID | None
) -> MessageWithParts:
    """Prompt for an `AGENTS.md`; once it is answered, the project's record says when."""
    asked = PromptInput(message_id=message_id, model=model, parts=(TextInput(text=written("init")),))
    answer = await runner.prompt(session, asked)
    if isinstance(answer.info, AssistantMessage) and answer.info.error is None:
        # The record may have changed since this directory was opened: another checkout writes it too.
        project = await kit.store.find_project(kit.place.project.id) or kit.place.project
        time = replace(project.time, initialized=kit.clock.now())
        await kit.journal.commit(ProjectUpdated(info=replace(project, time=time)))
    return answer
