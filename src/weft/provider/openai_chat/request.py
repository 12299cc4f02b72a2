"""Build a request for OpenAI's Chat Completions API that is valid for any history (pure)."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

from weft.model.catalog import Interleaved, Model
from weft.provider.body import (
    CACHE_MARK,
    CacheMessages,
    encode_uncached,
    list_message_marks,
    list_system_marks,
    needs_cache_marks,
    to_bytes,
)
from weft.provider.contract import (
    AssistantModelMessage,
    CallContent,
    MediaContent,
    ModelMessage,
    ModelRequest,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolModelMessage,
    ToolSpec,
    UserModelMessage,
)
from weft.provider.conversation import ConversationCache, EncodedMessages
from weft.provider.media import MB, MediaLimits, adapt_files, find_modality, parse_data_url
from weft.provider.normalise import (
    NO_OUTPUT,
    NOOP_TOOL,
    ShapeId,
    ensure_user_messages,
    get_metadata_key,
    get_own_metadata,
    has_calls,
    has_content,
    limit_id,
    pair_calls,
    to_claude_id,
    to_input_schema,
    to_mistral_id,
    to_plain_id,
    to_tool_name,
)

FILLER_TEXT: Final = "Done."
FILLER_MESSAGE: Final = AssistantModelMessage(content=(TextContent(text=FILLER_TEXT),))
REASONING_DETAILS: Final = "reasoning_details"
MAX_ID_LENGTH: Final = 40
MEDIA_LIMITS: Final = MediaLimits(max_file_chars=20 * MB, max_total_chars=45 * MB, max_files=100)
IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
AUDIO_FORMATS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
# Options as OpenCode's configuration spells them, and as this API spells them.
OPTION_NAMES: Final = {
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
# Options that are for us or for another API. All others are sent to the server unchanged.
UNSENT_OPTIONS: Final = frozenset(
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


def to_body(
    request: ModelRequest,
    cache: CacheMessages = encode_uncached,
    conversations: ConversationCache[EncodedMessages] | None = None,
) -> Json:
    """Build the body. The conversation comes last, so that each request begins with the bytes of the one before it.

    `cache` wraps the function that encodes a message, so that it encodes each message once. `conversations` has the encoded
    conversations of earlier requests, but none with files.
    """
    body: Json = {"model": request.model.api.id, "stream": True}
    if request.model.provider_id != "mistral":  # it always reports usage, and refuses fields it does not know
        body["stream_options"] = {"include_usage": True}
    body |= _to_sampling(request) | _to_options(request) | _to_format(request) | _to_tools(request)
    body["messages"] = to_messages(request, cache, conversations)
    return body


# --- settings ---


def _is_openai(model: Model) -> bool:
    return model.provider_id in {"openai", "azure"} or model.api.npm in {"@ai-sdk/openai", "@ai-sdk/azure"}


def _is_mistral(model: Model) -> bool:
    return model.provider_id == "mistral" or "mistral" in model.api.id.lower()


def _to_sampling(request: ModelRequest) -> Json:
    parameters = request.parameters
    limit_name = "max_completion_tokens" if _is_openai(request.model) else "max_tokens"
    fields = {
        limit_name: parameters.max_output,
        "temperature": parameters.temperature,
        "top_p": parameters.top_p,
        "top_k": None if _is_openai(request.model) else parameters.top_k,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _to_options(request: ModelRequest) -> Json:
    options = request.parameters.options
    return {
        OPTION_NAMES.get(name, name): value for name, value in options.items() if name not in UNSENT_OPTIONS
    }


def _to_tools(request: ModelRequest) -> Json:
    if request.tools:
        return {"tools": [_to_tool(spec) for spec in request.tools], "tool_choice": _to_tool_choice(request)}
    name = f"{request.model.provider_id} {request.model.api.id}".lower()
    if "litellm" in name or request.parameters.options.get("litellmProxy") is True:
        # The proxy refuses a conversation with tool calls if no tool is declared.
        return {"tools": [_to_tool(NOOP_TOOL)]} if has_calls(request.messages) else {}
    return {}


def _to_tool_choice(request: ModelRequest) -> Json | str:
    if not request.forced:
        return request.tool_choice
    return {"type": "function", "function": {"name": to_tool_name(request.forced)}}


def _to_format(request: ModelRequest) -> Json:
    format = request.format
    if format is None:
        return {}
    schema = {"name": format.name, "schema": format.schema, "strict": format.strict}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _to_tool(spec: ToolSpec) -> Json:
    return {
        "type": "function",
        "function": {
            "name": to_tool_name(spec.name),
            "description": spec.about,
            "parameters": to_input_schema(spec),
        },
    }


# --- the conversation ---


def to_messages(
    request: ModelRequest,
    cache: CacheMessages = encode_uncached,
    conversations: ConversationCache[EncodedMessages] | None = None,
) -> list[Json]:
    """Return the system prompt and the conversation. Messages that earlier requests had, too, may be in it as raw JSON."""
    model = request.model
    has_marks = needs_cache_marks(model)
    encoder = _MessageEncoder(model, always_lists=has_marks)
    encode = cache(model, encoder.encode)
    shape, settled = _choose_id_shape(model), list[Any]()
    if conversations is None or conversations.has_files(request.messages):
        adapted = adapt_files(pair_calls(request.messages, shape), model, _accepts_file, MEDIA_LIMITS)
        messages = _complete([message for message in adapted if encode(message)], model)
    else:
        encoded = conversations.encode(model, request.messages, shape, lambda: EncodedMessages(encode))
        messages = _complete(encoded.messages, model)
        # The settled messages can be sent as they were encoded before, unless `_complete` inserted a message among them.
        if messages[: len(encoded.messages)] == encoded.messages:
            settled, count = encoded.split()
            messages = messages[count:]
    groups = [encode(message) for message in messages]
    for index in list_message_marks(len(groups)) if has_marks else ():
        groups[index] = _mark_last(encoder.encode(messages[index]))
    return [*_to_system(request.system, model), *settled, *chain.from_iterable(groups)]


def _complete(messages: list[ModelMessage], model: Model) -> list[ModelMessage]:
    """Insert the messages without which the API refuses a conversation."""
    messages = ensure_user_messages(messages)
    return _insert_fillers(messages) if _is_mistral(model) else messages


def _choose_id_shape(model: Model) -> ShapeId:
    if "claude" in model.api.id:
        return to_claude_id
    if _is_mistral(model):
        return to_mistral_id
    return limit_id(MAX_ID_LENGTH) if _is_openai(model) else to_plain_id


def _insert_fillers(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Insert an assistant message between a result and the next prompt, which Mistral requires."""
    padded: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, UserModelMessage) and padded and isinstance(padded[-1], ToolModelMessage):
            padded.append(FILLER_MESSAGE)
        padded.append(message)
    return padded


