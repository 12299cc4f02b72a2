"""A request in the words of Amazon's Converse, valid whatever the history holds and whoever made the model (pure)."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from weft.model.catalog import Model
from weft.provider.anthropic.request import (
    Kinds,
    alternate,
    asked_output,
    budgeted,
    find_kept,
    goes_on_without_thought,
)
from weft.provider.body import message_marks, system_marks, wants_marks
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
from weft.provider.media import MB, MediaLimits, show_files, to_data
from weft.provider.normalise import (
    NO_OUTPUT,
    NOOP,
    claude_id,
    has_calls,
    input_schema,
    mistral_id,
    pair_calls,
    short_id,
    tool_name,
)

KEY: Final = "bedrock"
MARK: Final = {"cachePoint": {"type": "default"}}
LONGEST_ID: Final = 64
DOCUMENT: Final = "The document is attached."
LIMITS: Final = MediaLimits(each=5 * MB, total=20 * MB, count=20, documents=5, pixels=8000)
PICTURES: Final = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
FILMS: Final = {
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
# What a person may set under `options`; it goes to the API as it is.
PLAIN_OPTIONS: Final = ("guardrailConfig", "performanceConfig", "requestMetadata", "serviceTier")
KINDS: Final = Kinds(
    is_thought=lambda block: "reasoningContent" in block,
    is_call=lambda block: "toolUse" in block,
    is_result=lambda block: "toolResult" in block,
)

Json = dict[str, Any]


def to_body(request: ModelRequest) -> Json:
    """The conversation comes last: as it grows, what was sent before stays a prefix of what is sent next."""
    model, options = request.model, request.parameters.options
    messages = to_messages(request)
    thinking, most = _thinking(request, messages)
    fields = _model_fields(request, thinking)
    limits = _sampling(request, thinks=bool(thinking)) | ({"maxTokens": most} if most else {})
    body: Json = {"inferenceConfig": limits} if limits else {}
    if fields:
        body["additionalModelRequestFields"] = fields
    body |= {name: options[name] for name in PLAIN_OPTIONS if options.get(name) is not None}
    body |= _tools(request, thinks=bool(thinking))
    system: list[list[Json]] = [[{"text": text}] for text in request.system if text.strip()]
    if wants_marks(model):
        for number in system_marks(len(system)):
            system[number].append(MARK)
        for number in message_marks(len(messages)):
            messages[number]["content"].append(MARK)
    if system:
        body["system"] = [block for blocks in system for block in blocks]
    body["messages"] = messages
    return body


# --- how to answer ---


def is_claude(model: Model) -> bool:
    return any(word in model.api.id.lower() for word in ("claude", "anthropic"))


def is_nova(model: Model) -> bool:
    return "nova" in model.api.id.lower()


def _thinking(request: ModelRequest, messages: list[Json]) -> tuple[Json, int | None]:
    """The fields of the model's own that say how it is to think, and the limit of the answer."""
    options, asked = request.parameters.options, request.parameters.max_output
    option = options.get("reasoningConfig", options.get("thinking"))
    if not isinstance(option, Mapping) or option.get("type") not in {"enabled", "adaptive"}:
        return {}, asked
    effort = option.get("maxReasoningEffort")
    if not is_claude(request.model):
        return (_effort(request.model, effort) if effort else {}), asked
    if option["type"] == "adaptive":
        more = {"output_config": {"effort": effort}} if effort else {}
        return {"thinking": {"type": "adaptive"}} | more, asked_output(request)
    if goes_on_without_thought(messages, KINDS):
        return {}, asked
    budget, total = budgeted(request, option)
    return ({"thinking": {"type": "enabled", "budget_tokens": budget}} if budget else {}), total


