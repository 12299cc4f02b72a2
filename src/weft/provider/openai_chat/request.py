"""A request in the words of OpenAI's Chat Completions, valid whatever the history holds (pure)."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

from weft.model.catalog import Interleaved, Model
from weft.provider.body import MARK, Remembering, afresh, message_marks, system_marks, to_bytes, wants_marks
from weft.provider.contract import (
    AssistantTurn,
    CallContent,
    FileContent,
    ModelMessage,
    ModelRequest,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolSpec,
    ToolTurn,
    UserTurn,
)
from weft.provider.media import MB, MediaLimits, modality, show_files, to_data
from weft.provider.normalise import (
    NO_OUTPUT,
    NOOP,
    Shape,
    claude_id,
    ends_with_question,
    has_calls,
    input_schema,
    metadata_key,
    mistral_id,
    own_metadata,
    pair_calls,
    plain_id,
    short_id,
    tool_name,
)

DONE: Final = "Done."
PAUSE: Final = AssistantTurn(content=(TextContent(text=DONE),))
DETAILS: Final = "reasoning_details"
LONGEST_ID: Final = 40
LIMITS: Final = MediaLimits(each=20 * MB, total=45 * MB, count=100)
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
SOUNDS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
# Options as OpenCode's configuration spells them, and as this API does.
SPELLED: Final = {
    "reasoningEffort": "reasoning_effort",
    "textVerbosity": "verbosity",
    "promptCacheKey": "prompt_cache_key",
    "promptCacheRetention": "prompt_cache_retention",
    "serviceTier": "service_tier",
    "parallelToolCalls": "parallel_tool_calls",
    "safetyIdentifier": "safety_identifier",
    "maxCompletionTokens": "max_completion_tokens",
    "logitBias": "logit_bias",
    "topLogprobs": "top_logprobs",
}
# Options that are ours or another API's to read; whatever else is set goes to the server as it is.
UNSENT: Final = frozenset(
    [
        "apiKey",
        "baseURL",
        "betas",
        "fetch",
        "headers",
        "include",
        "includeUsage",
        "litellmProxy",
        "messages",
        "model",
        "reasoningSummary",
        "setCacheKey",
        "stream",
        "strictJsonSchema",
        "structuredOutputs",
        "timeout",
        "tools",
        "useCompletionUrls",
    ]
)

Json = dict[str, Any]


def to_body(request: ModelRequest, remembering: Remembering = afresh) -> Json:
    """The conversation comes last: as it grows, what was sent before stays a prefix of what is sent next."""
    body: Json = {"model": request.model.api.id, "stream": True}
    if (
        request.model.provider_id != "mistral"
    ):  # it counts without being asked, and refuses what it does not know
        body["stream_options"] = {"include_usage": True}
    body |= _sampling(request) | _options(request) | _format(request) | _tools(request)
    body["messages"] = to_messages(request, remembering)
    return body


# --- how to answer ---


def _is_openai(model: Model) -> bool:
    return model.provider_id in {"openai", "azure"} or model.api.npm in {"@ai-sdk/openai", "@ai-sdk/azure"}


def _is_mistral(model: Model) -> bool:
    return model.provider_id == "mistral" or "mistral" in model.api.id.lower()


def _sampling(request: ModelRequest) -> Json:
    asked = request.parameters
    limit = "max_completion_tokens" if _is_openai(request.model) else "max_tokens"
    given = {
        limit: asked.max_output,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "top_k": None if _is_openai(request.model) else asked.top_k,
    }
    return {name: value for name, value in given.items() if value is not None}


def _options(request: ModelRequest) -> Json:
    options = request.parameters.options
    return {SPELLED.get(name, name): value for name, value in options.items() if name not in UNSENT}


def _tools(request: ModelRequest) -> Json:
    if request.tools:
        return {"tools": [_tool(spec) for spec in request.tools], "tool_choice": _choice(request)}
    named = f"{request.model.provider_id} {request.model.api.id}".lower()
    if "litellm" in named or request.parameters.options.get("litellmProxy") is True:
        # The proxy refuses a conversation with calls when it is told of no tool at all.
        return {"tools": [_tool(NOOP)]} if has_calls(request.messages) else {}
    return {}


def _choice(request: ModelRequest) -> Json | str:
    if not request.forced:
        return request.tool_choice
    return {"type": "function", "function": {"name": tool_name(request.forced)}}


def _format(request: ModelRequest) -> Json:
    wanted = request.format
    if wanted is None:
        return {}
    schema = {"name": wanted.name, "schema": wanted.schema, "strict": wanted.strict}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _tool(spec: ToolSpec) -> Json:
    return {
        "type": "function",
        "function": {
            "name": tool_name(spec.name),
            "description": spec.about,
            "parameters": input_schema(spec),
        },
    }


# --- the conversation ---


def to_messages(request: ModelRequest, remembering: Remembering = afresh) -> list[Json]:
    model = request.model
    marked = wants_marks(model)
    wire = _Wire(model, lists=marked)
    say = remembering(model, wire.messages)
    paired = pair_calls(request.messages, _shape(model))
    turns = ends_with_question([turn for turn in show_files(paired, model, _shows, LIMITS) if say(turn)])
    if _is_mistral(model):
        turns = _with_pauses(turns)
    groups = [say(turn) for turn in turns]
    for number in message_marks(len(groups)) if marked else ():
        groups[number] = _marked(wire.messages(turns[number]))
    return [*_system(request.system, model), *chain.from_iterable(groups)]


def _shape(model: Model) -> Shape:
    if "claude" in model.api.id:
        return claude_id
    if _is_mistral(model):
        return mistral_id
    return short_id(LONGEST_ID) if _is_openai(model) else plain_id


def _says_something(turn: ModelMessage) -> bool:
    """Thoughts alone are no message; nor is a text of nothing."""
    return any(
        item.text.strip() if isinstance(item, TextContent) else not isinstance(item, ReasoningContent)
        for item in turn.content
    )


def _with_pauses(turns: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Mistral wants a word of the assistant between a result and what the person says next (spec 9.5.4)."""
    made: list[ModelMessage] = []
    for turn in turns:
        if isinstance(turn, UserTurn) and made and isinstance(made[-1], ToolTurn):
            made.append(PAUSE)
        made.append(turn)
    return made


