"""A request in the words of Anthropic's Messages API, valid whatever the history holds (pure)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from weft.provider.cache_points import MARK, message_marks, system_marks
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
    ends_with_question,
    has_calls,
    own_metadata,
    pair_calls,
    tool_name,
)

KEY: Final = "anthropic"
DEFAULT_OUTPUT: Final = 4096
LEAST_BUDGET: Final = 1024
LEAST_TOP_P: Final = 0.95
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
LIMITS: Final = MediaLimits(
    each=5 * MB, total=24 * MB, count=100, pixels=8000, many=20, pixels_when_many=2000
)
THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
# Fields of the API a person may set under `options`; others mean nothing to it, and it refuses what it does not know.
PLAIN_OPTIONS: Final = (
    "metadata",
    "service_tier",
    "stop_sequences",
    "container",
    "context_management",
    "mcp_servers",
    "output_config",
    "speed",
)

Json = dict[str, Any]


def to_body(request: ModelRequest) -> Json:
    """The conversation comes last: as it grows, what was sent before stays a prefix of what is sent next."""
    messages = to_messages(request)
    thinking, max_tokens = _thinking(request, messages)
    body: Json = {"model": request.model.api.id, "stream": True, "max_tokens": max_tokens}
    body |= _sampling(request, thinks=thinking is not None)
    if thinking is not None:
        body["thinking"] = thinking
    body |= _options(request.parameters.options)
    body |= _tools(request, thinks=thinking is not None)
    system: list[Json] = [{"type": "text", "text": text} for text in request.system if text.strip()]
    for number in system_marks(len(system)):
        system[number] |= {"cache_control": MARK}
    if system:
        body["system"] = system
    for number in message_marks(len(messages)):
        _mark(messages[number]["content"])
    body["messages"] = messages
    return body


# --- how to answer ---


def _thinking(request: ModelRequest, messages: Sequence[Json]) -> tuple[Json | None, int]:
    """How the model is to think, and the limit of the answer, in which the API counts the thinking."""
    most = request.model.limit.output
    asked = request.parameters.max_output or most or DEFAULT_OUTPUT
    option = request.parameters.options.get("thinking")
    if not isinstance(option, Mapping) or option.get("type") not in {"enabled", "adaptive"}:
        return ({"type": "disabled"} if option == {"type": "disabled"} else None), asked
    if _mid_turn_without_thought(messages):
        # A turn that began without thinking (another model's, or one whose thoughts are gone) goes on without:
        # the API refuses it otherwise.
        return None, asked
    if option["type"] == "adaptive":
        return {"type": "adaptive"} | _picked(option, ("display",)), asked
    budget = option.get("budgetTokens", option.get("budget_tokens"))
    budget = budget if isinstance(budget, int) else LEAST_BUDGET
    total = min(asked + budget, most) if most else asked + budget
    budget = min(budget, total - 1)
    if budget < LEAST_BUDGET:
        return None, asked
    return {"type": "enabled", "budget_tokens": budget} | _picked(option, ("display",)), total


def _mid_turn_without_thought(messages: Sequence[Json]) -> bool:
    if len(messages) < 2 or messages[-1]["content"][0]["type"] != "tool_result":  # noqa: PLR2004 - a call and its result
        return False
    return messages[-2]["content"][0]["type"] not in THOUGHTS


def _sampling(request: ModelRequest, *, thinks: bool) -> Json:
    asked = request.parameters
    if thinks:  # the API takes none of these beside thinking, but for a high `top_p`
        return {"top_p": asked.top_p} if asked.top_p is not None and asked.top_p >= LEAST_TOP_P else {}
    if asked.temperature is not None:  # newer models refuse both at once
        return {"temperature": min(asked.temperature, 1)} | _given(top_k=asked.top_k)
    return _given(top_p=asked.top_p, top_k=asked.top_k)


def _options(options: Mapping[str, Any]) -> Json:
    body = _picked(options, PLAIN_OPTIONS)
    if isinstance(options.get("effort"), str):
        body["output_config"] = {**body.get("output_config", {}), "effort": options["effort"]}
    return body


def _tools(request: ModelRequest, *, thinks: bool) -> Json:
    if not request.tools:
        # The API refuses a conversation with calls when it is told of no tool at all.
        if has_calls(request.messages):
            return {"tools": [_tool(NOOP)], "tool_choice": {"type": "none"}}
        return {}
    choice: Json = {"type": {"auto": "auto", "none": "none", "required": "any"}[request.tool_choice]}
    if thinks and choice["type"] == "any":
        choice = {"type": "auto"}
    if request.parameters.options.get("disableParallelToolUse") and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    return {"tools": [_tool(spec) for spec in request.tools], "tool_choice": choice}


def _tool(spec: ToolSpec) -> Json:
    schema = spec.schema if spec.schema.get("type") == "object" else {**spec.schema, "type": "object"}
    return {"name": tool_name(spec.name), "description": spec.about, "input_schema": schema}


# --- the conversation ---


def to_messages(request: ModelRequest) -> list[Json]:
    """Turns of one role after another are one message: the results of calls and what the person said next."""
    turns = show_files(pair_calls(request.messages, claude_id), request.model, _shows, LIMITS)
    messages: list[Json] = []
    for turn in ends_with_question(_worth_sending(turns)):
        role = "assistant" if isinstance(turn, AssistantTurn) else "user"
        blocks = _blocks(turn)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(blocks)
        else:
            messages.append({"role": role, "content": blocks})
    for message in messages:
        if message["role"] == "assistant":
            message["content"] = _calls_last(message["content"])
    return messages


def _worth_sending(turns: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Without what says nothing: the API refuses a message without content, and one of thoughts alone."""
    return [turn for turn in turns if any(block["type"] not in THOUGHTS for block in _blocks(turn))]


