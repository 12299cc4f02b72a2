"""Fold events of Anthropic's Messages API into chunks."""

from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from weft.provider.anthropic.request import KEY, ending, to_metadata
from weft.provider.chunk import (
    AnyChunk,
    Finished,
    FinishReason,
    Metadata,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Started,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolInputDelta,
    ToolInputStart,
    Usage,
    count_in,
)
from weft.provider.faults import broken, nameless, to_error
from weft.provider.sse import SseEvent, decode_data


class OpenBlock(Struct):
    """Its kind, the id we tell it by, and what it holds so far."""

    kind: Literal["text", "reasoning", "call"]
    id: str
    tool: str = ""
    pieces: list[str] = []
    tail: str = ""
    signature: str = ""
    redacted: str = ""

    def write(self, text: str) -> list[AnyChunk]:
        """The input of a call goes on."""
        if not text:
            return []
        self.pieces.append(text)
        return [ToolInputDelta(call_id=self.id, text=text)]

    def think(self, text: str, signature: str) -> list[AnyChunk]:
        self.signature += signature
        if not text:
            return []
        self.tail = ending(self.tail, text)
        return [ReasoningDelta(id=self.id, text=text)]

    def close(self, key: str) -> AnyChunk:
        """What ends it. `key` is the provider's, under which it finds again what it signed."""
        match self.kind:
            case "text":
                return TextEnd(id=self.id)
            case "call":
                raw = "".join(self.pieces)
                return ToolCall(call_id=self.id, tool=self.tool, raw=raw if raw.strip() else "{}")
            case "reasoning":
                redacted = {key: {"redactedData": self.redacted}} if self.redacted else None
                return ReasoningEnd(
                    id=self.id, metadata=redacted or to_metadata(key, self.signature, self.tail)
                )


REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content-filter",
    "pause_turn": "other",
}


