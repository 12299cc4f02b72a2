"""Input to a stored prompt: nothing is acknowledged, and nothing runs, before it is on disk."""

from collections.abc import Sequence

from weft.errors import NotFoundError
from weft.model.event import Event, MessageUpdated, PartUpdated
from weft.model.ids import MessageID, PartID, SessionID, checked
from weft.model.input import AgentInput, AnyPartInput, FileInput, PromptInput, SubtaskInput, TextInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import AgentPart, AnyPart, FilePart, ModelRef, Moment, SubtaskPart, TextPart
from weft.model.transcript import Transcript
from weft.run.attach import attach
from weft.run.decide import newest_prompt
from weft.run.kit import Kit
from weft.run.moment import after
from weft.run.request import variant_of
from weft.session.lifecycle import touch

PARTS: dict[type[AnyPartInput], type[AnyPart]] = {
    TextInput: TextPart,
    FileInput: FilePart,
    AgentInput: AgentPart,
    SubtaskInput: SubtaskPart,
}


async def admit(kit: Kit, session: SessionID, transcript: Transcript, input: PromptInput) -> MessageID:
    """Store a prompt, and take it into the transcript. What it names (agent, model) is checked first, so that a
    mistake stores nothing."""
    agent, model = choose(kit, input, transcript.messages())
    message = UserMessage(
        id=MessageID(checked("message", input.message_id)) if input.message_id else kit.mint.message(),
        session_id=session,
        time=Moment(created=after(transcript, kit.clock.now())),
        agent=agent,
        model=model,
        system=input.system,
        tools=input.tools,
        variant=input.variant,
    )
    given = [piece for part in input.parts for piece in await attach(kit, message, part)]
    parts = [_to_part(kit, message, piece) for piece in given]
    events: list[Event] = [MessageUpdated(info=message), *(PartUpdated(part=part) for part in parts)]
    await kit.journal.commit(*events)
    transcript.feed(*events)
    await touch(kit.journal, session, kit.clock.now())
    return message.id


def choose(kit: Kit, input: PromptInput, history: Sequence[MessageWithParts]) -> tuple[str, ModelRef]:
    """Who answers, with which model: the one asked for, else the agent's, else the one this conversation goes on with,
    else the default. What is not there must be said now, not after the prompt is stored."""
    name = input.agent or kit.default_agent
    agent = kit.agents.get(name)
    if agent is None:
        visible = (each for each, found in kit.agents.items() if not found.hidden)
        raise NotFoundError("agent", name, hint=f"there are {', '.join(visible)}")
    last = newest_prompt(history)
    model = input.model or agent.model or (last.model if last else None) or kit.models.default()
    variant_of(kit.models.get(model).model, input.variant)
    return name, model


def _to_part(kit: Kit, message: UserMessage, given: AnyPartInput) -> AnyPart:
    """The same piece, with a place in a message: what is sent and what is stored name their fields alike."""
    part = PartID(checked("part", given.id)) if given.id else kit.mint.part()
    fields = {name: getattr(given, name) for name in given.__struct_fields__ if name != "id"}
    return PARTS[type(given)](id=part, session_id=message.session_id, message_id=message.id, **fields)
