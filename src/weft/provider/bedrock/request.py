"""Build a request for Amazon's Converse API that is valid for any history and any model behind it (pure)."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from weft.model.catalog import Model
from weft.provider.anthropic.request import (
    BlockKinds,
    MergedMessages,
    compute_thinking_budget,
    continues_without_thinking,
    find_signed_thought,
    get_max_output,
)
from weft.provider.body import list_message_marks, list_system_marks, needs_cache_marks
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
from weft.provider.media import MB, MediaLimits, adapt_files, parse_data_url
from weft.provider.normalise import (
    NO_OUTPUT,
    NOOP_TOOL,
    has_calls,
    limit_id,
    pair_calls,
    to_claude_id,
    to_input_schema,
    to_mistral_id,
    to_tool_name,
)

METADATA_KEY: Final = "bedrock"
CACHE_POINT: Final = {"cachePoint": {"type": "default"}}
MAX_ID_LENGTH: Final = 64
DOCUMENT_TEXT: Final = "The document is attached."
MEDIA_LIMITS: Final = MediaLimits(
    max_file_chars=5 * MB, max_total_chars=20 * MB, max_files=20, max_documents=5, max_side=8000
)
IMAGE_FORMATS: Final = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
VIDEO_FORMATS: Final = {
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/quicktime": "mov",
    "video/x-matroska": "mkv",
    "video/mpeg": "mpeg",
    "video/x-flv": "flv",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}
PDF: Final = "application/pdf"
# Options that are sent to the API unchanged.
PLAIN_OPTIONS: Final = ("guardrailConfig", "performanceConfig", "requestMetadata", "serviceTier")
BLOCK_KINDS: Final = BlockKinds(
    is_thought=lambda block: "reasoningContent" in block,
    is_call=lambda block: "toolUse" in block,
    is_result=lambda block: "toolResult" in block,
)

Json = dict[str, Any]


def to_body(request: ModelRequest) -> Json:
    """Build the body. The conversation comes last, so that each request begins with the bytes of the one before it."""
    model, options = request.model, request.parameters.options
    messages = to_messages(request)
    thinking, max_tokens = _to_thinking(request, messages)
    fields = _to_model_fields(request, thinking)
    inference_config = _to_sampling(request, has_thinking=bool(thinking)) | (
        {"maxTokens": max_tokens} if max_tokens else {}
    )
    body: Json = {"inferenceConfig": inference_config} if inference_config else {}
    if fields:
        body["additionalModelRequestFields"] = fields
    body |= {name: options[name] for name in PLAIN_OPTIONS if options.get(name) is not None}
    body |= _to_tools(request, has_thinking=bool(thinking))
    system: list[list[Json]] = [[{"text": text}] for text in request.system if text.strip()]
    if needs_cache_marks(model):
        for number in list_system_marks(len(system)):
            system[number].append(CACHE_POINT)
        for number in list_message_marks(len(messages)):
            messages[number]["content"].append(CACHE_POINT)
    if system:
        body["system"] = [block for blocks in system for block in blocks]
    body["messages"] = messages
    return body


# --- settings ---


def is_claude(model: Model) -> bool:
    return any(word in model.api.id.lower() for word in ("claude", "anthropic"))


def is_nova(model: Model) -> bool:
    return "nova" in model.api.id.lower()


def _to_thinking(request: ModelRequest, messages: list[Json]) -> tuple[Json, int | None]:
    """Return the model-specific fields for thinking, and the output limit."""
    options, max_output = request.parameters.options, request.parameters.max_output
    option = options.get("reasoningConfig", options.get("thinking"))
    if not isinstance(option, Mapping) or option.get("type") not in {"enabled", "adaptive"}:
        return {}, max_output
    effort = option.get("maxReasoningEffort")
    if not is_claude(request.model):
        return (_to_effort(request.model, effort) if effort else {}), max_output
    if option["type"] == "adaptive":
        output_config = {"output_config": {"effort": effort}} if effort else {}
        return {"thinking": {"type": "adaptive"}} | output_config, get_max_output(request)
    if continues_without_thinking(messages, BLOCK_KINDS):
        return {}, max_output
    budget, total = compute_thinking_budget(request, option)
    return ({"thinking": {"type": "enabled", "budget_tokens": budget}} if budget else {}), total


def _to_effort(model: Model, effort: str) -> Json:
    if "openai." in model.api.id:
        return {"reasoning_effort": effort}
    return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": effort}}


def _to_sampling(request: ModelRequest, *, has_thinking: bool) -> Json:
    parameters = request.parameters
    if has_thinking and is_claude(request.model):  # with thinking it accepts none of these
        return {}
    if parameters.temperature is not None:
        sampling: Json = {"temperature": min(parameters.temperature, 1)}
        # Newer Claude models refuse both.
        return (
            sampling
            if parameters.top_p is None or is_claude(request.model)
            else sampling | {"topP": parameters.top_p}
        )
    return {} if parameters.top_p is None else {"topP": parameters.top_p}


def _to_model_fields(request: ModelRequest, thinking: Json) -> Json:
    """Return the fields that only the model behind the API understands."""
    model, options = request.model, request.parameters.options
    fields = dict(thinking)
    if request.parameters.top_k is not None and not thinking:
        if is_claude(model):
            fields["top_k"] = request.parameters.top_k
        elif is_nova(model):
            fields["inferenceConfig"] = {"topK": request.parameters.top_k}
    if isinstance(options.get("anthropicBeta"), list):
        fields["anthropic_beta"] = options["anthropicBeta"]
    extra = options.get("additionalModelRequestFields")
    return fields | dict(extra) if isinstance(extra, Mapping) else fields


def _to_tools(request: ModelRequest, *, has_thinking: bool) -> Json:
    if not request.tools or request.tool_choice == "none":
        # The API has no "none", and refuses a conversation with tool calls if no tool is declared.
        if not has_calls(request.messages):
            return {}
        return {"toolConfig": {"tools": [_to_tool(spec) for spec in request.tools or (NOOP_TOOL,)]}}
    config: Json = {"tools": [_to_tool(spec) for spec in request.tools]}
    forced = request.tool_choice == "required" and not has_thinking
    if forced and (is_claude(request.model) or is_nova(request.model) or "mistral" in request.model.api.id):
        # Other models refuse the field. Mistral accepts it, but not with a tool's name.
        names_tool = request.forced and "mistral" not in request.model.api.id
        config["toolChoice"] = {"tool": {"name": to_tool_name(request.forced)}} if names_tool else {"any": {}}
    return {"toolConfig": config}


def _to_tool(spec: ToolSpec) -> Json:
    about = {"description": spec.about} if spec.about else {}
    return {
        "toolSpec": {"name": to_tool_name(spec.name), **about, "inputSchema": {"json": to_input_schema(spec)}}
    }


# --- the conversation ---


def to_messages(request: ModelRequest) -> list[Json]:
    model = request.model
    shape = to_mistral_id if "mistral" in model.api.id else _shape_id
    messages = adapt_files(pair_calls(request.messages, shape), model, _accepts_file, MEDIA_LIMITS)
    encoded = MergedMessages(partial(_to_blocks, full_results=_supports_full_results(model)), BLOCK_KINDS)
    for message in messages:
        encoded.add(message)
    return _name_documents(encoded.to_messages())


def _supports_full_results(model: Model) -> bool:
    """Return True if results may hold files and an error status. Other models accept text only."""
    return is_claude(model) or is_nova(model)


def _to_blocks(message: ModelMessage, *, full_results: bool) -> list[Json]:
    match message:
        case UserModelMessage(content=content):
            return [block for item in content for block in _to_user_blocks(item)]
        case AssistantModelMessage(content=content):
            return [block for item in content for block in _to_assistant_blocks(item)]
        case ToolModelMessage(content=content):
            files = [] if full_results else [_to_file(file) for item in content for file in item.files]
            return [*(_to_result(item, full_results=full_results) for item in content), *files]


def _to_result(item: ResultContent, *, full_results: bool) -> Json:
    files = [_to_file(file) for file in item.files] if full_results else []
    result: Json = {
        "toolUseId": item.call_id,
        "content": [*_to_text(item.output), *files] or _to_text(NO_OUTPUT),
    }
    if item.error and full_results:
        result["status"] = "error"
    return {"toolResult": result}


def _shape_id(id: str) -> str:
    return limit_id(MAX_ID_LENGTH)(to_claude_id(id))


def _to_text(text: str) -> list[Json]:
    return [{"text": text}] if text.strip() else []


def _to_user_blocks(item: TextContent | MediaContent) -> list[Json]:
    return _to_text(item.text) if isinstance(item, TextContent) else [_to_file(item)]


def _to_assistant_blocks(item: TextContent | ReasoningContent | CallContent) -> list[Json]:
    match item:
        case TextContent(text=text):
            return _to_text(text)
        case ReasoningContent():
            return _to_thinking_blocks(item)
        case CallContent():
            return [{"toolUse": {"toolUseId": item.call_id, "name": item.tool, "input": item.input}}]


def _to_thinking_blocks(item: ReasoningContent) -> list[Json]:
    thought = find_signed_thought(item, METADATA_KEY)
    if thought is None:
        return []
    if thought.redacted:
        return [{"reasoningContent": {"redactedContent": thought.redacted}}]
    return [{"reasoningContent": {"reasoningText": {"text": thought.text, "signature": thought.signature}}}]


def _accepts_file(file: MediaContent) -> bool:
    """Accept inline files only: the API fetches nothing except from S3."""
    data = parse_data_url(file.url)
    return data is not None and (data.mime in IMAGE_FORMATS or data.mime in VIDEO_FORMATS or data.mime == PDF)


def _to_file(file: MediaContent) -> Json:
    data = parse_data_url(file.url)
    mime, source = (data.mime, {"bytes": data.base64}) if data is not None else (file.mime, {"bytes": ""})
    if mime in IMAGE_FORMATS:
        return {"image": {"format": IMAGE_FORMATS[mime], "source": source}}
    if mime in VIDEO_FORMATS:
        return {"video": {"format": VIDEO_FORMATS[mime], "source": source}}
    return {"document": {"format": "pdf", "name": "", "source": source}}


def _name_documents(messages: list[Json]) -> list[Json]:
    """Number the documents, and add a text to messages that hold a document without one: the API requires both."""
    count = 0
    for message in messages:
        blocks: list[Json] = message["content"]
        result_blocks = [each for block in blocks for each in block.get("toolResult", {}).get("content", ())]
        for block in (*blocks, *result_blocks):
            if "document" in block:
                count += 1
                block["document"]["name"] = f"document-{count}"
        if any("document" in block for block in blocks) and not any("text" in block for block in blocks):
            blocks.append({"text": DOCUMENT_TEXT})
    return messages
