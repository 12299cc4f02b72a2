"""Make any history valid for model APIs (pure): one result for each call, with ids and names that the APIs accept."""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import is_
from typing import Any, Final

from msgspec.structs import replace

from weft.model.catalog import Model
from weft.provider.chunk import Metadata
from weft.provider.contract import (
    AssistantContent,
    AssistantModelMessage,
    CallContent,
    ModelMessage,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolModelMessage,
    ToolSpec,
    UserModelMessage,
)

INTERRUPTED: Final = "[Tool execution was interrupted]"
CONTINUE_TEXT: Final = "Continue if you have next steps"
CONTINUE_TURN: Final = UserModelMessage(content=(TextContent(text=CONTINUE_TEXT),))
NO_OUTPUT: Final = "(no output)"
NOOP_TOOL: Final = ToolSpec(
    name="_noop",
    about="Does nothing. It is declared because the conversation contains calls of tools that are not available now.",
    schema={"type": "object", "properties": {}},
)
MAX_NAME_LENGTH: Final = 64
MISTRAL_ID_LENGTH: Final = 9

# The key of a provider's own data in stored metadata, by npm package, as OpenCode has it.
_METADATA_KEYS: Final = {
    "@ai-sdk/openai": "openai",
    "@ai-sdk/azure": "openai",
    "@ai-sdk/github-copilot": "openai",
    "@ai-sdk/amazon-bedrock": "bedrock",
    "@ai-sdk/anthropic": "anthropic",
    "@ai-sdk/google-vertex/anthropic": "anthropic",
    "@ai-sdk/google": "google",
    "@ai-sdk/google-vertex": "google",
    "@ai-sdk/gateway": "gateway",
    "@openrouter/ai-sdk-provider": "openrouter",
}

ShapeId = Callable[[str], str]


def get_metadata_key(model: Model) -> str:
    """Return the key under which the model's provider finds its own metadata."""
    return _METADATA_KEYS.get(model.api.npm, model.provider_id)


def get_own_metadata(metadata: Metadata | None, key: str, provider_id: str = "") -> Metadata:
    """Return the metadata under our key, or under the provider's name. Return {} if there is none."""
    own = (metadata or {}).get(key, (metadata or {}).get(provider_id))
    return own if isinstance(own, dict) else {}


# --- names and ids ---


