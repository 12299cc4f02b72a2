"""Call plugin hooks on prompts, requests, tool calls and finished text, and merge what they change."""

from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.context.history import to_model_messages
from weft.context.system import read_text
from weft.context.view import ShownHistory, View
from weft.errors import InvalidInputError
from weft.model.catalog import Model
from weft.model.event import Event, PartUpdated
from weft.model.ids import Mint, SessionID
from weft.model.input import PromptInput
from weft.model.message import UserMessage
from weft.model.part import AgentPart, AnyPart, FilePart, SubtaskPart, TextPart
from weft.plugin.hooks import (
    CHAT_HEADERS,
    CHAT_PARAMS,
    MESSAGES_TRANSFORM,
    SESSION_COMPACTING,
    SYSTEM_TRANSFORM,
    TEXT_COMPLETE,
    TOOL_AFTER,
    TOOL_BEFORE,
    CallArguments,
    CallHookInput,
    CallOutcome,
    ChatHeaders,
    ChatMessage,
    ChatMessageInput,
    ChatParams,
    ChatRequest,
    Compacting,
    FinishedText,
    Hooks,
    SessionHookInput,
    ShownMessages,
    SystemPrompt,
    TextHookInput,
)
from weft.provider.catalog.choice import get_max_output
from weft.provider.contract import ModelRequest
from weft.run.processor import CallStarted, Processor
from weft.tool.contract import ToolResult
from weft.tool.truncate import truncate

# --- requests ---


async def apply_request_hooks(
    hooks: Hooks, request: ModelRequest, chat: ChatRequest, *, output_limit: int
) -> ModelRequest:
    """Let plugins change the system prompt, the parameters and the headers of a request. `output_limit` limits the answer's tokens."""
    request = await _change_system(hooks, request, chat)
    request = await _change_parameters(hooks, request, chat, output_limit=output_limit)
    return await _add_headers(hooks, request, chat)


async def _change_system(hooks: Hooks, request: ModelRequest, chat: ChatRequest) -> ModelRequest:
    if not hooks.any(SYSTEM_TRANSFORM):
        return request
    session_input, output = SessionHookInput(session_id=chat.session_id), SystemPrompt(system=request.system)
    system = tuple(
        entry for entry in (await hooks.ask(SYSTEM_TRANSFORM, session_input, output)).system if entry
    )
    # As in OpenCode, an empty system prompt is taken for a mistake of the plugin.
    return replace(request, system=system) if system and system != request.system else request


async def _change_parameters(
    hooks: Hooks, request: ModelRequest, chat: ChatRequest, *, output_limit: int
) -> ModelRequest:
    if not hooks.any(CHAT_PARAMS):
        return request
    parameters = request.parameters
    output = ChatParams(
        temperature=parameters.temperature,
        top_p=parameters.top_p,
        top_k=parameters.top_k,
        options=parameters.options,
    )
    changed = await hooks.ask(CHAT_PARAMS, chat, output)
    new_parameters = replace(
        parameters,
        temperature=changed.temperature,
        top_p=changed.top_p,
        top_k=changed.top_k,
        options=changed.options,
        # The options may reserve tokens for reasoning; the answer gets the rest.
        max_output=get_max_output(request.model, output_limit, changed.options),
    )
    return replace(request, parameters=new_parameters)


async def _add_headers(hooks: Hooks, request: ModelRequest, chat: ChatRequest) -> ModelRequest:
    """Add the headers of plugins. Plugins are not shown the existing headers, which may contain keys."""
    if not hooks.any(CHAT_HEADERS):
        return request
    headers = (await hooks.ask(CHAT_HEADERS, chat, ChatHeaders(headers={}))).headers
    parameters = request.parameters
    return replace(request, parameters=replace(parameters, headers={**parameters.headers, **headers}))


async def apply_message_hooks(
    hooks: Hooks, session: SessionID, shown: ShownHistory, view: View, model: Model
) -> ShownHistory:
    """Let plugins change the messages that the model is shown. `view` is the one that made `shown`.

    The changed messages are converted like any history, so every call keeps its result. Nothing stored changes.
    """
    if not hooks.any(MESSAGES_TRANSFORM):
        return shown
    output = ShownMessages(messages=view.list_shown())
    changed = await hooks.ask(MESSAGES_TRANSFORM, SessionHookInput(session_id=session), output)
    if changed.messages == output.messages:
        return shown
    messages = to_model_messages(changed.messages, model)
    return replace(shown, messages=messages) if messages else shown


async def get_summary_prompt(hooks: Hooks, session: SessionID) -> str:
    """Return the prompt that requests a summary, as changed by plugins."""
    default = read_text("summarise")
    if not hooks.any(SESSION_COMPACTING):
        return default
    changed = await hooks.ask(SESSION_COMPACTING, SessionHookInput(session_id=session), Compacting())
    return changed.prompt or "\n\n".join((default, *(line for line in changed.context if line)))


# --- tool calls ---

WEFT_KEY: Final = "weft"
TRUNCATED_KEY: Final = "truncated"


