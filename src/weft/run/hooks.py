"""Call plugin hooks on requests, tool calls and finished text."""

from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.context.history import to_model_messages
from weft.context.system import read_text
from weft.context.view import ShownHistory, View
from weft.model.catalog import Model
from weft.model.event import Event, PartUpdated
from weft.model.ids import SessionID
from weft.model.part import TextPart
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
    CallOutcome,
    CallHookInput,
    ChatHeaders,
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


async def apply_request_hooks(
    hooks: Hooks, request: ModelRequest, asked: ChatRequest, *, most: int
) -> ModelRequest:
    """Let plugins change the system prompt, the parameters and the headers of a request. `most` limits the answer's tokens."""
    request = await _change_system(hooks, request, asked)
    request = await _change_parameters(hooks, request, asked, most=most)
    return await _add_headers(hooks, request, asked)


async def _change_system(hooks: Hooks, request: ModelRequest, asked: ChatRequest) -> ModelRequest:
    if not hooks.any(SYSTEM_TRANSFORM):
        return request
    where, now = SessionHookInput(session_id=asked.session_id), SystemPrompt(system=request.system)
    system = tuple(entry for entry in (await hooks.ask(SYSTEM_TRANSFORM, where, now)).system if entry)
    # As in OpenCode, an empty system prompt is taken for a mistake of the plugin.
    return replace(request, system=system) if system and system != request.system else request


async def _change_parameters(
    hooks: Hooks, request: ModelRequest, asked: ChatRequest, *, most: int
) -> ModelRequest:
    if not hooks.any(CHAT_PARAMS):
        return request
    parameters = request.parameters
    now = ChatParams(
        temperature=parameters.temperature,
        top_p=parameters.top_p,
        top_k=parameters.top_k,
        options=parameters.options,
    )
    given = await hooks.ask(CHAT_PARAMS, asked, now)
    changed = replace(
        parameters,
        temperature=given.temperature,
        top_p=given.top_p,
        top_k=given.top_k,
        options=given.options,
        # The options say how many tokens the model may use to think, and the answer gets the rest.
        max_output=get_max_output(request.model, most, given.options),
    )
    return replace(request, parameters=changed)


async def _add_headers(hooks: Hooks, request: ModelRequest, asked: ChatRequest) -> ModelRequest:
    """Add the headers of plugins. Plugins are not shown the existing headers, which may contain keys."""
    if not hooks.any(CHAT_HEADERS):
        return request
    given = (await hooks.ask(CHAT_HEADERS, asked, ChatHeaders(headers={}))).headers
    parameters = request.parameters
    return replace(request, parameters=replace(parameters, headers={**parameters.headers, **given}))


async def apply_message_hooks(
    hooks: Hooks, session: SessionID, seen: ShownHistory, view: View, model: Model
) -> ShownHistory:
    """Let plugins change the messages that the model is shown. `view` is the one that made `seen`.

    The changed messages are converted like any history, so every call keeps its result. Nothing stored changes.
    """
    if not hooks.any(MESSAGES_TRANSFORM):
        return seen
    now = ShownMessages(messages=view.list_shown())
    given = await hooks.ask(MESSAGES_TRANSFORM, SessionHookInput(session_id=session), now)
    if given.messages == now.messages:
        return seen
    turns = to_model_messages(given.messages, model)
    return replace(seen, turns=turns) if turns else seen


async def get_summary_prompt(hooks: Hooks, session: SessionID) -> str:
    """Return the prompt that requests a summary, as changed by plugins."""
    usual = read_text("summarise")
    if not hooks.any(SESSION_COMPACTING):
        return usual
    given = await hooks.ask(SESSION_COMPACTING, SessionHookInput(session_id=session), Compacting())
    return given.prompt or "\n\n".join((usual, *(line for line in given.context if line)))


OWN: Final = "weft"
BOUNDED: Final = "truncated"


class HookedCall(Struct, frozen=True, kw_only=True):
    """A call after the plugins have seen it. `args` are those to use; `told` has the model's own."""

    told: CallHookInput
    args: dict[str, Any]

    @property
    def changed(self) -> bool:
        return self.args != self.told.args


def to_hook_input(call: CallStarted, session: SessionID) -> CallHookInput:
    return CallHookInput(tool=call.tool, session_id=session, call_id=call.call_id, args=call.input)


async def apply_before_hooks(hooks: Hooks, told: CallHookInput) -> HookedCall:
    """Let plugins change the arguments of a call. Raise `BlockedError` if one forbids the call."""
    if not hooks.any(TOOL_BEFORE):
        return HookedCall(told=told, args=told.args)
    given = await hooks.ask(TOOL_BEFORE, told, CallArguments(args=told.args))
    return HookedCall(told=told, args=given.args)


async def apply_after_hooks(hooks: Hooks, call: HookedCall, result: ToolResult) -> ToolResult:
    """Let plugins change the result of a call. The output is not cut to its limit yet: a plugin may have made it longer."""
    if hooks.any(TOOL_AFTER):
        result = await _change_result(hooks, call, result)
    if call.changed:
        result = replace(result, metadata={**result.metadata, OWN: {"args": call.args}})
    return result


async def _change_result(hooks: Hooks, call: HookedCall, result: ToolResult) -> ToolResult:
    now = CallOutcome(title=result.title, output=result.output, metadata=result.metadata)
    given = await hooks.ask(TOOL_AFTER, replace(call.told, args=call.args), now)
    metadata = given.metadata
    if given.output != result.output and truncate(given.output).left:
        # The tool cut its own output to the limit, but this is another output.
        metadata = {key: value for key, value in metadata.items() if key != BOUNDED}
    return replace(result, title=given.title, output=given.output, metadata=metadata)


async def apply_text_hooks(hooks: Hooks, processor: Processor, ended: list[Event]) -> list[Event]:
    """Let plugins change a text that has ended. The changed text replaces the streamed one."""
    if not hooks.any(TEXT_COMPLETE):
        return ended
    return [await _change_text(hooks, processor, event) for event in ended]


async def _change_text(hooks: Hooks, processor: Processor, event: Event) -> Event:
    if not isinstance(event, PartUpdated) or not isinstance(event.part, TextPart):
        return event
    part = event.part
    text = TextHookInput(session_id=part.session_id, message_id=part.message_id, part_id=part.id)
    given = await hooks.ask(TEXT_COMPLETE, text, FinishedText(text=part.text))
    return event if given.text == part.text else processor.replace_text(part, given.text)
