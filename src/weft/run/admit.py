"""Input to a stored prompt: nothing is acknowledged, and nothing runs, before it is on disk."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches

from msgspec.structs import replace

from weft.errors import InvalidInputError, NotFoundError
from weft.model.agent import Agent
from weft.model.event import Event, MessageUpdated, PartUpdated
from weft.model.ids import MessageID, PartID, SessionID, check_new
from weft.model.input import AgentInput, AnyPartInput, FileInput, PromptInput, SubtaskInput, TextInput
from weft.model.message import AnyFormat, JsonFormat, MessageWithParts, OtherFormat, TextFormat, UserMessage
from weft.model.part import AgentPart, AnyPart, FilePart, ModelRef, Moment, SubtaskPart, TextPart
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.permission.rules import switch_tools
from weft.plugin.hooks import CHAT_MESSAGE, ChatMessage
from weft.run.attachments import attach
from weft.run.decide import newest_prompt
from weft.run.kit import Kit
from weft.run.prompt_hooks import settled, to_told
from weft.run.request import variant_of
from weft.run.structured import check_schema
from weft.session.lifecycle import touch
from weft.session.tree import child_rules

PARTS: dict[type[AnyPartInput], type[AnyPart]] = {
    TextInput: TextPart,
    FileInput: FilePart,
    AgentInput: AgentPart,
    SubtaskInput: SubtaskPart,
}


async def admit(kit: Kit, session: SessionID, transcript: Transcript, input: PromptInput) -> MessageID:
    """Store a prompt, and take it into the transcript. What it names (agent, model) is checked first, so that a
    mistake stores nothing."""
    agent, (model, *fallback) = choose(kit, input, transcript.messages())
    message = UserMessage(
        id=MessageID(check_new("message", input.message_id)) if input.message_id else kit.mint.message(),
        session_id=session,
        time=Moment(created=transcript.next_time(kit.clock.now())),
        agent=agent,
        model=model,
        system=input.system,
        tools=input.tools,
        variant=input.variant,
        budget=input.budget,
        format=input.format,
        fallback=tuple(fallback),
    )
    given = [piece for part in input.parts for piece in await attach(kit, message, part)]
    parts = tuple(_to_part(kit, message, piece) for piece in given)
    message, parts = await _reviewed(kit, input, message, parts)
    if input.tools:
        await _switch_tools(kit, session, input.tools)
    events: list[Event] = [MessageUpdated(info=message), *(PartUpdated(part=part) for part in parts)]
    await kit.journal.commit(*events, into=transcript)
    await touch(kit.journal, session, kit.clock.now())
    return message.id


async def _switch_tools(kit: Kit, session: SessionID, tools: Mapping[str, bool]) -> None:
    """Make rules of the session of the tools that a prompt switches. In a child the rules of its parent stay last."""
    found = await kit.store.get_session(session)
    parent = None
    if found.parent_id is not None:
        with suppress(NotFoundError):
            parent = await kit.store.get_session(found.parent_id)

    def switched(it: Session) -> Session:
        rules = switch_tools(it.permission or (), tools)
        return replace(it, permission=rules if parent is None else child_rules(rules, parent))

    await kit.journal.edit(session, switched)


async def _reviewed(
    kit: Kit, input: PromptInput, message: UserMessage, parts: tuple[AnyPart, ...]
) -> tuple[UserMessage, tuple[AnyPart, ...]]:
    """The prompt as plugins would have it. What they name must be there, like what a person names."""
    if not kit.hooks.any(CHAT_MESSAGE):
        return message, parts
    ours = ChatMessage(message=message, parts=parts)
    told = to_told(input, message)
    found = settled(await kit.hooks.ask(CHAT_MESSAGE, told, ours), ours, kit.mint)
    message, parts = found.message, found.parts
    check_format(message.format)
    get_agent(kit, message.agent)
    _check_mentions(kit, parts)
    for model in (message.model or kit.models.default(), *message.fallback):
        kit.models.get(model)
    if message.model is not None:
        variant_of(kit.models.get(message.model).model, message.variant)
    return message, parts


def choose(
    kit: Kit, input: PromptInput, history: Sequence[MessageWithParts]
) -> tuple[str, tuple[ModelRef, ...]]:
    """Who answers, with which model: the one asked for, else the agent's, else the one this conversation goes on with,
    else the default. What is not there must be said now, not after the prompt is stored.

    Only an agent's models have others to fall back on: what a person chose by hand is not crossed.
    """
    check_format(input.format)
    name = input.agent or kit.default_agent
    agent = get_agent(kit, name)
    _check_mentions(kit, input.parts)
    last = newest_prompt(history)
    model = input.model or agent.model or (last.model if last else None) or kit.models.default()
    variant_of(kit.models.get(model).model, input.variant)
    fallback = agent.fallback if input.model is None and agent.model is not None else ()
    for other in fallback:
        kit.models.get(other)
    return name, (model, *fallback)


def _check_mentions(kit: Kit, parts: Sequence[AnyPartInput | AnyPart]) -> None:
    """Whom a prompt names to work on it must be there, and the model they are to use."""
    for part in parts:
        match part:
            case AgentInput(name=name) | AgentPart(name=name):
                get_agent(kit, name)
            case SubtaskInput(agent=name, model=model) | SubtaskPart(agent=name, model=model):
                get_agent(kit, name)
                if model is not None:
                    kit.models.get(model)
            case _:
                pass


def get_agent(kit: Kit, name: str) -> Agent:
    agent = kit.agents.get(name)
    if agent is None:
        visible = [each for each, found in kit.agents.items() if not found.hidden]
        near = get_close_matches(name, visible, n=3)
        raise NotFoundError("agent", name, near=near, hint=f"there are {', '.join(visible)}")
    return agent


def check_format(format: AnyFormat | None) -> None:
    match format:
        case JsonFormat(schema=schema, retry_count=retries):
            if retries is not None and retries < 0:
                raise InvalidInputError("format.retryCount", "it cannot be less than none")
            check_schema(schema, where="format.schema")
        case OtherFormat():
            raise InvalidInputError("format.type", 'weft knows "text" and "json_schema"')
        case TextFormat() | None:
            pass


def _to_part(kit: Kit, message: UserMessage, given: AnyPartInput) -> AnyPart:
    """The same piece, with a place in a message: what is sent and what is stored name their fields alike."""
    part = PartID(check_new("part", given.id)) if given.id else kit.mint.part()
    fields = {name: getattr(given, name) for name in given.__struct_fields__ if name != "id"}
    return PARTS[type(given)](id=part, session_id=message.session_id, message_id=message.id, **fields)