def _to_system(texts: Sequence[str], model: Model) -> list[Json]:
    # OpenCode sends several system messages to every server. Many chat templates accept only one, and only as the first
    # message.
    texts = [text for text in texts if text.strip()]
    if not needs_cache_marks(model):
        return [{"role": "system", "content": "\n\n".join(texts)}] if texts else []
    messages: list[Json] = [{"role": "system", "content": [{"type": "text", "text": text}]} for text in texts]
    for number in list_system_marks(len(messages)):
        _add_cache_mark(messages[number])
    return messages


def _mark_last(group: list[Json]) -> list[Json]:
    _add_cache_mark(group[-1])
    return group


def _add_cache_mark(message: Json) -> None:
    """Mark the last piece of the content, or the message if its content is not a list."""
    content = message.get("content")
    (content[-1] if isinstance(content, list) and content else message)["cache_control"] = CACHE_MARK


class _MessageEncoder:
    """Encodes messages for one model. With `always_lists` even plain text is a list, because only a list takes cache marks."""

    def __init__(self, model: Model, *, always_lists: bool) -> None:
        self._model = model
        self._always_lists = always_lists
        self._key = get_metadata_key(model)

    def encode(self, message: ModelMessage) -> list[Json]:
        """Return the encoded messages that a message becomes; none if it has no content."""
        if not has_content(message):
            return []
        match message:
            case UserModelMessage(content=content):
                return [{"role": "user", "content": self._to_content([_to_piece(item) for item in content])}]
            case AssistantModelMessage():
                return [self._to_assistant(message)]
            case ToolModelMessage():
                return self._to_results(message)

    def _to_content(self, pieces: list[Json]) -> list[Json] | str:
        """Return the non-empty pieces, as one string if all are text: llama-cpp-python fails on a list."""
        pieces = [piece for piece in pieces if "text" not in piece or piece["text"].strip()]
        if self._always_lists or any(piece["type"] != "text" for piece in pieces):
            return pieces
        return "\n\n".join(piece["text"] for piece in pieces)

    def _to_assistant(self, message: AssistantModelMessage) -> Json:
        texts = [item.text for item in message.content if isinstance(item, TextContent) and item.text.strip()]
        calls = [item for item in message.content if isinstance(item, CallContent)]
        pieces = [_to_text("\n\n".join(texts))] if texts else []
        encoded: Json = {"role": "assistant", "content": self._to_content(pieces) if pieces else None}
        encoded |= self._to_reasoning(message, called=bool(calls))
        if calls:
            encoded["tool_calls"] = [_to_call(call) for call in calls]
        return encoded

    def _to_reasoning(self, message: AssistantModelMessage, *, called: bool) -> Json:
        thoughts = [item for item in message.content if isinstance(item, ReasoningContent)]
        details = self._find_details(message)
        if details:
            return {REASONING_DETAILS: details}
        interleaved = self._model.capabilities.interleaved
        if not isinstance(interleaved, Interleaved):
            return {}
        text = "".join(thought.text for thought in thoughts)
        if interleaved.field == REASONING_DETAILS:
            return {REASONING_DETAILS: [{"type": "reasoning.text", "text": text}]} if text else {}
        # Servers that want reasoning back refuse a tool call without any. A call that another model made may have none.
        text = text or (" " if called else "")
        return {interleaved.field: text} if text else {}

    def _find_details(self, message: AssistantModelMessage) -> list[Any]:
        """Return the reasoning details as the server sent them: those of the reasoning, else those of the first other content
        that has any.
        """
        values = [
            (isinstance(item, ReasoningContent), details)
            for item in message.content
            if isinstance(details := get_own_metadata(item.metadata, self._key).get(REASONING_DETAILS), list)
        ]
        from_thoughts = [detail for is_thought, details in values if is_thought for detail in details]
        return from_thoughts or next((details for is_thought, details in values if not is_thought), [])

    def _to_results(self, message: ToolModelMessage) -> list[Json]:
        messages: list[Json] = [
            {
                "role": "tool",
                "tool_call_id": result.call_id,
                "content": self._to_content(
                    [_to_text(result.output if result.output.strip() else NO_OUTPUT)]
                ),
            }
            for result in message.content
        ]
        # A result is text in this API. OpenCode puts images into it as base64, which the model does not see: it sees
        # images of user messages only.
        pieces = [piece for result in message.content for piece in _to_result_files(result)]
        if pieces and _is_mistral(self._model):
            messages.append({"role": "assistant", "content": FILLER_TEXT})
        return [*messages, {"role": "user", "content": pieces}] if pieces else messages


