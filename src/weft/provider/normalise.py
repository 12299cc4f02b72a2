"""What every API asks of a conversation, made true of any (pure): each call its one result, ids and names in shape."""

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
GO_ON: Final = "Continue if you have next steps"
GOING_ON: Final = UserTurn(content=(TextContent(text=GO_ON),))
NO_OUTPUT: Final = "(no output)"
NOOP: Final = ToolSpec(
    name="_noop",
    about="Does nothing. It stands here because the conversation holds calls of tools that are not offered now.",
    schema={"type": "object", "properties": {}},
)
LONGEST_NAME: Final = 64
MISTRAL_ID: Final = 9

# The key under which what a provider wants to see again is kept, by package (spec 9.5).
_KEYS: Final = {
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

Shape = Callable[[str], str]


def metadata_key(model: Model) -> str:
    return _KEYS.get(model.api.npm, model.provider_id)


def own_metadata(metadata: Metadata | None, key: str, provider_id: str = "") -> Metadata:
    """What was kept under our key, or under the provider's own name; empty when nothing or nonsense was."""
    found = (metadata or {}).get(key, (metadata or {}).get(provider_id))
    return found if isinstance(found, dict) else {}


# --- shapes ---


def tool_name(name: str) -> str:
    """A name of a tool as every API takes it: models invent others, and a history keeps them."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:LONGEST_NAME] or "unnamed"


def input_schema(spec: ToolSpec) -> dict[str, Any]:
    """The schema of a tool's input, which says that it is an object: APIs refuse one that leaves it to be guessed."""
    return spec.schema if spec.schema.get("type") == "object" else {**spec.schema, "type": "object"}


def plain_id(id: str) -> str:
    return id or "call"


def claude_id(id: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", id) or "call"


def mistral_id(id: str) -> str:
    return re.sub(r"[^A-Za-z0-9]", "", id)[:MISTRAL_ID].ljust(MISTRAL_ID, "0")


def short_id(longest: int) -> Shape:
    """Ids no longer than that; what is longer is told apart by a digest of the whole."""

    def shape(id: str) -> str:
        return plain_id(id) if len(id) <= longest else f"call_{_digest(id)[:24]}"

    return shape


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


# --- calls and results ---


class _Names:
    """Ids in shape and never the same twice: servers repeat theirs, and shapes cut them short."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._given: set[str] = set()
        self._repeats: dict[str, int] = {}

    def give(self, id: str) -> str:
        shaped = name = self._shape(id)
        while name in self._given:
            count = self._repeats[id] = self._repeats.get(id, 1) + 1
            again = f"{id}_{count}"
            name = self._shape(again)
            if name == shaped:  # the shape cut off what told them apart
                name = self._shape(_digest(again))
        self._given.add(name)
        return name


def pair_calls(messages: Iterable[ModelMessage], shape: Shape = plain_id) -> list[ModelMessage]:
    """Each call is answered right after its turn, once; results of no call are left out; nothing is empty.

    A turn that is well as it is stays the same object: what was made of it before can be used again.
    """
    names, turns = _Names(shape), list(messages)
    made: list[ModelMessage] = []
    for number, turn in enumerate(turns):
        if isinstance(turn, AssistantTurn) and _calls_in(turn):
            made.extend(_with_results(turn, _results_after(turns, number), names))
        elif turn.content and not isinstance(turn, ToolTurn):
            made.append(turn)
    return made


def _calls_in(turn: AssistantTurn) -> bool:
    return any(isinstance(item, CallContent) for item in turn.content)


def _results_after(turns: Sequence[ModelMessage], number: int) -> list[ToolTurn]:
    found: list[ToolTurn] = []
    for next_one in range(number + 1, len(turns)):
        turn = turns[next_one]
        if not isinstance(turn, ToolTurn):
            break
        found.append(turn)
    return found


def _with_results(turn: AssistantTurn, told: list[ToolTurn], names: _Names) -> Iterable[ModelMessage]:
    results = [result for each in told for result in each.content]
    content: list[AssistantContent] = []
    answers: list[ResultContent] = []
    for item in turn.content:
        if not isinstance(item, CallContent):
            content.append(item)
            continue
        name, tool = names.give(item.call_id), tool_name(item.tool)
        call = item if (name, tool) == (item.call_id, item.tool) else replace(item, call_id=name, tool=tool)
        found = next((result for result in results if result.call_id == item.call_id), None)
        if found is not None:
            results.remove(found)
        content.append(call)
        answers.append(_answer(call, found))
    yield turn if _are_same(turn.content, content) else AssistantTurn(content=tuple(content))
    yield told[0] if told and _are_same(told[0].content, answers) else ToolTurn(content=tuple(answers))


def _answer(call: CallContent, found: ResultContent | None) -> ResultContent:
    if found is None:
        return ResultContent(call_id=call.call_id, tool=call.tool, output=INTERRUPTED, error=True)
    if (found.call_id, found.tool) == (call.call_id, call.tool):
        return found
    return replace(found, call_id=call.call_id, tool=call.tool)


def _are_same(known: Sequence[object], now: Sequence[object]) -> bool:
    return len(known) == len(now) and all(map(is_, known, now))


def ends_with_question(messages: list[ModelMessage]) -> list[ModelMessage]:
    """A conversation begins and ends with what the model is to answer: not every API goes on from half an answer."""
    before = [] if messages and isinstance(messages[0], UserTurn) else [GOING_ON]
    open_end = bool(messages) and isinstance(messages[-1], AssistantTurn)
    return [*before, *messages, *([GOING_ON] if open_end else [])]


def has_calls(messages: Iterable[ModelMessage]) -> bool:
    return any(
        isinstance(item, CallContent)
        for turn in messages
        if isinstance(turn, AssistantTurn)
        for item in turn.content
    )
