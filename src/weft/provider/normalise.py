"""Make any history valid for model APIs (pure): one result for each call, and ids and names that the APIs accept."""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import Any, Final

from msgspec.structs import replace

from weft.model.catalog import Model
from weft.provider.contract import (
    AssistantContent,
    AssistantTurn,
    CallContent,
    Metadata,
    ModelMessage,
    ResultContent,
    TextContent,
    ToolSpec,
    ToolTurn,
    UserTurn,
)

INTERRUPTED: Final = "[Tool execution was interrupted]"
CONTINUE_TEXT: Final = "Continue if you have next steps"
CONTINUE_TURN: Final = UserTurn(content=(TextContent(text=CONTINUE_TEXT),))
NO_OUTPUT: Final = "(no output)"
NOOP_TOOL: Final = ToolSpec(
    name="_noop",
    about="Does nothing. It is declared because the conversation contains calls of tools that are not available now.",
    schema={"type": "object", "properties": {}},
)
MAX_NAME_LENGTH: Final = 64
MISTRAL_ID_LENGTH: Final = 9

# The key of a provider's own data in stored metadata, by npm package (spec 9.5).
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
    found = (metadata or {}).get(key, (metadata or {}).get(provider_id))
    return found if isinstance(found, dict) else {}


# --- names and ids ---


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


def limit_id(longest: int) -> ShapeId:
    """Return a function that limits ids to this length. A longer id becomes a digest, so that ids stay distinct."""

    def shape(id: str) -> str:
        return to_plain_id(id) if len(id) <= longest else f"call_{_digest(id)[:24]}"

    return shape


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


# --- calls and results ---


class _UniqueIds:
    """Shapes ids and keeps them unique: servers repeat ids, and shaping may cut off the difference."""

    def __init__(self, shape: ShapeId) -> None:
        self._shape = shape
        self._assigned: set[str] = set()
        self._repeats: dict[str, int] = {}

    def assign(self, id: str) -> str:
        shaped = name = self._shape(id)
        while name in self._assigned:
            count = self._repeats[id] = self._repeats.get(id, 1) + 1
            again = f"{id}_{count}"
            name = self._shape(again)
            if name == shaped:  # the shape cut off the suffix
                name = self._shape(_digest(again))
        self._assigned.add(name)
        return name


def pair_calls(messages: Iterable[ModelMessage], shape: ShapeId = to_plain_id) -> list[ModelMessage]:
    """Return the history with exactly one result right after each call. Drop results without a call, and empty turns.

    A turn that needs no change stays the same object, so that its cached encoding can be reused.
    """
    ids, turns = _UniqueIds(shape), list(messages)
    made: list[ModelMessage] = []
    for number, turn in enumerate(turns):
        if isinstance(turn, AssistantTurn) and _has_calls(turn):
            made.extend(_pair_results(turn, _list_results_after(turns, number), ids))
        elif turn.content and not isinstance(turn, ToolTurn):
            made.append(turn)
    return made


def _has_calls(turn: AssistantTurn) -> bool:
    return any(isinstance(item, CallContent) for item in turn.content)


def _list_results_after(turns: Sequence[ModelMessage], number: int) -> list[ToolTurn]:
    found: list[ToolTurn] = []
    for next_one in range(number + 1, len(turns)):
        turn = turns[next_one]
        if not isinstance(turn, ToolTurn):
            break
        found.append(turn)
    return found


def _pair_results(turn: AssistantTurn, tool_turns: list[ToolTurn], ids: _UniqueIds) -> Iterable[ModelMessage]:
    results = [result for each in tool_turns for result in each.content]
    content: list[AssistantContent] = []
    answers: list[ResultContent] = []
    for item in turn.content:
        if not isinstance(item, CallContent):
            content.append(item)
            continue
        name, tool = ids.assign(item.call_id), to_tool_name(item.tool)
        call = item if (name, tool) == (item.call_id, item.tool) else replace(item, call_id=name, tool=tool)
        found = next((result for result in results if result.call_id == item.call_id), None)
        if found is not None:
            results.remove(found)
        content.append(call)
        answers.append(_to_result(call, found))
    yield turn if _are_same(turn.content, content) else AssistantTurn(content=tuple(content))
    yield (
        tool_turns[0]
        if tool_turns and _are_same(tool_turns[0].content, answers)
        else ToolTurn(content=tuple(answers))
    )


def _to_result(call: CallContent, found: ResultContent | None) -> ResultContent:
    if found is None:
        return ResultContent(call_id=call.call_id, tool=call.tool, output=INTERRUPTED, error=True)
    if (found.call_id, found.tool) == (call.call_id, call.tool):
        return found
    return replace(found, call_id=call.call_id, tool=call.tool)


def _are_same(known: Sequence[object], now: Sequence[object]) -> bool:
    return len(known) == len(now) and all(map(is_, known, now))


def ensure_user_turns(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Make the conversation begin and end with a user turn: not every API continues an unfinished answer."""
    before = [] if messages and isinstance(messages[0], UserTurn) else [CONTINUE_TURN]
    ends_with_answer = bool(messages) and isinstance(messages[-1], AssistantTurn)
    return [*before, *messages, *([CONTINUE_TURN] if ends_with_answer else [])]


def has_calls(messages: Iterable[ModelMessage]) -> bool:
    return any(
        isinstance(item, CallContent)
        for turn in messages
        if isinstance(turn, AssistantTurn)
        for item in turn.content
    )
