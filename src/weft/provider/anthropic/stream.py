"""Turn events of Anthropic's Messages API into chunks."""

from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from weft.provider.anthropic.request import METADATA_KEY, get_trailing_space, to_signature_metadata
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
    read_count,
)
from weft.provider.faults import make_incomplete_error, make_nameless_call_error, parse_error
from weft.provider.sse import SseEvent, decode_event


class OpenBlock(Struct):
    """A content block that is not closed yet: its kind, the id of its chunks, and what has arrived of it."""

    kind: Literal["text", "reasoning", "call"]
    id: str
    tool: str = ""
    pieces: list[str] = []
    tail: str = ""
    signature: str = ""
    redacted: str = ""

    def add_input(self, text: str) -> list[AnyChunk]:
        """Add a piece of a tool call's input."""
        if not text:
            return []
        self.pieces.append(text)
        return [ToolInputDelta(call_id=self.id, text=text)]

    def add_thought(self, text: str, signature: str) -> list[AnyChunk]:
        """Add a piece of a thought or of its signature."""
        self.signature += signature
        if not text:
            return []
        self.tail = get_trailing_space(self.tail, text)
        return [ReasoningDelta(id=self.id, text=text)]

    def close(self, key: str) -> AnyChunk:
        """Return the chunk that ends the block. Its signature goes into the metadata under `key`."""
        match self.kind:
            case "text":
                return TextEnd(id=self.id)
            case "call":
                raw = "".join(self.pieces)
                return ToolCall(call_id=self.id, tool=self.tool, raw=raw if raw.strip() else "{}")
            case "reasoning":
                redacted = {key: {"redactedData": self.redacted}} if self.redacted else None
                return ReasoningEnd(
                    id=self.id, metadata=redacted or to_signature_metadata(key, self.signature, self.tail)
                )


FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content-filter",
    "pause_turn": "other",
}


