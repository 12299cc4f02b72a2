"""Admit prompts: check them, read their attachments and store them, before anything is acknowledged or run."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from weft.errors import InvalidInputError, NotFoundError, find_similar
from weft.model.agent import AgentInfo
from weft.model.event import Durable, MessageUpdated, PartUpdated
from weft.model.ids import MessageID, PartID, SessionID, check_new_id
from weft.model.input import AgentInput, AnyPartInput, FileInput, PromptInput, SubtaskInput, TextInput
from weft.model.message import AnyFormat, JsonFormat, MessageWithParts, OtherFormat, TextFormat, UserMessage
from weft.model.part import AgentPart, AnyPart, FilePart, ModelRef, Moment, SubtaskPart, TextPart
from weft.model.session import SessionInfo
from weft.model.transcript import Transcript
from weft.permission.rules import make_child_rules, switch_tools
from weft.plugin.hooks import CHAT_MESSAGE, ChatMessage
from weft.run.attachments import attach
from weft.run.decide import find_newest_prompt
from weft.run.hooks import merge_hooked_prompt, to_prompt_hook_input
from weft.run.json_schema import check_schema
from weft.run.request import get_variant
from weft.run.runtime import Runtime
from weft.session.lifecycle import make_touch

PART_TYPES: dict[type[AnyPartInput], type[AnyPart]] = {
    TextInput: TextPart,
    FileInput: FilePart,
    AgentInput: AgentPart,
    SubtaskInput: SubtaskPart,
}


async def admit(
    runtime: Runtime, session: SessionID, transcript: Transcript, input: PromptInput
) -> MessageID:
    """Store a prompt, feed it to the transcript, and return its id.

    Raise, and store nothing, if the prompt names an agent, a model or a variant that does not exist, or an invalid format.
    """
    agent, (model, *fallback) = choose_models(runtime, input, transcript.messages())
    message = UserMessage(
        id=MessageID(check_new_id("message", input.message_id))
        if input.message_id
        else runtime.mint.message(),
        session_id=session,
        time=Moment(created=transcript.next_time(runtime.clock.now())),
        agent=agent,
        model=model,
        system=input.system,
        tools=input.tools,
        variant=input.variant,
        budget=input.budget,
        format=input.format,
        fallback=tuple(fallback),
    )
    inputs = [attached for part in input.parts for attached in await attach(runtime, message, part)]
    parts = tuple(_make_part(runtime, message, each) for each in inputs)
    message, parts = await _apply_hooks(runtime, input, message, parts)
    if input.tools:
        await _switch_tools(runtime, session, input.tools)
    events: list[Durable] = [MessageUpdated(info=message), *(PartUpdated(part=part) for part in parts)]
    await runtime.journal.edit(session, make_touch(runtime.clock.now()), *events, into=transcript)
    return message.id


async def _switch_tools(runtime: Runtime, session: SessionID, tools: Mapping[str, bool]) -> None:
    """Store the tools that a prompt switches on and off as rules of the session. In a child, the parent's rules stay last."""
    stored = await runtime.store.get_session(session)
    parent = None
    if stored.parent_id is not None:
        with suppress(NotFoundError):
            parent = await runtime.store.get_session(stored.parent_id)

    def apply(current: SessionInfo) -> SessionInfo:
        rules = switch_tools(current.permission or (), tools)
        return replace(current, permission=rules if parent is None else make_child_rules(rules, parent))

    await runtime.journal.edit(session, apply)


async def _apply_hooks(
    runtime: Runtime, input: PromptInput, message: UserMessage, parts: tuple[AnyPart, ...]
) -> tuple[UserMessage, tuple[AnyPart, ...]]:
    """Let plugins change the prompt, and return what they made of it. Raise if they name an agent or a model that does not exist."""
    if not runtime.hooks.any(CHAT_MESSAGE):
        return message, parts
    original = ChatMessage(message=message, parts=parts)
    hook_input = to_prompt_hook_input(input, message)
    hooked = merge_hooked_prompt(
        await runtime.hooks.ask(CHAT_MESSAGE, hook_input, original), original, runtime.mint
    )
    message, parts = hooked.message, hooked.parts
    check_format(message.format)
    get_agent(runtime, message.agent)
    _check_mentions(runtime, parts)
    for model in (message.model or runtime.models.get_default(), *message.fallback):
        runtime.models.get(model)
    if message.model is not None:
        get_variant(runtime.models.get(message.model).model, message.variant)
    return message, parts


def choose_models(
    runtime: Runtime, input: PromptInput, history: Sequence[MessageWithParts]
) -> tuple[str, tuple[ModelRef, ...]]:
    """Return the agent that answers, and its models: the one in the prompt, else the agent's, else that of the last prompt, else
    the default, followed by its fallbacks. Raise if one of them does not exist.

    Only an agent's own model has fallbacks: a model that a person chose by hand is not replaced.
    """
    check_format(input.format)
    name = input.agent or runtime.default_agent
    agent = get_agent(runtime, name)
    _check_mentions(runtime, input.parts)
    last = find_newest_prompt(history)
    model = input.model or agent.model or (last.model if last else None) or runtime.models.get_default()
    get_variant(runtime.models.get(model).model, input.variant)
    fallback = agent.fallback if input.model is None and agent.model is not None else ()
    for other in fallback:
        runtime.models.get(other)
    return name, (model, *fallback)


def _check_mentions(runtime: Runtime, parts: Sequence[AnyPartInput | AnyPart]) -> None:
    """Raise if an agent or a model that the prompt mentions does not exist."""
    for part in parts:
        match part:
            case AgentInput(name=name) | AgentPart(name=name):
                get_agent(runtime, name)
            case SubtaskInput(agent=name, model=model) | SubtaskPart(agent=name, model=model):
                get_agent(runtime, name)
                if model is not None:
                    runtime.models.get(model)
            case _:
                pass


def get_agent(runtime: Runtime, name: str) -> AgentInfo:
    """Return an agent by its name, or raise `NotFoundError` with similar names."""
    agent = runtime.agents.get(name)
    if agent is None:
        visible = [other for other, config in runtime.agents.items() if not config.hidden]
        near = find_similar(name, visible)
        raise NotFoundError("agent", name, near=near, hint=f"there are {', '.join(visible)}")
    return agent


def check_format(format: AnyFormat | None) -> None:
    """Raise `InvalidInputError` if the format of the answer is unknown or its schema is invalid."""
    match format:
        case JsonFormat(schema=schema, retry_count=retries):
            if retries is not None and retries < 0:
                raise InvalidInputError("format.retryCount", "it must not be negative")
            check_schema(schema, where="format.schema")
        case OtherFormat():
            raise InvalidInputError("format.type", 'it must be "text" or "json_schema"')
        case TextFormat() | None:
            pass


def _make_part(runtime: Runtime, message: UserMessage, input: AnyPartInput) -> AnyPart:
    """Return the part to store for a part of the input. Both types name their fields alike."""
    part = PartID(check_new_id("part", input.id)) if input.id else runtime.mint.part()
    fields = {name: getattr(input, name) for name in input.__struct_fields__ if name != "id"}
    return PART_TYPES[type(input)](id=part, session_id=message.session_id, message_id=message.id, **fields)