def _effort(model: Model, effort: str) -> Json:
    if "openai." in model.api.id:
        return {"reasoning_effort": effort}
    return {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": effort}}


def _sampling(request: ModelRequest, *, thinks: bool) -> Json:
    asked = request.parameters
    if thinks and is_claude(request.model):  # it takes none of these beside thinking
        return {}
    if asked.temperature is not None:
        warmth: Json = {"temperature": min(asked.temperature, 1)}
        # Newer models of Anthropic's refuse both at once.
        return warmth if asked.top_p is None or is_claude(request.model) else warmth | {"topP": asked.top_p}
    return {} if asked.top_p is None else {"topP": asked.top_p}


def _model_fields(request: ModelRequest, thinking: Json) -> Json:
    """What only the model behind the API understands, in its own words."""
    model, options = request.model, request.parameters.options
    fields = dict(thinking)
    if request.parameters.top_k is not None and not thinking:
        if is_claude(model):
            fields["top_k"] = request.parameters.top_k
        elif is_nova(model):
            fields["inferenceConfig"] = {"topK": request.parameters.top_k}
    if isinstance(options.get("anthropicBeta"), list):
        fields["anthropic_beta"] = options["anthropicBeta"]
    given = options.get("additionalModelRequestFields")
    return fields | dict(given) if isinstance(given, Mapping) else fields


def _tools(request: ModelRequest, *, thinks: bool) -> Json:
    if not request.tools or request.tool_choice == "none":
        # There is no word for “none”; and a conversation with calls is refused when no tool is told of at all.
        if not has_calls(request.messages):
            return {}
        return {"toolConfig": {"tools": [_tool(spec) for spec in request.tools or (NOOP,)]}}
    config: Json = {"tools": [_tool(spec) for spec in request.tools]}
    forced = request.tool_choice == "required" and not thinks
    if forced and (is_claude(request.model) or is_nova(request.model) or "mistral" in request.model.api.id):
        # Others refuse the field, and choose by themselves. Mistral takes it, but no name in it.
        named = request.forced and "mistral" not in request.model.api.id
        config["toolChoice"] = {"tool": {"name": tool_name(request.forced)}} if named else {"any": {}}
    return {"toolConfig": config}


def _tool(spec: ToolSpec) -> Json:
    about = {"description": spec.about} if spec.about else {}
    return {"toolSpec": {"name": tool_name(spec.name), **about, "inputSchema": {"json": input_schema(spec)}}}


# --- the conversation ---


def to_messages(request: ModelRequest) -> list[Json]:
    model = request.model
    shape = mistral_id if "mistral" in model.api.id else _shaped
    turns = show_files(pair_calls(request.messages, shape), model, _shows, LIMITS)
    return _with_documents_named(alternate(turns, partial(_blocks, full=_is_full(model)), KINDS))


def _is_full(model: Model) -> bool:
    """Whether the result of a call may hold files and say that it failed; other models take only text for one."""
    return is_claude(model) or is_nova(model)


def _blocks(turn: ModelMessage, *, full: bool) -> list[Json]:
    match turn:
        case UserTurn(content=content):
            return [block for item in content for block in _asked(item)]
        case AssistantTurn(content=content):
            return [block for item in content for block in _said(item)]
        case ToolTurn(content=content):
            files = [] if full else [_file(file) for item in content for file in item.files]
            return [*(_result(item, full=full) for item in content), *files]


def _result(item: ResultContent, *, full: bool) -> Json:
    files = [_file(file) for file in item.files] if full else []
    result: Json = {"toolUseId": item.call_id, "content": [*_text(item.output), *files] or _text(NO_OUTPUT)}
    if item.error and full:
        result["status"] = "error"
    return {"toolResult": result}


def _shaped(id: str) -> str:
    return short_id(LONGEST_ID)(claude_id(id))


def _text(text: str) -> list[Json]:
    return [{"text": text}] if text.strip() else []


def _asked(item: TextContent | FileContent) -> list[Json]:
    return _text(item.text) if isinstance(item, TextContent) else [_file(item)]


def _said(item: TextContent | ReasoningContent | CallContent) -> list[Json]:
    match item:
        case TextContent(text=text):
            return _text(text)
        case ReasoningContent():
            return _thought(item)
        case CallContent():
            return [{"toolUse": {"toolUseId": item.call_id, "name": item.tool, "input": item.input}}]


def _thought(item: ReasoningContent) -> list[Json]:
    kept = find_kept(item, KEY)
    if kept is None:
        return []
    if kept.redacted:
        return [{"reasoningContent": {"redactedContent": kept.redacted}}]
    return [{"reasoningContent": {"reasoningText": {"text": kept.text, "signature": kept.signature}}}]


def _shows(file: FileContent) -> bool:
    """The API fetches nothing but what lies in Amazon's own store."""
    data = to_data(file.url)
    return data is not None and (data.mime in PICTURES or data.mime in FILMS or data.mime == PDF)


def _file(file: FileContent) -> Json:
    data = to_data(file.url)
    mime, source = (data.mime, {"bytes": data.base64}) if data is not None else (file.mime, {"bytes": ""})
    if mime in PICTURES:
        return {"image": {"format": PICTURES[mime], "source": source}}
    if mime in FILMS:
        return {"video": {"format": FILMS[mime], "source": source}}
    return {"document": {"format": "pdf", "name": "", "source": source}}


def _with_documents_named(messages: list[Json]) -> list[Json]:
    """Each document by its number; and beside one in a message there has to be a word."""
    count = 0
    for message in messages:
        blocks: list[Json] = message["content"]
        inner = [each for block in blocks for each in block.get("toolResult", {}).get("content", ())]
        for block in (*blocks, *inner):
            if "document" in block:
                count += 1
                block["document"]["name"] = f"document-{count}"
        if any("document" in block for block in blocks) and not any("text" in block for block in blocks):
            blocks.append({"text": DOCUMENT})
    return messages