class AnthropicDelta(Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None


class AnthropicBlock(Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: dict[str, Any] | None = None


class AnthropicMessage(Struct):
    id: str = ""
    usage: dict[str, Any] | None = None


class AnthropicEvent(Struct):
    type: str = ""
    index: int = 0
    delta: AnthropicDelta | None = None
    content_block: AnthropicBlock | None = None
    message: AnthropicMessage | None = None
    usage: dict[str, Any] | None = None
    error: Raw = Raw(b"")


_decoder = msgspec.json.Decoder(AnthropicEvent, strict=False)


class AnthropicFold:
    """Turns the events of one answer into chunks. Events after `done` are ignored."""

    def __init__(self) -> None:
        self.done = False
        self._id = ""
        self._started = False
        self._open: dict[int, OpenBlock] = {}
        self._usage: dict[str, Any] = {}
        self._reason: str | None = None
        self._stop_sequence: str | None = None

    def feed(self, sse_event: SseEvent) -> list[AnyChunk]:
        if self.done:
            return []
        event = decode_event(sse_event.data, _decoder)
        if event.type == "content_block_delta" and event.delta is not None:
            return self._add_delta(event.index, event.delta)
        match event.type:
            case "message_start":
                return self._read_message_start(event.message or AnthropicMessage())
            case "content_block_start":
                return [
                    *self._emit_started(),
                    *self._open_block(event.index, event.content_block or AnthropicBlock()),
                ]
            case "content_block_stop":
                return self._close(event.index)
            case "message_delta":
                self._read_message_delta(event)
                return []
            case "message_stop":
                return self._finish()
            case "error":
                raise parse_error(None, {}, sse_event.data)
            case _:
                if bytes(event.error) not in (b"", b"null"):
                    raise parse_error(None, {}, sse_event.data)
                return []  # a ping, or an event of a later version

    def end(self) -> list[AnyChunk]:
        """Complete the answer. It is complete with a stop reason, even if the last event is missing; else raise
        `ProviderError`.
        """
        if self.done:
            return []
        if self._reason is None:
            raise make_incomplete_error("the answer broke off before its end")
        return self._finish()

    # --- begin and end ---

    def _emit_started(self) -> list[AnyChunk]:
        if self._started:
            return []
        self._started = True
        return [Started(usage=to_usage(dict(self._usage)) if self._usage else None)]

    def _read_message_start(self, message: AnthropicMessage) -> list[AnyChunk]:
        self._id = message.id
        self._usage |= _drop_none(message.usage)
        return self._emit_started()

    def _read_message_delta(self, event: AnthropicEvent) -> None:
        self._usage |= _drop_none(event.usage)
        if event.delta is not None and self._reason is None:
            self._reason = event.delta.stop_reason
            self._stop_sequence = event.delta.stop_sequence

    def _finish(self) -> list[AnyChunk]:
        if not self._started or (self._reason is None and not self._usage.get("output_tokens")):
            raise make_incomplete_error("the answer ended before it began")
        self.done = True
        closed = [chunk for index in list(self._open) for chunk in self._close(index)]
        usage = to_usage(self._usage)
        metadata: Metadata = {METADATA_KEY: {"cacheCreationInputTokens": usage.cache_write}}
        if self._stop_sequence is not None:
            metadata[METADATA_KEY]["stopSequence"] = self._stop_sequence
        reason = FINISH_REASONS.get(self._reason, "other") if self._reason else "unknown"
        return [
            *closed,
            Finished(reason=reason, raw_reason=self._reason or "", usage=usage, metadata=metadata),
        ]

    # --- blocks ---

    def _open_block(self, index: int, block: AnthropicBlock) -> list[AnyChunk]:
        closed = self._close(index)
        id = f"{self._id}:{index}"
        match block.type:
            case "text":
                self._open[index] = OpenBlock(kind="text", id=id)
                return [*closed, TextStart(id=id), *self._add_delta(index, AnthropicDelta(text=block.text))]
            case "thinking":
                self._open[index] = OpenBlock(kind="reasoning", id=id, signature=block.signature or "")
                return [
                    *closed,
                    ReasoningStart(id=id),
                    *self._add_delta(index, AnthropicDelta(thinking=block.thinking)),
                ]
            case "redacted_thinking":
                self._open[index] = OpenBlock(kind="reasoning", id=id, redacted=block.data or "")
                return [*closed, ReasoningStart(id=id, metadata={METADATA_KEY: {"redactedData": block.data}})]
            case "tool_use":
                return [*closed, *self._open_call(index, block)]
            case _:
                return closed  # blocks of tools that the API runs itself are ignored

    def _open_call(self, index: int, block: AnthropicBlock) -> list[AnyChunk]:
        if not block.name:
            raise make_nameless_call_error()
        open_block = OpenBlock(kind="call", id=block.id or f"{self._id or 'call'}_{index}", tool=block.name)
        if block.input:  # some servers send the whole input at once
            open_block.pieces.append(msgspec.json.encode(block.input).decode())
        self._open[index] = open_block
        return [ToolInputStart(call_id=open_block.id, tool=open_block.tool)]

    def _add_delta(self, index: int, delta: AnthropicDelta) -> list[AnyChunk]:
        block = self._open.get(index)
        if block is None:
            return self._open_without_start(index, delta)
        if delta.text and block.kind == "text":
            return [TextDelta(id=block.id, text=delta.text)]
        if block.kind == "call":
            return block.add_input(delta.partial_json or "")
        if block.kind == "reasoning":
            return block.add_thought(delta.thinking or "", delta.signature or "")
        return []

    def _open_without_start(self, index: int, delta: AnthropicDelta) -> list[AnyChunk]:
        """Open a block when its first delta arrives: servers that imitate the API omit the start event."""
        kind = "text" if delta.text else "thinking" if delta.thinking else ""
        if not kind:
            return []
        return [
            *self._emit_started(),
            *self._open_block(index, AnthropicBlock(type=kind)),
            *self._add_delta(index, delta),
        ]

    def _close(self, index: int) -> list[AnyChunk]:
        block = self._open.pop(index, None)
        return [] if block is None else [block.close(METADATA_KEY)]


# --- usage ---


def _drop_none(usage: dict[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (usage or {}).items() if value is not None}


def to_usage(raw: dict[str, Any]) -> Usage:
    """Convert token counts. The API's input count excludes cached tokens. Its output count includes the thinking, which
    we subtract if it is reported.
    """
    details = raw.get("output_tokens_details")
    details = details if isinstance(details, dict) else {}
    output = read_count(raw, "output_tokens")
    reasoning = min(output, read_count(details, "thinking_tokens") or read_count(details, "reasoning_tokens"))
    return Usage(
        input=read_count(raw, "input_tokens"),
        output=output - reasoning,
        reasoning=reasoning,
        cache_read=read_count(raw, "cache_read_input_tokens"),
        cache_write=read_count(raw, "cache_creation_input_tokens"),
        raw=raw or None,
    )
