"""How a model is asked, as plugins would have it. Without plugins a request stays the very object it was."""

from msgspec import Struct
from msgspec.structs import replace

from weft.model.catalog import Model
from weft.model.ids import SessionID
from weft.plugin.hooks import (
    CHAT_HEADERS,
    CHAT_PARAMS,
    MESSAGES_TRANSFORM,
    SESSION_COMPACTING,
    SYSTEM_TRANSFORM,
    Asked,
    ChatHeaders,
    ChatParams,
    Compacting,
    Hooks,
    InSession,
    ShownMessages,
    SystemPrompt,
)
from weft.provider.contract import ModelRequest
from weft.provider.offer.options import max_output
from weft.window.history import to_model_messages
from weft.window.view import Shown, View
from weft.window.written import written


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
