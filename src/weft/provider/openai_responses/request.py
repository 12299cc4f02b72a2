"""Build a request for OpenAI's Responses API that is valid for any history (pure).

Every request is complete: it does not refer to anything that the server has stored. Reasoning is sent back encrypted,
without item ids.
"""

from collections.abc import Iterable
from typing import Any, Final

from weft.provider.body import CacheMessages, encode_uncached, to_bytes
from weft.provider.chunk import Metadata
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
    CONTINUE_TEXT,
    get_own_metadata,
    limit_id,
    pair_calls,
    to_input_schema,
    to_tool_name,
)

METADATA_KEY: Final = "openai"
ENCRYPTED_CONTENT: Final = "reasoning.encrypted_content"
MAX_ID_LENGTH: Final = 64
MIN_MAX_OUTPUT: Final = 16
PHASES: Final = ("commentary", "final_answer")
IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
MEDIA_LIMITS: Final = MediaLimits(max_file_chars=50 * MB, max_total_chars=50 * MB, max_files=500)

# Options that may be set, and their names in the API. Other options are not sent.
PLAIN_OPTIONS: Final = {
    "promptCacheKey": "prompt_cache_key",
    "promptCacheRetention": "prompt_cache_retention",
    "parallelToolCalls": "parallel_tool_calls",
    "maxToolCalls": "max_tool_calls",
    "serviceTier": "service_tier",
    "safetyIdentifier": "safety_identifier",
    "truncation": "truncation",
    "metadata": "metadata",
    "user": "user",
}

Json = dict[str, Any]


def to_body(
    request: ModelRequest,
    cache: CacheMessages = encode_uncached,
    conversations: ConversationCache[EncodedMessages] | None = None,
) -> Json:
    """Build the body. The conversation comes last, so that each request begins with the bytes of the one before it.

    A conversation with files is not looked up in `conversations`.
    """
    parameters = request.parameters
    is_reasoning = _is_reasoning(request)
    body: Json = {
        "model": request.model.api.id,
        "stream": True,
        "store": parameters.options.get("store") is True,
    }
    if parameters.max_output is not None:
        body["max_output_tokens"] = max(parameters.max_output, MIN_MAX_OUTPUT)
    body |= _to_sampling(request, is_reasoning=is_reasoning)
    if is_reasoning:
        body |= _to_reasoning(parameters.options)
    if text := _to_text_options(request):
        body["text"] = text
    body |= _to_plain_options(parameters.options)
    if request.tools:
        body["tools"] = [_to_tool(name, tool) for name, tool in map_tools(request).items()]
        forced = {"type": "function", "name": to_tool_name(request.forced)} if request.forced else None
        body["tool_choice"] = forced or request.tool_choice
    role = "developer" if is_reasoning else "system"
    system = [{"role": role, "content": text} for text in request.system if text]
    body["input"] = [
        *system,
        *(_to_items(request, cache, conversations) or [_to_user_message([TextContent(text=CONTINUE_TEXT)])]),
    ]
    return body


def _to_text_options(request: ModelRequest) -> Json:
    """Return the `text` field: the verbosity and the format of the answer."""
    verbosity, format = request.parameters.options.get("textVerbosity"), request.format
    text: Json = {"verbosity": verbosity} if verbosity else {}
    if format is not None:
        schema = {"name": format.name, "schema": format.schema, "strict": format.strict}
        text["format"] = {"type": "json_schema", **schema}
    return text


def map_tools(request: ModelRequest) -> dict[str, ToolSpec]:
    """Return the tools by their names on the wire."""
    return {to_tool_name(tool.name): tool for tool in request.tools}


def _is_reasoning(request: ModelRequest) -> bool:
    """Return True if the model reasons, according to the catalogue or because an option says how much."""
    options = request.parameters.options
    return request.model.capabilities.reasoning or any(
        options.get(key) is not None for key in ("reasoningEffort", "reasoningSummary")
    )


def _to_sampling(request: ModelRequest, *, is_reasoning: bool) -> Json:
    # A reasoning model refuses these unless its effort is "none".
    if is_reasoning and request.parameters.options.get("reasoningEffort") != "none":
        return {}
    fields = {"temperature": request.parameters.temperature, "top_p": request.parameters.top_p}
    return {name: value for name, value in fields.items() if value is not None}


def _to_reasoning(options: Json) -> Json:
    fields = {"effort": options.get("reasoningEffort"), "summary": options.get("reasoningSummary")}
    values = {name: value for name, value in fields.items() if value is not None}
    configured = options.get("include")
    extra = [name for name in configured if isinstance(name, str)] if isinstance(configured, list) else []
    # OpenCode requests encrypted reasoning from some providers only, and loses the reasoning of the others.
    include = list(dict.fromkeys([ENCRYPTED_CONTENT, *extra]))
    return ({"reasoning": values} if values else {}) | {"include": include}


