"""Build a request for Anthropic's Messages API that is valid for any history (pure).

The first half, up to `METADATA_KEY`, is shared with Bedrock, which serves Claude by an API of its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from weft.provider.body import (
    CACHE_MARK,
    MARKED_MESSAGES,
    CacheMessages,
    encode_uncached,
    list_message_marks,
    list_system_marks,
)
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
from weft.provider.conversation import ConversationCache, SettledItems
from weft.provider.media import MB, MediaLimits, adapt_files, parse_data_url
from weft.provider.normalise import (
    CONTINUE_TURN,
    NO_OUTPUT,
    NOOP_TOOL,
    get_own_metadata,
    has_calls,
    pair_calls,
    to_claude_id,
    to_input_schema,
    to_tool_name,
)

Json = dict[str, Any]
ToBlocks = Callable[[ModelMessage], list[Json]]


class BlockKinds(Struct, frozen=True):
    """Predicates that tell which blocks of an API are thoughts, tool calls and results."""

    is_thought: Callable[[Json], bool]
    is_call: Callable[[Json], bool]
    is_result: Callable[[Json], bool]


class MergedMessages:
    """Encoded messages. Consecutive ones of one role, such as results and the next prompt, are merged into one.

    The blocks in them may be shared with a cache.
    """

    def __init__(self, to_blocks: ToBlocks, kinds: BlockKinds) -> None:
        self._to_blocks = to_blocks
        self._kinds = kinds
        self._messages: list[Json] = []  # later ones may be merged with the last
        self._settled = SettledItems()
        self._settled_count = 0

    def add(self, message: ModelMessage) -> None:
        blocks = self._to_blocks(message)
        if all(map(self._kinds.is_thought, blocks)):
            return  # the APIs refuse messages without content or with thoughts alone
        if not self._messages and not isinstance(message, UserModelMessage):
            self.add(CONTINUE_TURN)
        role = "assistant" if isinstance(message, AssistantModelMessage) else "user"
        if self._messages and self._messages[-1]["role"] == role:
            self._messages[-1]["content"].extend(blocks)
            return
        if self._messages:
            self._messages[-1] = self._close(self._messages[-1])
        self._messages.append({"role": role, "content": [*blocks]})

    def to_messages(self) -> list[Json]:
        """Return all messages, with a user's at the end, as most APIs require.

        The caller may change the last `MARKED_MESSAGES`, to put cache marks on them. The others are shared with later requests.
        """
        messages = [*self._messages]
        for index in range(-min(MARKED_MESSAGES, len(messages)), 0):
            messages[index] = self._close(messages[index])
        if not messages or messages[-1]["role"] == "assistant":
            messages.append({"role": "user", "content": [*self._to_blocks(CONTINUE_TURN)]})
        return messages

    def settle(self, messages: list[Json]) -> list[Any]:
        """Return the messages from `to_messages` as a body contains them: those that later requests send unchanged are encoded once."""
        end = max(self._settled_count, len(self._messages) - MARKED_MESSAGES)
        self._settled.extend(messages[self._settled_count : end])
        self._settled_count = end
        return [*self._settled.to_items(), *messages[end:]]

    def _close(self, message: Json) -> Json:
        """Return a message to which nothing is added any more."""
        content = message["content"]
        if message["role"] == "assistant":
            return {**message, "content": _move_calls_last(content, self._kinds)}
        return {**message, "content": [*content]}


def _move_calls_last(blocks: list[Json], kinds: BlockKinds) -> list[Json]:
    """Move the tool calls behind all text: their results must follow at once."""
    others = [block for block in blocks if not kinds.is_call(block)]
    calls = [block for block in blocks if kinds.is_call(block)]
    while not calls and kinds.is_thought(others[-1]):  # a message must not end with a thought
        others.pop()
    return [*others, *calls]


def continues_without_thinking(messages: Sequence[Json], kinds: BlockKinds) -> bool:
    """Return True if the last messages continue a turn that began without thinking.

    That happens if another model began it, or if its thoughts were removed. Claude then refuses a thinking budget. All
    answers up to the next prompt count as one turn, and only the first must begin with a thought.
    """
    if len(messages) < 2 or not kinds.is_result(messages[-1]["content"][0]):  # noqa: PLR2004 - a call and its result
        return False
    first = len(messages) - 2
    while first > 1 and all(map(kinds.is_result, messages[first - 1]["content"])):
        first -= 2
    return not kinds.is_thought(messages[first]["content"][0])


DEFAULT_MAX_OUTPUT: Final = 4096
MIN_THINKING_BUDGET: Final = 1024


class SignedThought(Struct, frozen=True, kw_only=True):
    """A thought that may be sent back: with the signature it came with, or redacted."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


def get_trailing_space(before: str, text: str) -> str:
    """Return the white space at the end of a text to which `text` is appended. `before` is its trailing space so far."""
    stripped = text.rstrip()
    return text[len(stripped) :] if stripped else before + text