def _to_result_files(result: ResultContent) -> list[Json]:
    if not result.files:
        return []
    return [_to_text(f"Files from the call of {result.tool}:"), *(_to_file(file) for file in result.files)]


def _to_call(call: CallContent) -> Json:
    # Lone surrogates are replaced here. In the body they would be escapes inside a string of JSON, which nothing replaces.
    function = {"name": call.tool, "arguments": to_bytes(call.input).decode()}
    return {"id": call.call_id, "type": "function", "function": function}


def _to_text(text: str) -> Json:
    return {"type": "text", "text": text}


def _to_piece(item: TextContent | MediaContent) -> Json:
    return _to_text(item.text) if isinstance(item, TextContent) else _to_file(item)


def _accepts_file(file: MediaContent) -> bool:
    data = parse_data_url(file.url)
    if data is None:
        return file.url.startswith(("https://", "http://")) and file.mime in IMAGE_TYPES
    return data.mime in IMAGE_TYPES or data.mime == "application/pdf" or data.mime in AUDIO_FORMATS


def _to_file(file: MediaContent) -> Json:
    data = parse_data_url(file.url)
    if data is None:
        return {"type": "image_url", "image_url": {"url": file.url}}
    if find_modality(data.mime) == "audio":
        return {
            "type": "input_audio",
            "input_audio": {"data": data.base64, "format": AUDIO_FORMATS[data.mime]},
        }
    url = f"data:{data.mime};base64,{data.base64}"
    if find_modality(data.mime) == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": file.filename or "file.pdf", "file_data": url}}