def _system(texts: Sequence[str], model: Model) -> list[Json]:
    # OpenCode sends several system messages to every server. Many templates take one only, and only first.
    said = [text for text in texts if text.strip()]
    if not wants_marks(model):
        return [{"role": "system", "content": "\n\n".join(said)}] if said else []
    messages: list[Json] = [{"role": "system", "content": [{"type": "text", "text": text}]} for text in said]
    for number in system_marks(len(messages)):
        _mark(messages[number])
    return messages


def _marked(group: list[Json]) -> list[Json]:
    _mark(group[-1])
    return group


def _mark(message: Json) -> None:
    """On the last piece of the content, else on the message."""
    content = message.get("content")
    (content[-1] if isinstance(content, list) and content else message)["cache_control"] = MARK


class _Wire:
    """How turns are written for one model; `lists` when content is always a list, so that a mark changes nothing else."""

    def __init__(self, model: Model, *, lists: bool) -> None:
        self._model = model
        self._lists = lists
        self._key = metadata_key(model)

    def messages(self, turn: ModelMessage) -> list[Json]:
        """None for a turn that says nothing."""
        if not _says_something(turn):
            return []
        match turn:
            case UserTurn(content=content):
                return [{"role": "user", "content": self._content([_piece(item) for item in content])}]
            case AssistantTurn():
                return [self._assistant(turn)]
            case ToolTurn():
                return self._results(turn)

    def _content(self, pieces: list[Json]) -> list[Json] | str:
        """Return the pieces that say something, as one string if they are texts alone: llama-cpp-python fails on a list."""
        pieces = [piece for piece in pieces if piece.get("text", "…").strip()]
        if self._lists or any(piece["type"] != "text" for piece in pieces):
            return pieces
        return "\n\n".join(piece["text"] for piece in pieces)

    def _assistant(self, turn: AssistantTurn) -> Json:
        texts = [item.text for item in turn.content if isinstance(item, TextContent) and item.text.strip()]
        calls = [item for item in turn.content if isinstance(item, CallContent)]
        pieces = [_text("\n\n".join(texts))] if texts else []
        message: Json = {"role": "assistant", "content": self._content(pieces) if pieces else None}
        message |= self._reasoning(turn, called=bool(calls))
        if calls:
            message["tool_calls"] = [_call(call) for call in calls]
        return message

    def _reasoning(self, turn: AssistantTurn, *, called: bool) -> Json:
        thoughts = [item for item in turn.content if isinstance(item, ReasoningContent)]
        details = self._details(turn)
        if details:
            return {DETAILS: details}
        wanted = self._model.capabilities.interleaved
        if not isinstance(wanted, Interleaved):
            return {}
        text = "".join(thought.text for thought in thoughts)
        if wanted.field == DETAILS:
            return {DETAILS: [{"type": "reasoning.text", "text": text}]} if text else {}
        # Servers that want thoughts back refuse a call that comes without, such as one another model made.
        text = text or (" " if called else "")
        return {wanted.field: text} if text else {}

    def _details(self, turn: AssistantTurn) -> list[Any]:
        """Thoughts as the router gave them, from the thoughts, else from the first call that carries them."""
        found = [
            (isinstance(item, ReasoningContent), kept)
            for item in turn.content
            if isinstance(kept := own_metadata(item.metadata, self._key).get(DETAILS), list)
        ]
        thought = [detail for is_thought, kept in found if is_thought for detail in kept]
        return thought or next((kept for is_thought, kept in found if not is_thought), [])

    def _results(self, turn: ToolTurn) -> list[Json]:
        messages: list[Json] = [
            {
                "role": "tool",
                "tool_call_id": result.call_id,
                "content": self._content([_text(result.output if result.output.strip() else NO_OUTPUT)]),
            }
            for result in turn.content
        ]
        # A result is text here. OpenCode writes pictures into it as base64; a model sees them only as a person's.
        pieces = [piece for result in turn.content for piece in _brought(result)]
        if pieces and _is_mistral(self._model):
            messages.append({"role": "assistant", "content": DONE})
        return [*messages, {"role": "user", "content": pieces}] if pieces else messages


