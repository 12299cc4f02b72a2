"""A request in the words of OpenAI's Responses API, valid whatever the history holds (pure).

Everything is sent each time and nothing is looked up on the server: reasoning goes back encrypted, without item ids.
"""

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final

from weft.provider.body import Remembering, afresh, to_bytes
from weft.provider.contract import (
    AssistantTurn,
    CallContent,
    FileContent,
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
from weft.provider.media import MB, Data, MediaLimits, modality, show_files, to_data
from weft.provider.normalise import GO_ON, input_schema, own_metadata, pair_calls, short_id, tool_name

KEY: Final = "openai"
ENCRYPTED: Final = "reasoning.encrypted_content"
LONGEST: Final = 64
LEAST_OUTPUT: Final = 16
PHASES: Final = ("commentary", "final_answer")
PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
LIMITS: Final = MediaLimits(each=50 * MB, total=50 * MB, count=500)

# What a person may set under `options`, and where it goes. What is not listed means nothing to this API.
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


def to_body(request: ModelRequest, remembering: Remembering = afresh) -> Json:
    """The conversation comes last: as it grows, what was sent before stays a prefix of what is sent next."""
    asked = request.parameters
    reasons = _reasons(request)
    body: Json = {"model": request.model.api.id, "stream": True, "store": asked.options.get("store") is True}
    if asked.max_output is not None:
        body["max_output_tokens"] = max(asked.max_output, LEAST_OUTPUT)
    body |= _sampling(request, reasons=reasons)
    if reasons:
        body |= _reasoning(asked.options)
    if text := _text(request):
        body["text"] = text
    body |= _plain_options(asked.options)
    if request.tools:
        body["tools"] = [_tool(name, tool) for name, tool in named_tools(request).items()]
        named = {"type": "function", "name": tool_name(request.forced)} if request.forced else None
        body["tool_choice"] = named or request.tool_choice
    role = "developer" if reasons else "system"
    system = [{"role": role, "content": words} for words in request.system if words]
    body["input"] = [*system, *(_items(request, remembering) or [_message([TextContent(text=GO_ON)])])]
    return body


def _text(request: ModelRequest) -> Json:
    """How the text of the answer is to be: how long, and in which format."""
    verbosity, wanted = request.parameters.options.get("textVerbosity"), request.format
    text: Json = {"verbosity": verbosity} if verbosity else {}
    if wanted is not None:
        schema = {"name": wanted.name, "schema": wanted.schema, "strict": wanted.strict}
        text["format"] = {"type": "json_schema", **schema}
    return text


def named_tools(request: ModelRequest) -> dict[str, ToolSpec]:
    """The tools by the names they go by on the wire."""
    return {tool_name(tool.name): tool for tool in request.tools}


def _reasons(request: ModelRequest) -> bool:
    """A model that reasons, by the catalogue or because somebody set how much."""
    options = request.parameters.options
    return request.model.capabilities.reasoning or any(
        options.get(key) is not None for key in ("reasoningEffort", "reasoningSummary")
    )


def _sampling(request: ModelRequest, *, reasons: bool) -> Json:
    # A reasoning model refuses these, except where it is told not to reason.
    if reasons and request.parameters.options.get("reasoningEffort") != "none":
        return {}
    wanted = {"temperature": request.parameters.temperature, "top_p": request.parameters.top_p}
    return {name: value for name, value in wanted.items() if value is not None}


def _reasoning(options: Json) -> Json:
    wanted = {"effort": options.get("reasoningEffort"), "summary": options.get("reasoningSummary")}
    given = {name: value for name, value in wanted.items() if value is not None}
    asked = options.get("include")
    more = [name for name in asked if isinstance(name, str)] if isinstance(asked, list) else []
    # OpenCode asks for this with some providers only, and loses the thread of thought with the others.
    include = list(dict.fromkeys([ENCRYPTED, *more]))
    return ({"reasoning": given} if given else {}) | {"include": include}


def _plain_options(options: Json) -> Json:
    given = {name: options[key] for key, name in PLAIN_OPTIONS.items() if options.get(key) is not None}
    if isinstance(key := given.get("prompt_cache_key"), str):
        given["prompt_cache_key"] = short_id(LONGEST)(key)
    return given


def _tool(name: str, tool: ToolSpec) -> Json:
    return {
        "type": "function",
        "name": name,
        "description": tool.about,
        "parameters": input_schema(tool),
        "strict": False,
    }


# --- the conversation ---


def _items(request: ModelRequest, remembering: Remembering) -> list[Json]:
    say = remembering(request.model, _said_in)
    paired = pair_calls(request.messages, short_id(LONGEST))
    return [item for turn in show_files(paired, request.model, _shows, LIMITS) for item in say(turn)]


def _said_in(turn: ModelMessage) -> list[Json]:
    match turn:
        case UserTurn():
            said = [part for part in turn.content if isinstance(part, FileContent) or part.text]
            return [_message(said)] if said else []
        case AssistantTurn():
            return _answer(turn)
        case ToolTurn():
            return [_output(result) for result in turn.content]


def _message(said: Iterable[TextContent | FileContent]) -> Json:
    return {"role": "user", "content": [_input(part) for part in said]}


def _answer(turn: AssistantTurn) -> list[Json]:
    """What the model said and called, each thought before what followed from it. A last thought led to nothing."""
    items: list[Json] = []
    thoughts: list[ReasoningContent] = []
    for part in turn.content:
        match part:
            case ReasoningContent():
                thoughts.append(part)
            case TextContent() if part.text:
                items += [*_reasoned(thoughts), _said(part)]
                thoughts = []
            case CallContent():
                items += [*_reasoned(thoughts), _call(part)]
                thoughts = []
            case _:
                pass
    return items


def _said(part: TextContent) -> Json:
    said: Json = {"role": "assistant", "content": [{"type": "output_text", "text": part.text}]}
    phase = _own(part.metadata).get("phase")
    return said | ({"phase": phase} if phase in PHASES else {})


def _call(part: CallContent) -> Json:
    return {
        "type": "function_call",
        "call_id": part.call_id,
        "name": part.tool,
        "arguments": to_bytes(part.input).decode(),
    }


def _reasoned(thoughts: Iterable[ReasoningContent]) -> Iterable[Json]:
    """One item for all parts of a summary. Without its encrypted content a thought is of no use to the model."""
    items: dict[str, Json] = {}
    for number, part in enumerate(thoughts):
        kept = _own(part.metadata)
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


def _own(metadata: Metadata | None) -> Metadata:
    return own_metadata(metadata, KEY)


def _output(result: ResultContent) -> Json:
    files = [_input(file) for file in result.files]
    said = [_input(TextContent(text=result.output))] if result.output else []
    return {
        "type": "function_call_output",
        "call_id": result.call_id,
        "output": [*said, *files] if files else result.output,
    }


# --- files ---


def _shows(file: FileContent) -> bool:
    """Pictures and PDF, whole or by an address the server can fetch."""
    data = to_data(file.url)
    mime = data.mime if data is not None else file.mime
    known = mime in PICTURES or modality(mime) == "pdf"
    return known and (file.url.startswith(("https://", "http://")) if data is None else _is_base64(data))


def _is_base64(data: Data) -> bool:
    try:
        return bool(base64.b64decode(data.base64, validate=True))
    except (binascii.Error, ValueError):
        return False


def _input(part: TextContent | FileContent) -> Json:
    if isinstance(part, TextContent):
        return {"type": "input_text", "text": part.text}
    data = to_data(part.url)
    url = part.url if data is None else f"data:{data.mime};base64,{data.base64}"
    if modality(data.mime if data is not None else part.mime) == "image":
        return {"type": "input_image", "image_url": url}
    if data is None:
        return {"type": "input_file", "file_url": url}
    return {"type": "input_file", "filename": part.filename or "document.pdf", "file_data": url}