def _calls_last(blocks: list[Json]) -> list[Json]:
    """What was said after a call stands before it: the results have to follow the calls at once."""
    said = [block for block in blocks if block["type"] != "tool_use"]
    calls = [block for block in blocks if block["type"] == "tool_use"]
    while not calls and said[-1]["type"] in THOUGHTS:  # a message may not end in a thought
        said.pop()
    return [*said, *calls]


def _blocks(turn: ModelMessage) -> list[Json]:
    match turn:
        case UserTurn(content=content):
            return [
                block
                for item in content
                for block in (_text(item.text) if isinstance(item, TextContent) else _file(item))
            ]
        case AssistantTurn(content=content):
            return [block for item in content for block in _said(item)]
        case ToolTurn(content=content):
            return [_result(item) for item in content]


def _text(text: str) -> list[Json]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _said(item: TextContent | ReasoningContent | CallContent) -> list[Json]:
    match item:
        case TextContent(text=text):
            return _text(text)
        case ReasoningContent():
            return _thought(item)
        case CallContent():
            return [{"type": "tool_use", "id": item.call_id, "name": item.tool, "input": item.input}]


def _thought(item: ReasoningContent) -> list[Json]:
    """Only what Claude signed goes back to Claude; other thoughts it refuses."""
    kept = own_metadata(item.metadata, KEY)
    signature, redacted = kept.get("signature"), kept.get("redactedData")
    if isinstance(signature, str) and signature:
        # The store trims the end of a text, and the signature holds for every letter of it.
        tail = kept.get("tail")
        thinking = item.text + (tail if isinstance(tail, str) else "")
        return [{"type": "thinking", "thinking": thinking, "signature": signature}]
    if isinstance(redacted, str) and redacted:
        return [{"type": "redacted_thinking", "data": redacted}]
    return []


def _result(item: ResultContent) -> Json:
    files = [block for file in item.files for block in _file(file)]
    content = [*_text(item.output), *files]
    result: Json = {"type": "tool_result", "tool_use_id": item.call_id, "content": content or NO_OUTPUT}
    if item.error and not files:
        result["is_error"] = True
    return result


def _shows(file: FileContent) -> bool:
    data = to_data(file.url)
    mime = data.mime if data is not None else file.mime
    return (data is not None or file.url.startswith("https://")) and (
        mime in PICTURES or mime == "application/pdf"
    )


def _file(file: FileContent) -> list[Json]:
    data = to_data(file.url)
    mime = data.mime if data is not None else file.mime
    source: Json = (
        {"type": "url", "url": file.url}
        if data is None
        else {"type": "base64", "media_type": mime, "data": data.base64}
    )
    if mime in PICTURES:
        return [{"type": "image", "source": source}]
    return [{"type": "document", "source": source} | _given(title=file.filename or None)]


def _mark(blocks: list[Json]) -> None:
    for block in reversed(blocks):
        if block["type"] not in THOUGHTS:
            block["cache_control"] = MARK
            return


def _given(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _picked(options: Mapping[str, Any], names: Iterable[str]) -> Json:
    return {name: options[name] for name in names if options.get(name) is not None}