def to_signature_metadata(key: str, signature: str, tail: str) -> Metadata | None:
    """Return the metadata of a signed thought, None without a signature.

    The signature covers every character, but the store trims the end of a text. So the trailing white space is kept in
    `tail`.
    """
    if not signature:
        return None
    return {key: {"signature": signature} | ({"tail": tail} if tail else {})}


def find_signed_thought(item: ReasoningContent, key: str) -> SignedThought | None:
    """Return the thought if Claude signed or redacted it, else None: Claude refuses other thoughts."""
    own = get_own_metadata(item.metadata, key)
    signature, redacted, tail = own.get("signature"), own.get("redactedData"), own.get("tail")
    if isinstance(signature, str) and signature:
        return SignedThought(text=item.text + (tail if isinstance(tail, str) else ""), signature=signature)
    return SignedThought(redacted=redacted) if isinstance(redacted, str) and redacted else None


def get_max_output(request: ModelRequest) -> int:
    """Return the output limit of a request: the requested one, the model's, or the default."""
    return request.parameters.max_output or request.model.limit.output or DEFAULT_MAX_OUTPUT


def compute_thinking_budget(request: ModelRequest, option: Mapping[str, Any]) -> tuple[int | None, int]:
    """Return the thinking budget and the output limit, which includes the thinking.

    The budget is None if not even the minimum fits.
    """
    model_limit, max_output = request.model.limit.output, get_max_output(request)
    budget = option.get("budgetTokens", option.get("budget_tokens"))
    budget = budget if isinstance(budget, int) else MIN_THINKING_BUDGET
    total = min(max_output + budget, model_limit) if model_limit else max_output + budget
    budget = min(budget, total - 1)
    return (budget, total) if budget >= MIN_THINKING_BUDGET else (None, max_output)


METADATA_KEY: Final = "anthropic"
MIN_TOP_P_WITH_THINKING: Final = 0.95
IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MEDIA_LIMITS: Final = MediaLimits(
    max_file_chars=5 * MB,
    max_total_chars=24 * MB,
    max_files=100,
    max_side=8000,
    many_files=20,
    max_side_when_many=2000,
)
THINKING_BLOCKS: Final = frozenset({"thinking", "redacted_thinking"})
BLOCK_KINDS: Final = BlockKinds(
    is_thought=lambda block: block["type"] in THINKING_BLOCKS,
    is_call=lambda block: block["type"] == "tool_use",
    is_result=lambda block: block["type"] == "tool_result",
)
# Fields of the API that may be set under `options`. The API refuses fields it does not know, so others are not sent.
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


def to_body(
    request: ModelRequest,
    cache: CacheMessages = encode_uncached,
    conversations: ConversationCache[MergedMessages] | None = None,
) -> Json:
    """Build the body. The conversation comes last, so that each request begins with the bytes of the one before it.

    A conversation with files is not looked up in `conversations`.
    """
    is_kept = conversations is not None and not conversations.has_files(request.messages)
    encoded = _encode(request, cache, conversations if is_kept else None)
    messages = encoded.to_messages()
    thinking, max_tokens = _to_thinking(request, messages)
    body: Json = {"model": request.model.api.id, "stream": True, "max_tokens": max_tokens}
    body |= _to_sampling(request, has_thinking=thinking is not None)
    if thinking is not None:
        body["thinking"] = thinking
    body |= _to_options(request.parameters.options)
    if request.format is not None:
        schema_format = {"type": "json_schema", "schema": request.format.schema}
        body["output_config"] = {**body.get("output_config", {}), "format": schema_format}
    body |= _to_tools(request, has_thinking=thinking is not None)
    system: list[Json] = [{"type": "text", "text": text} for text in request.system if text.strip()]
    for number in list_system_marks(len(system)):
        system[number] |= {"cache_control": CACHE_MARK}
    if system:
        body["system"] = system
    for number in list_message_marks(len(messages)):
        _add_cache_mark(messages[number]["content"])
    body["messages"] = encoded.settle(messages) if is_kept else messages
    return body


# --- settings ---


def _to_thinking(request: ModelRequest, messages: Sequence[Json]) -> tuple[Json | None, int]:
    """Return the `thinking` field and the output limit, in which the API includes the thinking."""
    limit, option = get_max_output(request), request.parameters.options.get("thinking")
    if not isinstance(option, Mapping) or option.get("type") not in {"enabled", "adaptive"}:
        return ({"type": "disabled"} if option == {"type": "disabled"} else None), limit
    display = _pick(option, ("display",))
    if option["type"] == "adaptive":
        return {"type": "adaptive"} | display, limit
    if continues_without_thinking(messages, BLOCK_KINDS):
        return None, limit
    budget, total = compute_thinking_budget(request, option)
    return ({"type": "enabled", "budget_tokens": budget} | display if budget else None), total


