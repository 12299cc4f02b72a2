"""Chunks: the pieces of a streamed answer, the same for every model API. Outside of `provider/`, a run reads them and nobody else."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal

from msgspec import Struct

FinishReason = Literal["stop", "length", "content-filter", "tool-calls", "error", "other", "unknown"]
Metadata = dict[str, Any]


class Chunk(Struct, frozen=True, kw_only=True):
    """One piece of an answer. If it has `metadata`, this is the provider's own data, which it wants back with the next request."""


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
    """The end of a thought. `metadata` holds signatures and encrypted or redacted reasoning."""

    id: str
    metadata: Metadata | None = None


class ToolInputStart(Chunk, frozen=True, kw_only=True):
    """The model began to write a tool call."""

    call_id: str
    tool: str


class ToolInputDelta(Chunk, frozen=True, kw_only=True):
    call_id: str
    text: str


class ToolCall(Chunk, frozen=True, kw_only=True):
    """A complete tool call. `raw` is the input as the model wrote it. It may be invalid JSON; it is parsed when the call is run."""

    call_id: str
    tool: str
    raw: str
    metadata: Metadata | None = None


class Usage(Struct, frozen=True, kw_only=True):
    """Token counts of one answer. No token is counted twice: `input` excludes cached tokens, `output` excludes
    `reasoning`.

    `cost` is in US dollars, if the provider reports it. `raw` is the provider's own report.
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
        """Return True if the provider counted tokens at all. No answer takes zero tokens, so all zeros means no
        count.
        """
        return any((self.input, self.output, self.reasoning, self.cache_read, self.cache_write))


MAX_COUNT_DIGITS: Final = 15
MAX_COUNT: Final = 10**MAX_COUNT_DIGITS


def read_count(report: Mapping[str, Any], name: str) -> int:
    """Return a token count from a provider's report, or 0 if it is missing or not a sensible number. Some proxies write it as text."""
    count = report.get(name)
    if isinstance(count, str) and count.isdecimal() and len(count) <= MAX_COUNT_DIGITS:
        return int(count)
    try:
        # Compared first: as a whole number, 1e999999999 would take minutes and gigabytes.
        return int(count) if isinstance(count, int | float | Decimal) and 0 < count < MAX_COUNT else 0
    except InvalidOperation:  # NaN
        return 0


class Started(Chunk, frozen=True, kw_only=True):
    """The model began to answer. `usage` is the count so far, if the provider reports it this early: if the
    answer breaks off, it is the only count we get.
    """

    usage: Usage | None = None


class Finished(Chunk, frozen=True, kw_only=True):
    """The answer is complete. `reason` is our word for why it ended, `raw_reason` the provider's."""

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