def _brought(result: ResultContent) -> list[Json]:
    if not result.files:
        return []
    return [_text(f"Files from the call of {result.tool}:"), *(_file(file) for file in result.files)]


def _call(call: CallContent) -> Json:
    # As bytes first: half a surrogate pair in an input would otherwise be found only inside the string.
    function = {"name": call.tool, "arguments": to_bytes(call.input).decode()}
    return {"id": call.call_id, "type": "function", "function": function}


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _piece(item: TextContent | FileContent) -> Json:
    return _text(item.text) if isinstance(item, TextContent) else _file(item)


def _shows(file: FileContent) -> bool:
    data = to_data(file.url)
    if data is None:
        return file.url.startswith(("https://", "http://")) and file.mime in PICTURES
    return data.mime in PICTURES or data.mime == "application/pdf" or data.mime in SOUNDS


def _file(file: FileContent) -> Json:
    data = to_data(file.url)
    if data is None:
        return {"type": "image_url", "image_url": {"url": file.url}}
    if modality(data.mime) == "audio":
        return {"type": "input_audio", "input_audio": {"data": data.base64, "format": SOUNDS[data.mime]}}
    url = f"data:{data.mime};base64,{data.base64}"
    if modality(data.mime) == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": file.filename or "file.pdf", "file_data": url}}