def _to_sampling(request: ModelRequest, *, has_thinking: bool) -> Json:
    parameters = request.parameters
    if has_thinking:  # with thinking the API accepts none of these except a high `top_p`
        return (
            {"top_p": parameters.top_p}
            if parameters.top_p is not None and parameters.top_p >= MIN_TOP_P_WITH_THINKING
            else {}
        )
    if parameters.temperature is not None:  # newer models refuse it together with `top_p`
        return {"temperature": min(parameters.temperature, 1)} | _drop_none(top_k=parameters.top_k)
    return _drop_none(top_p=parameters.top_p, top_k=parameters.top_k)


def _to_options(options: Mapping[str, Any]) -> Json:
    body = _pick(options, PLAIN_OPTIONS)
    if isinstance(options.get("effort"), str):
        body["output_config"] = {**body.get("output_config", {}), "effort": options["effort"]}
    return body


def _to_tools(request: ModelRequest, *, has_thinking: bool) -> Json:
    if not request.tools:
        # The API refuses a conversation with tool calls if no tool is declared.
        if has_calls(request.messages):
            return {"tools": [_to_tool(NOOP_TOOL)], "tool_choice": {"type": "none"}}
        return {}
    choice: Json = {"type": {"auto": "auto", "none": "none", "required": "any"}[request.tool_choice]}
    if has_thinking and choice["type"] == "any":
        choice = {"type": "auto"}
    elif request.forced:
        choice = {"type": "tool", "name": to_tool_name(request.forced)}
    if request.parameters.options.get("disableParallelToolUse") and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    return {"tools": [_to_tool(spec) for spec in request.tools], "tool_choice": choice}


def _to_tool(spec: ToolSpec) -> Json:
    return {"name": to_tool_name(spec.name), "description": spec.about, "input_schema": to_input_schema(spec)}


# --- the conversation ---


def _encode(
    request: ModelRequest, cache: CacheMessages, conversations: ConversationCache[MergedMessages] | None
) -> MergedMessages:
    model, encode = request.model, cache(request.model, _to_blocks)
    if conversations is not None:
        return conversations.encode(
            model, request.messages, to_claude_id, lambda: MergedMessages(encode, BLOCK_KINDS)
        )
    encoded = MergedMessages(encode, BLOCK_KINDS)
    for message in adapt_files(
        pair_calls(request.messages, to_claude_id), model, _accepts_file, MEDIA_LIMITS
    ):
        encoded.add(message)
    return encoded


def _to_blocks(message: ModelMessage) -> list[Json]:
    match message:
        case UserModelMessage(content=content):
            return [
                block
                for item in content
                for block in (_to_text(item.text) if isinstance(item, TextContent) else _to_file(item))
            ]
        case AssistantModelMessage(content=content):
            return [block for item in content for block in _to_assistant_blocks(item)]
        case ToolModelMessage(content=content):
            return [_to_result(item) for item in content]


def _to_text(text: str) -> list[Json]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _to_assistant_blocks(item: TextContent | ReasoningContent | CallContent) -> list[Json]:
    match item:
        case TextContent(text=text):
            return _to_text(text)
        case ReasoningContent():
            return _to_thinking_blocks(item)
        case CallContent():
            return [{"type": "tool_use", "id": item.call_id, "name": item.tool, "input": item.input}]


def _to_thinking_blocks(item: ReasoningContent) -> list[Json]:
    thought = find_signed_thought(item, METADATA_KEY)
    if thought is None:
        return []
    if thought.redacted:
        return [{"type": "redacted_thinking", "data": thought.redacted}]
    return [{"type": "thinking", "thinking": thought.text, "signature": thought.signature}]


def _to_result(item: ResultContent) -> Json:
    files = [block for file in item.files for block in _to_file(file)]
    content = [*_to_text(item.output), *files]
    result: Json = {"type": "tool_result", "tool_use_id": item.call_id, "content": content or NO_OUTPUT}
    if item.error and not files:
        result["is_error"] = True
    return result


def _accepts_file(file: MediaContent) -> bool:
    data = parse_data_url(file.url)
    mime = data.mime if data is not None else file.mime
    return (data is not None or file.url.startswith("https://")) and (
        mime in IMAGE_TYPES or mime == "application/pdf"
    )


def _to_file(file: MediaContent) -> list[Json]:
    data = parse_data_url(file.url)
    mime = data.mime if data is not None else file.mime
    source: Json = (
        {"type": "url", "url": file.url}
        if data is None
        else {"type": "base64", "media_type": mime, "data": data.base64}
    )
    if mime in IMAGE_TYPES:
        return [{"type": "image", "source": source}]
    return [{"type": "document", "source": source} | _drop_none(title=file.filename or None)]


def _add_cache_mark(blocks: list[Json]) -> None:
    for number in reversed(range(len(blocks))):
        if blocks[number]["type"] not in THINKING_BLOCKS:
            blocks[number] = {**blocks[number], "cache_control": CACHE_MARK}
            return


def _drop_none(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value is not None}


def _pick(options: Mapping[str, Any], names: Iterable[str]) -> Json:
    return {name: options[name] for name in names if options.get(name) is not None}