class Delta(Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None


class Block(Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: dict[str, Any] | None = None


class Message(Struct):
    id: str = ""
    usage: dict[str, Any] | None = None


class Event(Struct):
    type: str = ""
    index: int = 0
    delta: Delta | None = None
    content_block: Block | None = None
    message: Message | None = None
    usage: dict[str, Any] | None = None
    error: Raw = Raw(b"")


_decoder = msgspec.json.Decoder(Event, strict=False)


class AnthropicFold:
    """One answer. `feed` it the events in order; after `done` there is nothing more to come."""

    def __init__(self) -> None:
        self.done = False
        self._id = ""
        self._started = False
        self._open: dict[int, OpenBlock] = {}
        self._usage: dict[str, Any] = {}
        self._reason: str | None = None
        self._stop_sequence: str | None = None

    def feed(self, event: SseEvent) -> list[AnyChunk]:
        if self.done:
            return []
        told = decode_data(event.data, _decoder)
        if told.type == "content_block_delta" and told.delta is not None:
            return self._grow(told.index, told.delta)
        match told.type:
            case "message_start":
                return self._start(told.message or Message())
            case "content_block_start":
                return [*self._begin(), *self._open_block(told.index, told.content_block or Block())]
            case "content_block_stop":
                return self._close(told.index)
            case "message_delta":
                self._note(told)
                return []
            case "message_stop":
                return self._finish()
            case "error":
                raise to_error(None, {}, event.data)
            case _:
                if bytes(told.error) not in (b"", b"null"):
                    raise to_error(None, {}, event.data)
                return []  # a ping, or what a later version tells

    def end(self) -> list[AnyChunk]:
        """The events are over. Whole is what came with a reason to stop, even where the last word is missing."""
        if self.done:
            return []
        if self._reason is None:
            raise broken("the model's answer broke off before its end")
        return self._finish()

    # --- the frame ---

    def _begin(self) -> list[AnyChunk]:
        if self._started:
            return []
        self._started = True
        return [Started(usage=to_usage(dict(self._usage)) if self._usage else None)]

    def _start(self, message: Message) -> list[AnyChunk]:
        self._id = message.id
        self._usage |= _counts(message.usage)
        return self._begin()

    def _note(self, told: Event) -> None:
        self._usage |= _counts(told.usage)
        if told.delta is not None and self._reason is None:
            self._reason = told.delta.stop_reason
            self._stop_sequence = told.delta.stop_sequence

    def _finish(self) -> list[AnyChunk]:
        if not self._started or (self._reason is None and not self._usage.get("output_tokens")):
            raise broken("the model's answer ended before it began")
        self.done = True
        closed = [chunk for index in list(self._open) for chunk in self._close(index)]
        usage = to_usage(self._usage)
        metadata: Metadata = {KEY: {"cacheCreationInputTokens": usage.cache_write}}
        if self._stop_sequence is not None:
            metadata[KEY]["stopSequence"] = self._stop_sequence
        reason = REASONS.get(self._reason, "other") if self._reason else "unknown"
        return [
            *closed,
            Finished(reason=reason, raw_reason=self._reason or "", usage=usage, metadata=metadata),
        ]

    # --- blocks ---

    def _open_block(self, index: int, block: Block) -> list[AnyChunk]:
        closed = self._close(index)
        id = f"{self._id}:{index}"
        match block.type:
            case "text":
                self._open[index] = OpenBlock(kind="text", id=id)
                return [*closed, TextStart(id=id), *self._grow(index, Delta(text=block.text))]
            case "thinking":
                self._open[index] = OpenBlock(kind="reasoning", id=id, signature=block.signature or "")
                return [*closed, ReasoningStart(id=id), *self._grow(index, Delta(thinking=block.thinking))]
            case "redacted_thinking":
                self._open[index] = OpenBlock(kind="reasoning", id=id, redacted=block.data or "")
                return [*closed, ReasoningStart(id=id, metadata={KEY: {"redactedData": block.data}})]
            case "tool_use":
                return [*closed, *self._open_call(index, block)]
            case _:
                return closed  # tools that the API carries out by itself are none of ours

    def _open_call(self, index: int, block: Block) -> list[AnyChunk]:
        if not block.name:
            raise nameless()
        opened = OpenBlock(kind="call", id=block.id or f"{self._id or 'call'}_{index}", tool=block.name)
        if block.input:  # some servers send the whole input at once
            opened.pieces.append(msgspec.json.encode(block.input).decode())
        self._open[index] = opened
        return [ToolInputStart(call_id=opened.id, tool=opened.tool)]

    def _grow(self, index: int, delta: Delta) -> list[AnyChunk]:
        opened = self._open.get(index)
        if opened is None:
            return self._open_late(index, delta)
        if delta.text and opened.kind == "text":
            return [TextDelta(id=opened.id, text=delta.text)]
        if opened.kind == "call":
            return opened.write(delta.partial_json or "")
        if opened.kind == "reasoning":
            return opened.think(delta.thinking or "", delta.signature or "")
        return []

    def _open_late(self, index: int, delta: Delta) -> list[AnyChunk]:
        """Words of a block nobody opened: servers that imitate the API forget it."""
        kind = "text" if delta.text else "thinking" if delta.thinking else ""
        if not kind:
            return []
        return [*self._begin(), *self._open_block(index, Block(type=kind)), *self._grow(index, delta)]

    def _close(self, index: int) -> list[AnyChunk]:
        opened = self._open.pop(index, None)
        return [] if opened is None else [opened.close(KEY)]


# --- usage ---


def _counts(usage: dict[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (usage or {}).items() if value is not None}


def to_usage(raw: dict[str, Any]) -> Usage:
    """Input comes without what the cache held; output comes with the thinking, and where it is told apart, so do we."""
    details = raw.get("output_tokens_details")
    details = details if isinstance(details, dict) else {}
    output = count_in(raw, "output_tokens")
    reasoning = min(output, count_in(details, "thinking_tokens") or count_in(details, "reasoning_tokens"))
    return Usage(
        input=count_in(raw, "input_tokens"),
        output=output - reasoning,
        reasoning=reasoning,
        cache_read=count_in(raw, "cache_read_input_tokens"),
        cache_write=count_in(raw, "cache_creation_input_tokens"),
        raw=raw or None,
    )