@lru_cache(256)
def to_tool_name(name: str) -> str:
    """Return a tool name that every API accepts. Models invent other names, and a history keeps them."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_NAME_LENGTH] or "unnamed"


def to_input_schema(spec: ToolSpec) -> dict[str, Any]:
    """Return the input schema with its type, "object": APIs refuse a schema that omits it."""
    return spec.schema if spec.schema.get("type") == "object" else {**spec.schema, "type": "object"}


def to_plain_id(id: str) -> str:
    return id or "call"


def to_claude_id(id: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", id) or "call"


def to_mistral_id(id: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", id)[:MISTRAL_ID_LENGTH].ljust(MISTRAL_ID_LENGTH, "0")


def limit_id(max_length: int) -> ShapeId:
    """Return a function that limits ids to this length. A longer id becomes a digest, so that ids stay distinct."""

    def shape(id: str) -> str:
        return to_plain_id(id) if len(id) <= max_length else f"call_{_digest(id)[:24]}"

    return shape


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


# --- calls and results ---


class UniqueIds:
    """Shapes ids and keeps them unique: servers repeat ids, and shaping may cut off the difference."""

    def __init__(self, shape: ShapeId) -> None:
        self._shape = shape
        self._assigned: set[str] = set()
        self._repeats: dict[str, int] = {}

    def assign(self, id: str) -> str:
        shaped = candidate = self._shape(id)
        while candidate in self._assigned:
            count = self._repeats[id] = self._repeats.get(id, 1) + 1
            numbered = f"{id}_{count}"
            candidate = self._shape(numbered)
            if candidate == shaped:  # the shape cut off the suffix
                candidate = self._shape(_digest(numbered))
        self._assigned.add(candidate)
        return candidate


def pair_calls(history: Iterable[ModelMessage], shape: ShapeId = to_plain_id) -> list[ModelMessage]:
    """Return the history with exactly one result right after each call. Drop results without a call, and empty messages.

    A message that needs no change stays the same object, so that its cached encoding can be reused.
    """
    return pair_more_calls(list(history), UniqueIds(shape))


def pair_more_calls(messages: Sequence[ModelMessage], ids: UniqueIds) -> list[ModelMessage]:
    """Pair the calls of messages that continue a history. `ids` has assigned the ids of its calls."""
    paired: list[ModelMessage] = []
    for index, message in enumerate(messages):
        if isinstance(message, ToolModelMessage):
            continue
        if isinstance(message, AssistantModelMessage) and _has_calls(message):
            paired += _pair_results(message, _list_tool_messages_after(messages, index), ids)
        elif message.content:
            paired.append(message)
    return paired


def _has_calls(message: AssistantModelMessage) -> bool:
    # A loop, because `any` with a generator takes three times as long, and each request looks at the whole history.
    for item in message.content:  # noqa: SIM110
        if isinstance(item, CallContent):
            return True
    return False


def _list_tool_messages_after(messages: Sequence[ModelMessage], index: int) -> list[ToolModelMessage]:
    tool_messages: list[ToolModelMessage] = []
    for later in range(index + 1, len(messages)):
        message = messages[later]
        if not isinstance(message, ToolModelMessage):
            break
        tool_messages.append(message)
    return tool_messages


def _pair_results(
    message: AssistantModelMessage, tool_messages: list[ToolModelMessage], ids: UniqueIds
) -> tuple[ModelMessage, ModelMessage]:
    """Return the message, and one message with a result for each of its calls."""
    results = [each for tool_message in tool_messages for each in tool_message.content]
    content: list[AssistantContent] = []
    answers: list[ResultContent] = []
    for item in message.content:
        if not isinstance(item, CallContent):
            content.append(item)
            continue
        id, tool = ids.assign(item.call_id), to_tool_name(item.tool)
        call = item if (id, tool) == (item.call_id, item.tool) else replace(item, call_id=id, tool=tool)
        content.append(call)
        answers.append(_to_result(call, _take_result(results, item.call_id)))
    if not _are_same(message.content, content):
        message = AssistantModelMessage(content=tuple(content))
    if tool_messages and _are_same(tool_messages[0].content, answers):
        return message, tool_messages[0]
    return message, ToolModelMessage(content=tuple(answers))


def _take_result(results: list[ResultContent], call_id: str) -> ResultContent | None:
    """Remove the first result of this call from the list, and return it."""
    for index, result in enumerate(results):
        if result.call_id == call_id:
            return results.pop(index)
    return None


def _to_result(call: CallContent, result: ResultContent | None) -> ResultContent:
    if result is None:
        return ResultContent(call_id=call.call_id, tool=call.tool, output=INTERRUPTED, error=True)
    if (result.call_id, result.tool) == (call.call_id, call.tool):
        return result
    return replace(result, call_id=call.call_id, tool=call.tool)


def _are_same(old: Sequence[object], new: Sequence[object]) -> bool:
    return len(old) == len(new) and all(map(is_, old, new))


def ensure_user_messages(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Add user messages, so that the conversation begins with one and does not end with an answer, as most APIs require."""
    starts_with_user = bool(messages) and isinstance(messages[0], UserModelMessage)
    ends_with_answer = bool(messages) and isinstance(messages[-1], AssistantModelMessage)
    before = [] if starts_with_user else [CONTINUE_TURN]
    return [*before, *messages, *([CONTINUE_TURN] if ends_with_answer else [])]


def has_calls(messages: Iterable[ModelMessage]) -> bool:
    return any(isinstance(message, AssistantModelMessage) and _has_calls(message) for message in messages)


def has_content(message: ModelMessage) -> bool:
    """Return True if a message has content other than thoughts and blank text."""
    return any(
        item.text.strip() if isinstance(item, TextContent) else not isinstance(item, ReasoningContent)
        for item in message.content
    )
