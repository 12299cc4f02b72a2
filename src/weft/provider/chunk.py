"""Chunks: pieces of a model's streamed answer, the same whatever API they came from. Private to a step."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

from msgspec import Struct

FinishReason = Literal["stop", "length", "content-filter", "tool-calls", "error", "other", "unknown"]
Metadata = dict[str, Any]


class Chunk(Struct, frozen=True, kw_only=True):
    """A piece of an answer. `metadata` is what the provider wants to see again with that part of the history."""


class TextStart(Chunk, frozen=True, kw_only=True):
    id: str
    metadata: Metadata | None = None


class TextDelta(Chunk, frozen=True, kw_only=True):
    id: str
    text: str


class TextEnd(Chunk, frozen=True, kw_only=True):
    id: str
    metadata: Metadata | None = None


class ReasoningStart(Chunk, frozen=True, kw_only=True):
    id: str
    metadata: Metadata | None = None


class ReasoningDelta(Chunk, frozen=True, kw_only=True):
    id: str
    text: str


class ReasoningEnd(Chunk, frozen=True, kw_only=True):
    """`metadata` carries signatures and encrypted or redacted thought."""

    id: str
    metadata: Metadata | None = None


class ToolInputStart(Chunk, frozen=True, kw_only=True):
    """The model began to write a call."""

    call_id: str
    tool: str


class ToolInputDelta(Chunk, frozen=True, kw_only=True):
    call_id: str
    text: str


class ToolCall(Chunk, frozen=True, kw_only=True):
    """A call is whole. `raw` is the text the model wrote, JSON or not: who carries it out parses it."""

    call_id: str
    tool: str
    raw: str
    metadata: Metadata | None = None


class Usage(Struct, frozen=True, kw_only=True):
    """What an answer used, no token counted twice: `input` without cached, `output` without `reasoning`.

    `cost` is in dollars where the provider says it; `raw` is the provider's own count, kept beside.
    """

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cost: Decimal | None = None
    raw: dict[str, Any] | None = None

    @property
    def counted(self) -> bool:
        """Whether the provider counted at all. No answer takes no tokens, so noughts alone are no count."""
        return any((self.input, self.output, self.reasoning, self.cache_read, self.cache_write))


def count_in(told: Mapping[str, Any], name: str) -> int:
    """A count of tokens as a server tells it; none where it tells nothing that can be meant."""
    found = told.get(name)
    try:
        return max(0, int(found)) if isinstance(found, int | float | Decimal) else 0
    except (ValueError, OverflowError):  # what is no number, or one without end
        return 0


class Started(Chunk, frozen=True, kw_only=True):
    """The model began to answer. `usage` is what it had used by then, where the provider says so that early: if the answer
    breaks off, nobody says more."""

    usage: Usage | None = None


class Finished(Chunk, frozen=True, kw_only=True):
    """The answer is over: why (ours and the provider's word for it) and what it used."""

    reason: FinishReason
    raw_reason: str = ""
    usage: Usage
    metadata: Metadata | None = None


AnyChunk = (
    Started
    | TextStart
    | TextDelta
    | TextEnd
    | ReasoningStart
    | ReasoningDelta
    | ReasoningEnd
    | ToolInputStart
    | ToolInputDelta
    | ToolCall
    | Finished
)
