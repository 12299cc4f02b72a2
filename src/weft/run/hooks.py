"""Call plugin hooks on requests, tool calls and finished text."""

from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.context.history import to_model_messages
from weft.context.system import written
from weft.context.view import Shown, View
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
    Asked,
    CallArguments,
    CallOutcome,
    CallTold,
    ChatHeaders,
    ChatParams,
    Compacting,
    FinishedText,
    Hooks,
    InSession,
    ShownMessages,
    SystemPrompt,
    TextTold,
)
from weft.provider.catalog.choice import max_output
from weft.provider.contract import ModelRequest
from weft.run.processor import CallStarted, Processor
from weft.tool.contract import ToolResult
from weft.tool.truncate import cut


class Reviewing(Struct, frozen=True):
    """Who is asked about a request, and how long its answer may be at most."""

    hooks: Hooks
    most: int


async def tuned(reviewing: Reviewing, request: ModelRequest, asked: Asked) -> ModelRequest:
    """The request with what plugins say to what the model is told first, to its parameters and to its headers."""
    request = await _instructed(reviewing.hooks, request, asked)
    request = await _parametrised(reviewing, request, asked)
    return await _headed(reviewing.hooks, request, asked)


async def _instructed(hooks: Hooks, request: ModelRequest, asked: Asked) -> ModelRequest:
    if not hooks.any(SYSTEM_TRANSFORM):
        return request
    told, now = InSession(session_id=asked.session_id), SystemPrompt(system=request.system)
    system = tuple(entry for entry in (await hooks.ask(SYSTEM_TRANSFORM, told, now)).system if entry)
    # A model that is told nothing at all is nobody's intention, as in OpenCode.
    return replace(request, system=system) if system and system != request.system else request


async def _parametrised(reviewing: Reviewing, request: ModelRequest, asked: Asked) -> ModelRequest:
    if not reviewing.hooks.any(CHAT_PARAMS):
        return request
    said = request.parameters
    now = ChatParams(temperature=said.temperature, top_p=said.top_p, top_k=said.top_k, options=said.options)
    given = await reviewing.hooks.ask(CHAT_PARAMS, asked, now)
    changed = replace(
        said,
        temperature=given.temperature,
        top_p=given.top_p,
        top_k=given.top_k,
        options=given.options,
        # How much room is left for the answer depends on how much is to be thought.
        max_output=max_output(request.model, reviewing.most, given.options),
    )
    return replace(request, parameters=changed)


async def _headed(hooks: Hooks, request: ModelRequest, asked: Asked) -> ModelRequest:
    """Plugins add to the headers and are not shown those there are: keys may be among them."""
    if not hooks.any(CHAT_HEADERS):
        return request
    given = (await hooks.ask(CHAT_HEADERS, asked, ChatHeaders(headers={}))).headers
    said = request.parameters
    return replace(request, parameters=replace(said, headers={**said.headers, **given}))


async def retold(hooks: Hooks, session: SessionID, seen: Shown, view: View, model: Model) -> Shown:
    """What is shown of a conversation, as plugins would have it. `view` is what showed it last.

    It goes the way of any history: every call that is left keeps its result. Nothing stored is changed by it.
    """
    if not hooks.any(MESSAGES_TRANSFORM):
        return seen
    now = ShownMessages(messages=view.list_shown())
    given = await hooks.ask(MESSAGES_TRANSFORM, InSession(session_id=session), now)
    if given.messages == now.messages:
        return seen
    turns = to_model_messages(given.messages, model)
    return replace(seen, turns=turns) if turns else seen


async def find_words(hooks: Hooks, session: SessionID) -> str:
    """The words a summary is asked for with."""
    usual = written("summarise")
    if not hooks.any(SESSION_COMPACTING):
        return usual
    given = await hooks.ask(SESSION_COMPACTING, InSession(session_id=session), Compacting())
    return given.prompt or "\n\n".join((usual, *(line for line in given.context if line)))


OWN: Final = "weft"
BOUNDED: Final = "truncated"


class HookedCall(Struct, frozen=True, kw_only=True):
    """A call as it is made: `args` differ from what the model wrote if a plugin said so."""

    told: CallTold
    args: dict[str, Any]

    @property
    def changed(self) -> bool:
        return self.args != self.told.args


def to_told(call: CallStarted, session: SessionID) -> CallTold:
    return CallTold(tool=call.tool, session_id=session, call_id=call.call_id, args=call.input)


async def before(hooks: Hooks, told: CallTold) -> HookedCall:
    """The call as it is to be made. Raises `BlockedError` if it is not."""
    if not hooks.any(TOOL_BEFORE):
        return HookedCall(told=told, args=told.args)
    given = await hooks.ask(TOOL_BEFORE, told, CallArguments(args=told.args))
    return HookedCall(told=told, args=given.args)


async def after(hooks: Hooks, call: HookedCall, result: ToolResult) -> ToolResult:
    """What came of it as the model reads it. It is yet to be bounded: also a plugin may say too much."""
    if hooks.any(TOOL_AFTER):
        result = await _retold(hooks, call, result)
    if call.changed:
        result = replace(result, metadata={**result.metadata, OWN: {"args": call.args}})
    return result


async def _retold(hooks: Hooks, call: HookedCall, result: ToolResult) -> ToolResult:
    now = CallOutcome(title=result.title, output=result.output, metadata=result.metadata)
    given = await hooks.ask(TOOL_AFTER, replace(call.told, args=call.args), now)
    metadata = given.metadata
    if given.output != result.output and cut(given.output).left:
        # The tool saw to it that its output was no longer than it may be; this is another.
        metadata = {key: value for key, value in metadata.items() if key != BOUNDED}
    return replace(result, title=given.title, output=given.output, metadata=metadata)


async def reworded(hooks: Hooks, processor: Processor, ended: list[Event]) -> list[Event]:
    """The end of a text, changed or not. It replaces as a whole what grew before, for whoever listens too."""
    if not hooks.any(TEXT_COMPLETE):
        return ended
    return [await _reworded(hooks, processor, event) for event in ended]


async def _reworded(hooks: Hooks, processor: Processor, event: Event) -> Event:
    if not isinstance(event, PartUpdated) or not isinstance(event.part, TextPart):
        return event
    part = event.part
    told = TextTold(session_id=part.session_id, message_id=part.message_id, part_id=part.id)
    given = await hooks.ask(TEXT_COMPLETE, told, FinishedText(text=part.text))
    return event if given.text == part.text else processor.reword(part, given.text)
