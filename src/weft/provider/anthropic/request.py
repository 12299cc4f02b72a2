"""Build a request for Anthropic's Messages API that is valid whatever the history holds (pure)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct

from weft.provider.body import MARK, Remembering, afresh, message_marks, system_marks
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
from weft.provider.media import MB, MediaLimits, show_files, to_data
from weft.provider.normalise import (
    NO_OUTPUT,
    NOOP,
    claude_id,
    ends_with_question,
    has_calls,
    input_schema,
    own_metadata,
    pair_calls,
    tool_name,
)

Json = dict[str, Any]
Blocks = Callable[[ModelMessage], list[Json]]


class Kinds(NamedTuple):
    """Which blocks of an API are thoughts, calls and the results of calls."""

    is_thought: Callable[[Json], bool]
    is_call: Callable[[Json], bool]
    is_result: Callable[[Json], bool]


def alternate(turns: Iterable[ModelMessage], blocks_of: Blocks, kinds: Kinds) -> list[Json]:
    """Turns of one role after another are one message: the results of calls and what the person said next.

    The messages are new, with lists of their own; the blocks in them may be somebody else's too.
    """
    messages: list[Json] = []
    for turn in ends_with_question(_worth_sending(turns, blocks_of, kinds)):
        role = "assistant" if isinstance(turn, AssistantTurn) else "user"
        blocks = blocks_of(turn)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(blocks)
        else:
            messages.append({"role": role, "content": list(blocks)})
    for message in messages:
        if message["role"] == "assistant":
            message["content"] = _calls_last(message["content"], kinds)
    return messages


def _worth_sending(turns: Iterable[ModelMessage], blocks_of: Blocks, kinds: Kinds) -> list[ModelMessage]:
    """Without what says nothing: the APIs refuse a message without content, and one of thoughts alone."""
    return [turn for turn in turns if not all(map(kinds.is_thought, blocks_of(turn)))]


def _calls_last(blocks: list[Json], kinds: Kinds) -> list[Json]:
    """What was said after a call stands before it: the results have to follow the calls at once."""
    said = [block for block in blocks if not kinds.is_call(block)]
    calls = [block for block in blocks if kinds.is_call(block)]
    while not calls and kinds.is_thought(said[-1]):  # a message may not end in a thought
        said.pop()
    return [*said, *calls]


def goes_on_without_thought(messages: Sequence[Json], kinds: Kinds) -> bool:
    """Whether this is the midst of a turn that began without thinking (another model's, or one whose thoughts are
    gone). With a budget to think it has to go on without: Claude refuses it otherwise. All answers up to the next
    word of the person are one turn; only the first of them has to begin with a thought."""
    if len(messages) < 2 or not kinds.is_result(messages[-1]["content"][0]):  # noqa: PLR2004 - a call and its result
        return False
    first = len(messages) - 2
    while first > 1 and all(map(kinds.is_result, messages[first - 1]["content"])):
        first -= 2
    return not kinds.is_thought(messages[first]["content"][0])


DEFAULT_OUTPUT: Final = 4096
LEAST_BUDGET: Final = 1024


class Kept(Struct, frozen=True, kw_only=True):
    """A thought that may go back: with the signature it came with, or redacted."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


def ending(before: str, text: str) -> str:
    """The spaces at the end of what was thought so far."""
    bare = text.rstrip()
    return text[len(bare) :] if bare else before + text


def to_metadata(key: str, signature: str, tail: str) -> Metadata | None:
    """The store trims the end of a text, and the signature holds for every letter of it: the end is kept beside."""
    if not signature:
        return None
    return {key: {"signature": signature} | ({"tail": tail} if tail else {})}


def find_kept(item: ReasoningContent, key: str) -> Kept | None:
    """Only what Claude signed goes back to Claude; other thoughts it refuses."""
    kept = own_metadata(item.metadata, key)
    signature, redacted, tail = kept.get("signature"), kept.get("redactedData"), kept.get("tail")
    if isinstance(signature, str) and signature:
        return Kept(text=item.text + (tail if isinstance(tail, str) else ""), signature=signature)
    return Kept(redacted=redacted) if isinstance(redacted, str) and redacted else None


def asked_output(request: ModelRequest) -> int:
    return request.parameters.max_output or request.model.limit.output or DEFAULT_OUTPUT


def budgeted(request: ModelRequest, option: Mapping[str, Any]) -> tuple[int | None, int]:
    """How many tokens to think with, and the limit of the answer, in which Claude counts the thinking.

    None where there is no room for the least it can be asked for.
    """
    most, asked = request.model.limit.output, asked_output(request)
    budget = option.get("budgetTokens", option.get("budget_tokens"))
    budget = budget if isinstance(budget, int) else LEAST_BUDGET
    total = min(asked + budget, most) if most else asked + budget
    budget = min(budget, total - 1)
    return (budget, total) if budget >= LEAST_BUDGET else (None, asked)


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
