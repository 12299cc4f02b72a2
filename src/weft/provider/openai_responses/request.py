"""Build a request for OpenAI's Responses API that is valid for any history (pure).

Every request carries everything and refers to nothing on the server: reasoning is sent back encrypted, without item
ids.
"""

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final

from weft.provider.body import CacheTurns, encode_uncached, to_bytes
from weft.provider.contract import (
    AssistantTurn,
    CallContent,
    MediaContent,
    Metadata,
    ModelMessage,
    ModelRequest,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolSpec,
    ToolTurn,
    UserTurn,
)
from weft.provider.media import MB, DataUrl, MediaLimits, adapt_files, get_modality, parse_data_url
from weft.provider.normalise import (
    CONTINUE_TEXT,
    get_own_metadata,
    limit_id,
    pair_calls,
    to_input_schema,
    to_tool_name,
)

KEY: Final = "openai"
ENCRYPTED_CONTENT: Final = "reasoning.encrypted_content"
MAX_ID_LENGTH: Final = 64
MIN_OUTPUT: Final = 16
PHASES: Final = ("commentary", "final_answer")
IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
LIMITS: Final = MediaLimits(each=50 * MB, total=50 * MB, count=500)

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


def to_body(request: ModelRequest, cache: CacheTurns = encode_uncached) -> Json:
    """Build the body. The conversation comes last, so that each request begins with the bytes of the one before it."""
    asked = request.parameters
    reasons = _reasons(request)
    body: Json = {"model": request.model.api.id, "stream": True, "store": asked.options.get("store") is True}
    if asked.max_output is not None:
        body["max_output_tokens"] = max(asked.max_output, MIN_OUTPUT)
    body |= _to_sampling(request, reasons=reasons)
    if reasons:
        body |= _to_reasoning(asked.options)
    if text := _to_text_options(request):
        body["text"] = text
    body |= _to_plain_options(asked.options)
    if request.tools:
        body["tools"] = [_to_tool(name, tool) for name, tool in map_tools(request).items()]
        named = {"type": "function", "name": to_tool_name(request.forced)} if request.forced else None
        body["tool_choice"] = named or request.tool_choice
    role = "developer" if reasons else "system"
    system = [{"role": role, "content": words} for words in request.system if words]
    body["input"] = [
        *system,
        *(_to_items(request, cache) or [_to_message([TextContent(text=CONTINUE_TEXT)])]),
    ]
    return body


def _to_text_options(request: ModelRequest) -> Json:
    """Return the `text` field: the verbosity and the format of the answer."""
    verbosity, wanted = request.parameters.options.get("textVerbosity"), request.format
    text: Json = {"verbosity": verbosity} if verbosity else {}
    if wanted is not None:
        schema = {"name": wanted.name, "schema": wanted.schema, "strict": wanted.strict}
        text["format"] = {"type": "json_schema", **schema}
    return text


def map_tools(request: ModelRequest) -> dict[str, ToolSpec]:
    """Return the tools by their names on the wire."""
    return {to_tool_name(tool.name): tool for tool in request.tools}


def _reasons(request: ModelRequest) -> bool:
    """Return True if the model reasons, according to the catalogue or because an option says how much."""
    options = request.parameters.options
    return request.model.capabilities.reasoning or any(
        options.get(key) is not None for key in ("reasoningEffort", "reasoningSummary")
    )


def _to_sampling(request: ModelRequest, *, reasons: bool) -> Json:
    # A reasoning model refuses these unless its effort is "none".
    if reasons and request.parameters.options.get("reasoningEffort") != "none":
        return {}
    wanted = {"temperature": request.parameters.temperature, "top_p": request.parameters.top_p}
    return {name: value for name, value in wanted.items() if value is not None}


def _to_reasoning(options: Json) -> Json:
    wanted = {"effort": options.get("reasoningEffort"), "summary": options.get("reasoningSummary")}
    values = {name: value for name, value in wanted.items() if value is not None}
    asked = options.get("include")
    extra = [name for name in asked if isinstance(name, str)] if isinstance(asked, list) else []
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


