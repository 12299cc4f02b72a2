"""A request in the words of Anthropic's Messages API, valid whatever the history holds (pure)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from weft.provider.body import Remembering, afresh
from weft.provider.cache_points import MARK, message_marks, system_marks
from weft.provider.claude.alternating import Kinds, goes_on_without_thought
from weft.provider.claude.alternating import to_messages as alternate
from weft.provider.claude.thoughts import asked_output, budgeted, find_kept
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
from weft.provider.media.data import to_data
from weft.provider.media.fit import MB, MediaLimits
from weft.provider.media.show import show_files
from weft.provider.normalise import (
    NO_OUTPUT,
    NOOP,
    claude_id,
    has_calls,
    input_schema,
    pair_calls,
    tool_name,
)

KEY: Final = "anthropic"
LEAST_TOP_P: Final = 0.95
PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
LIMITS: Final = MediaLimits(
    each=5 * MB, total=24 * MB, count=100, pixels=8000, many=20, pixels_when_many=2000
)
THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
KINDS: Final = Kinds(
    is_thought=lambda block: block["type"] in THOUGHTS,
    is_call=lambda block: block["type"] == "tool_use",
    is_result=lambda block: block["type"] == "tool_result",
)
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


def to_body(request: ModelRequest, remembering: Remembering = afresh) -> Json:
    """The conversation comes last: as it grows, what was sent before stays a prefix of what is sent next."""
    messages = to_messages(request, remembering)
    thinking, max_tokens = _thinking(request, messages)
    body: Json = {"model": request.model.api.id, "stream": True, "max_tokens": max_tokens}
    body |= _sampling(request, thinks=thinking is not None)
    if thinking is not None:
        body["thinking"] = thinking
    body |= _options(request.parameters.options)
    if request.format is not None:
        wanted = {"type": "json_schema", "schema": request.format.schema}
        body["output_config"] = {**body.get("output_config", {}), "format": wanted}
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
    asked, option = asked_output(request), request.parameters.options.get("thinking")
    if not isinstance(option, Mapping) or option.get("type") not in {"enabled", "adaptive"}:
        return ({"type": "disabled"} if option == {"type": "disabled"} else None), asked
    shown = _picked(option, ("display",))
    if option["type"] == "adaptive":
        return {"type": "adaptive"} | shown, asked
    if goes_on_without_thought(messages, KINDS):
        return None, asked
    budget, total = budgeted(request, option)
    return ({"type": "enabled", "budget_tokens": budget} | shown if budget else None), total


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
    elif request.forced:
        choice = {"type": "tool", "name": tool_name(request.forced)}
    if request.parameters.options.get("disableParallelToolUse") and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    return {"tools": [_tool(spec) for spec in request.tools], "tool_choice": choice}


def _tool(spec: ToolSpec) -> Json:
    return {"name": tool_name(spec.name), "description": spec.about, "input_schema": input_schema(spec)}


# --- the conversation ---


def to_messages(request: ModelRequest, remembering: Remembering = afresh) -> list[Json]:
    turns = show_files(pair_calls(request.messages, claude_id), request.model, _shows, LIMITS)
    return alternate(turns, remembering(request.model, _blocks), KINDS)


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
    kept = find_kept(item, KEY)
    if kept is None:
        return []
    if kept.redacted:
        return [{"type": "redacted_thinking", "data": kept.redacted}]
    return [{"type": "thinking", "thinking": kept.text, "signature": kept.signature}]


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
    for number in reversed(range(len(blocks))):
        if blocks[number]["type"] not in THOUGHTS:
            blocks[number] = {**blocks[number], "cache_control": MARK}
            return


def _given(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _picked(options: Mapping[str, Any], names: Iterable[str]) -> Json:
    return {name: options[name] for name in names if options.get(name) is not None}