class HookedCall(Struct, frozen=True, kw_only=True):
    """A call after the plugins have seen it. `args` are the arguments to use; `input.args` are the model's own."""

    input: CallHookInput
    args: dict[str, Any]

    @property
    def changed(self) -> bool:
        return self.args != self.input.args


def to_call_hook_input(call: CallStarted, session: SessionID) -> CallHookInput:
    return CallHookInput(tool=call.tool, session_id=session, call_id=call.call_id, args=call.input)


async def apply_before_hooks(hooks: Hooks, input: CallHookInput) -> HookedCall:
    """Let plugins change the arguments of a call. Raise `BlockedError` if one forbids the call."""
    if not hooks.any(TOOL_BEFORE):
        return HookedCall(input=input, args=input.args)
    changed = await hooks.ask(TOOL_BEFORE, input, CallArguments(args=input.args))
    return HookedCall(input=input, args=changed.args)


async def apply_after_hooks(hooks: Hooks, call: HookedCall, result: ToolResult) -> ToolResult:
    """Let plugins change the result of a call. The caller truncates the output, since a plugin may have made it longer."""
    if hooks.any(TOOL_AFTER):
        result = await _change_result(hooks, call, result)
    if call.changed:
        result = replace(result, metadata={**result.metadata, WEFT_KEY: {"args": call.args}})
    return result


async def _change_result(hooks: Hooks, call: HookedCall, result: ToolResult) -> ToolResult:
    output = CallOutcome(title=result.title, output=result.output, metadata=result.metadata)
    changed = await hooks.ask(TOOL_AFTER, replace(call.input, args=call.args), output)
    metadata = changed.metadata
    if changed.output != result.output and truncate(changed.output).removed:
        # The mark says that the tool truncated its output itself. It does not hold for the plugin's output.
        metadata = {key: value for key, value in metadata.items() if key != TRUNCATED_KEY}
    return replace(result, title=changed.title, output=changed.output, metadata=metadata)


# --- finished text ---


async def apply_text_hooks(hooks: Hooks, processor: Processor, events: list[Event]) -> list[Event]:
    """Let plugins change a text that has ended. The changed text replaces the streamed one."""
    if not hooks.any(TEXT_COMPLETE):
        return events
    return [await _change_text(hooks, processor, event) for event in events]


async def _change_text(hooks: Hooks, processor: Processor, event: Event) -> Event:
    if not isinstance(event, PartUpdated) or not isinstance(event.part, TextPart):
        return event
    part = event.part
    hook_input = TextHookInput(session_id=part.session_id, message_id=part.message_id, part_id=part.id)
    changed = await hooks.ask(TEXT_COMPLETE, hook_input, FinishedText(text=part.text))
    return event if changed.text == part.text else processor.replace_text(part, changed.text)


# --- prompts ---

HOOK_FIELD: Final = "chat.message"
PROMPT_PART_TYPES: Final = (TextPart, FilePart, AgentPart, SubtaskPart)


def to_prompt_hook_input(input: PromptInput, message: UserMessage) -> ChatMessageInput:
    """Return the prompt as the caller sent it, before defaults were filled in."""
    return ChatMessageInput(
        session_id=message.session_id,
        agent=input.agent,
        model=input.model,
        message_id=input.message_id,
        variant=input.variant,
    )


def merge_hooked_prompt(hooked: ChatMessage, original: ChatMessage, mint: Mint) -> ChatMessage:
    """Return the prompt of a hook with our session, message and time, and its parts in their order.

    A hook may change text, add and remove parts, and name another agent or model. Ids, session and time are restored silently,
    since a hook that adds a part has to write some id into it.

    Parts are stored in the order of their ids, so all parts behind a new one get new ids. Raise `InvalidInputError` if a part
    has a type that no prompt can have, or if no part is left.
    """
    message = replace(
        hooked.message,
        id=original.message.id,
        session_id=original.message.session_id,
        time=original.message.time,
    )
    if message.model != original.message.model and message.fallback == original.message.fallback:
        message = replace(message, fallback=())  # the fallbacks belonged to the model that was replaced
    remaining_ids = [part.id for part in original.parts]
    parts: list[AnyPart] = []
    for part in hooked.parts:
        if not isinstance(part, PROMPT_PART_TYPES):
            raise InvalidInputError(
                HOOK_FIELD, f"a plugin put a part of the type {_get_type(part)!r} into a prompt"
            )
        if part.id in remaining_ids:
            id, remaining_ids = part.id, remaining_ids[remaining_ids.index(part.id) + 1 :]
        else:
            id, remaining_ids = mint.part(), []
        parts.append(replace(part, id=id, session_id=message.session_id, message_id=message.id))
    if not parts and original.parts:
        raise InvalidInputError(HOOK_FIELD, "a plugin left nothing of the prompt")
    return ChatMessage(message=message, parts=tuple(parts))


def _get_type(part: object) -> str:
    return str(getattr(part, "type", type(part).__name__))