def _to_plain_options(options: Json) -> Json:
    values = {name: options[key] for key, name in PLAIN_OPTIONS.items() if options.get(key) is not None}
    if isinstance(key := values.get("prompt_cache_key"), str):
        values["prompt_cache_key"] = limit_id(MAX_ID_LENGTH)(key)
    return values


def _to_tool(name: str, tool: ToolSpec) -> Json:
    return {
        "type": "function",
        "name": name,
        "description": tool.about,
        "parameters": to_input_schema(tool),
        "strict": False,
    }


# --- the conversation ---


def _to_items(
    request: ModelRequest, cache: CacheMessages, conversations: ConversationCache[EncodedMessages] | None
) -> list[Any]:
    model, shape, settled = request.model, limit_id(MAX_ID_LENGTH), list[Any]()
    encode = cache(model, _to_message_items)
    if conversations is None or conversations.has_files(request.messages):
        messages = adapt_files(pair_calls(request.messages, shape), model, _accepts_file, MEDIA_LIMITS)
    else:
        encoded = conversations.encode(model, request.messages, shape, lambda: EncodedMessages(encode))
        settled, count = encoded.split()
        messages = encoded.messages[count:]
    return [*settled, *(item for message in messages for item in encode(message))]


def _to_message_items(message: ModelMessage) -> list[Json]:
    match message:
        case UserModelMessage():
            content = [part for part in message.content if isinstance(part, MediaContent) or part.text]
            return [_to_user_message(content)] if content else []
        case AssistantModelMessage():
            return _to_answer_items(message)
        case ToolModelMessage():
            return [_to_output(result) for result in message.content]


def _to_user_message(content: Iterable[TextContent | MediaContent]) -> Json:
    return {"role": "user", "content": [_to_input(part) for part in content]}


def _to_answer_items(message: AssistantModelMessage) -> list[Json]:
    """Return the text and the calls of an answer, each with the thoughts before it. Thoughts at the end are dropped."""
    items: list[Json] = []
    thoughts: list[ReasoningContent] = []
    for part in message.content:
        match part:
            case ReasoningContent():
                thoughts.append(part)
            case TextContent() if part.text:
                items += [*_to_reasoning_items(thoughts), _to_answer_message(part)]
                thoughts = []
            case CallContent():
                items += [*_to_reasoning_items(thoughts), _to_call(part)]
                thoughts = []
            case _:
                pass
    return items


def _to_answer_message(part: TextContent) -> Json:
    content: Json = {"role": "assistant", "content": [{"type": "output_text", "text": part.text}]}
    phase = _get_own_metadata(part.metadata).get("phase")
    return content | ({"phase": phase} if phase in PHASES else {})


def _to_call(part: CallContent) -> Json:
    return {
        "type": "function_call",
        "call_id": part.call_id,
        "name": part.tool,
        "arguments": to_bytes(part.input).decode(),
    }


def _to_reasoning_items(thoughts: Iterable[ReasoningContent]) -> Iterable[Json]:
    """Join thoughts that came in one item. Drop items without encrypted content: the model cannot use them."""
    items: dict[str, Json] = {}
    for number, part in enumerate(thoughts):
        metadata = _get_own_metadata(part.metadata)
        id, encrypted = metadata.get("itemId"), metadata.get("reasoningEncryptedContent")
        item = items.setdefault(
            id if isinstance(id, str) and id else f"#{number}",
            {"type": "reasoning", "summary": [], "encrypted_content": ""},
        )
        if part.text:
            item["summary"].append({"type": "summary_text", "text": part.text})
        if isinstance(encrypted, str) and encrypted:
            item["encrypted_content"] = encrypted
    return [item for item in items.values() if item["encrypted_content"]]


def _get_own_metadata(metadata: Metadata | None) -> Metadata:
    return get_own_metadata(metadata, METADATA_KEY)


def _to_output(result: ResultContent) -> Json:
    files = [_to_input(file) for file in result.files]
    content = [_to_input(TextContent(text=result.output))] if result.output else []
    return {
        "type": "function_call_output",
        "call_id": result.call_id,
        "output": [*content, *files] if files else result.output,
    }


# --- files ---


def _accepts_file(file: MediaContent) -> bool:
    """Accept images and PDFs, inline or at a URL that the server can fetch."""
    data = parse_data_url(file.url)
    mime = data.mime if data is not None else file.mime
    is_supported = mime in IMAGE_TYPES or find_modality(mime) == "pdf"
    return is_supported and (data is not None or file.url.startswith(("https://", "http://")))


def _to_input(part: TextContent | MediaContent) -> Json:
    if isinstance(part, TextContent):
        return {"type": "input_text", "text": part.text}
    data = parse_data_url(part.url)
    url = part.url if data is None else f"data:{data.mime};base64,{data.base64}"
    if find_modality(data.mime if data is not None else part.mime) == "image":
        return {"type": "input_image", "image_url": url}
    if data is None:
        return {"type": "input_file", "file_url": url}
    return {"type": "input_file", "filename": part.filename or "document.pdf", "file_data": url}