def _to_items(request: ModelRequest, cache: CacheTurns) -> list[Json]:
    encode = cache(request.model, _to_turn_items)
    paired = pair_calls(request.messages, limit_id(MAX_ID_LENGTH))
    return [
        item for turn in adapt_files(paired, request.model, _accepts_file, LIMITS) for item in encode(turn)
    ]


def _to_turn_items(turn: ModelMessage) -> list[Json]:
    match turn:
        case UserTurn():
            content = [part for part in turn.content if isinstance(part, MediaContent) or part.text]
            return [_to_message(content)] if content else []
        case AssistantTurn():
            return _to_answer_items(turn)
        case ToolTurn():
            return [_to_output(result) for result in turn.content]


def _to_message(content: Iterable[TextContent | MediaContent]) -> Json:
    return {"role": "user", "content": [_to_input(part) for part in content]}


def _to_answer_items(turn: AssistantTurn) -> list[Json]:
    """Return what the model said and called, with each thought before what followed from it. A last thought is dropped."""
    items: list[Json] = []
    thoughts: list[ReasoningContent] = []
    for part in turn.content:
        match part:
            case ReasoningContent():
                thoughts.append(part)
            case TextContent() if part.text:
                items += [*_to_reasoning_items(thoughts), _to_said(part)]
                thoughts = []
            case CallContent():
                items += [*_to_reasoning_items(thoughts), _to_call(part)]
                thoughts = []
            case _:
                pass
    return items


def _to_said(part: TextContent) -> Json:
    content: Json = {"role": "assistant", "content": [{"type": "output_text", "text": part.text}]}
    phase = _get_metadata(part.metadata).get("phase")
    return content | ({"phase": phase} if phase in PHASES else {})


def _to_call(part: CallContent) -> Json:
    return {
        "type": "function_call",
        "call_id": part.call_id,
        "name": part.tool,
        "arguments": to_bytes(part.input).decode(),
    }


def _to_reasoning_items(thoughts: Iterable[ReasoningContent]) -> Iterable[Json]:
    """Return one item for all parts of a summary. Drop thoughts without encrypted content: the model cannot use them."""
    items: dict[str, Json] = {}
    for number, part in enumerate(thoughts):
        kept = _get_metadata(part.metadata)
        id, encrypted = kept.get("itemId"), kept.get("reasoningEncryptedContent")
        item = items.setdefault(
            id if isinstance(id, str) and id else f"#{number}",
            {"type": "reasoning", "summary": [], "encrypted_content": ""},
        )
        if part.text:
            item["summary"].append({"type": "summary_text", "text": part.text})
        if isinstance(encrypted, str) and encrypted:
            item["encrypted_content"] = encrypted
    return [item for item in items.values() if item["encrypted_content"]]


def _get_metadata(metadata: Metadata | None) -> Metadata:
    return get_own_metadata(metadata, KEY)


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
    known = mime in IMAGE_TYPES or get_modality(mime) == "pdf"
    return known and (file.url.startswith(("https://", "http://")) if data is None else _is_base64(data))


def _is_base64(data: DataUrl) -> bool:
    try:
        return bool(base64.b64decode(data.base64, validate=True))
    except (binascii.Error, ValueError):
        return False


def _to_input(part: TextContent | MediaContent) -> Json:
    if isinstance(part, TextContent):
        return {"type": "input_text", "text": part.text}
    data = parse_data_url(part.url)
    url = part.url if data is None else f"data:{data.mime};base64,{data.base64}"
    if get_modality(data.mime if data is not None else part.mime) == "image":
        return {"type": "input_image", "image_url": url}
    if data is None:
        return {"type": "input_file", "file_url": url}
    return {"type": "input_file", "filename": part.filename or "document.pdf", "file_data": url}
