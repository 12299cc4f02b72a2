"""Decode Amazon's binary event stream and turn its events into chunks."""

import struct
import zlib
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from weft.errors import ProviderError
from weft.provider.anthropic.stream import OpenBlock
from weft.provider.bedrock.request import METADATA_KEY
from weft.provider.chunk import (
    AnyChunk,
    Finished,
    FinishReason,
    Metadata,
    ReasoningStart,
    Started,
    TextDelta,
    TextStart,
    ToolInputStart,
    Usage,
    read_count,
)
from weft.provider.faults import (
    make_error,
    make_incomplete_error,
    make_nameless_call_error,
    make_unreadable_error,
    parse_error,
)
from weft.provider.sse import MAX_EVENT_BYTES, SseEvent, decode_event, make_too_large_error

FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "content_filtered": "content-filter",
    "guardrail_intervened": "content-filter",
    "malformed_model_output": "error",
    "malformed_tool_use": "error",
}


class ConverseCallStart(Struct, rename="camel"):
    tool_use_id: str = ""
    name: str = ""


class ConverseStart(Struct, rename="camel"):
    tool_use: ConverseCallStart | None = None


class ConverseCallDelta(Struct):
    input: str = ""


class ConverseThought(Struct, rename="camel"):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class ConverseDelta(Struct, rename="camel"):
    text: str | None = None
    tool_use: ConverseCallDelta | None = None
    reasoning_content: ConverseThought | None = None


class ConverseEvent(Struct, rename="camel"):
    """An event of any type. The header of its frame names the type."""

    content_block_index: int = 0
    start: ConverseStart | None = None
    delta: ConverseDelta | None = None
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None
    trace: dict[str, Any] | None = None
    message: str | None = None


_decoder = msgspec.json.Decoder(ConverseEvent, strict=False)


class ConverseFold:
    """Turns the events of one answer into chunks. The token counts come after the stop reason and complete the answer."""

    def __init__(self) -> None:
        self.done = False
        self._started = False
        self._open: dict[int, OpenBlock] = {}
        self._reason: str | None = None
        self._metadata: Metadata = {}
        self._count = 0
        self._has_calls = False

    def feed(self, sse_event: SseEvent) -> list[AnyChunk]:
        if self.done:
            return []
        event = decode_event(sse_event.data, _decoder)
        match sse_event.name:
            case "contentBlockDelta" if event.delta is not None:
                return [*self._emit_started(), *self._add_delta(event.content_block_index, event.delta)]
            case "messageStart":
                return self._emit_started()
            case "contentBlockStart" if event.start is not None and event.start.tool_use is not None:
                return [
                    *self._emit_started(),
                    *self._open_call(event.content_block_index, event.start.tool_use),
                ]
            case "contentBlockStop":
                return self._close(event.content_block_index)
            case "messageStop":
                self._reason = self._reason or event.stop_reason or ""
                return [*self._emit_started(), *self._close_all()]
            case "metadata":
                return self._finish(event)
            case name if name.endswith(("Exception", "Error")):
                raise _to_error(name, event)
            case _:
                return []  # an event of a later version

    def end(self) -> list[AnyChunk]:
        """Complete the answer. It is complete with a stop reason, even without token counts; else raise `ProviderError`."""
        if self.done:
            return []
        if self._reason is None:
            raise make_incomplete_error("the answer broke off before its end")
        return self._finish(ConverseEvent())

    def _emit_started(self) -> list[AnyChunk]:
        if self._started:
            return []
        self._started = True
        return [Started()]

    def _finish(self, event: ConverseEvent) -> list[AnyChunk]:
        if self._reason is None:
            raise make_incomplete_error("the answer ended without a stop reason")
        self.done = True
        usage = to_usage(event.usage or {})
        metadata: Metadata = {"usage": {"cacheWriteInputTokens": usage.cache_write}}
        if event.trace is not None:
            metadata["trace"] = event.trace
        reason = FINISH_REASONS.get(self._reason, "other") if self._reason else "unknown"
        if self._has_calls and reason in {"stop", "unknown", "other"}:
            reason = "tool-calls"
        return [
            Finished(reason=reason, raw_reason=self._reason, usage=usage, metadata={METADATA_KEY: metadata})
        ]

    # --- blocks ---

    def _open_call(self, index: int, call: ConverseCallStart) -> list[AnyChunk]:
        if not call.name:
            raise make_nameless_call_error()
        closed, self._has_calls = self._close(index), True
        self._count += 1
        block = OpenBlock(kind="call", id=call.tool_use_id or f"call_{self._count}", tool=call.name)
        self._open[index] = block
        return [*closed, ToolInputStart(call_id=block.id, tool=block.tool)]

    def _add_delta(self, index: int, delta: ConverseDelta) -> list[AnyChunk]:
        """Add a delta. Text and reasoning blocks are opened by their first delta: the API announces only tool calls."""
        if delta.text:
            block, chunks = self._get_or_open(index, "text")
            return [*chunks, TextDelta(id=block.id, text=delta.text)]
        if delta.tool_use is not None:
            call = self._open.get(index)
            if call is None or call.kind != "call":
                raise make_nameless_call_error()
            return call.add_input(delta.tool_use.input)
        if delta.reasoning_content is not None:
            return self._add_thought(index, delta.reasoning_content)
        return []

    def _get_or_open(
        self, index: int, kind: Literal["text", "reasoning"]
    ) -> tuple[OpenBlock, list[AnyChunk]]:
        block = self._open.get(index)
        if block is not None and block.kind == kind:
            return block, []
        self._count += 1
        closed, id = self._close(index), f"{kind}-{self._count}"
        self._open[index] = block = OpenBlock(kind=kind, id=id)
        return block, [*closed, TextStart(id=id) if kind == "text" else ReasoningStart(id=id)]

    def _add_thought(self, index: int, thought: ConverseThought) -> list[AnyChunk]:
        block, chunks = self._get_or_open(index, "reasoning")
        block.redacted += thought.redacted_content or ""
        return [*chunks, *block.add_thought(thought.text or "", thought.signature or "")]

    def _close(self, index: int) -> list[AnyChunk]:
        block = self._open.pop(index, None)
        return [] if block is None else [block.close(METADATA_KEY)]

    def _close_all(self) -> list[AnyChunk]:
        return [chunk for index in list(self._open) for chunk in self._close(index)]


def _to_error(name: str, event: ConverseEvent) -> ProviderError:
    return parse_error(None, {}, msgspec.json.encode({"__type": name, "message": event.message or name}))


def to_usage(raw: dict[str, Any]) -> Usage:
    """Convert token counts. The API's input count excludes cached tokens. Its output count includes the thinking, which
    it does not report.
    """
    return Usage(
        input=read_count(raw, "inputTokens"),
        output=read_count(raw, "outputTokens"),
        cache_read=read_count(raw, "cacheReadInputTokens"),
        cache_write=read_count(raw, "cacheWriteInputTokens"),
        raw=raw or None,
    )


# A frame holds its length, the length of its headers, a checksum of both, the headers, the payload, and a checksum of
# everything before.
PRELUDE: Final = struct.Struct(">III")
CHECKSUM: Final = struct.Struct(">I")
MIN_FRAME_BYTES: Final = PRELUDE.size + CHECKSUM.size
TEXT_TYPE: Final = 7
# Size of a header's value in bytes, by its type. Other types begin with their length in two bytes.
VALUE_SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
NAME_HEADERS: Final = (":exception-type", ":error-code", ":event-type")


class ConverseFrameReader:
    """Splits a stream of bytes into events, named by their type. The bytes may be cut anywhere.

    Incomplete data is kept in pieces, so that the time is linear even for tiny pieces.
    """

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._held_bytes = 0
        self._needed_bytes = MIN_FRAME_BYTES
        self._names: dict[bytes, str] = {}  # one answer has few different headers

    def feed(self, data: bytes) -> list[SseEvent]:
        self._pieces.append(data)
        self._held_bytes += len(data)
        if self._held_bytes < self._needed_bytes:
            return []
        buffer, offset = b"".join(self._pieces), 0
        events: list[SseEvent] = []
        self._needed_bytes = MIN_FRAME_BYTES
        while len(buffer) - offset >= MIN_FRAME_BYTES:
            size = self._read_size(buffer, offset)
            if len(buffer) - offset < size:
                self._needed_bytes = size
                break
            events.append(self._read_event(buffer[offset : offset + size]))
            offset += size
        self._pieces, self._held_bytes = [buffer[offset:]], len(buffer) - offset
        return events

    def end(self) -> list[SseEvent]:
        if self._held_bytes:
            raise make_incomplete_error("the answer broke off in the middle of an event")
        return []

    def _read_size(self, buffer: bytes, offset: int) -> int:
        size, header_size, checksum = PRELUDE.unpack_from(buffer, offset)
        if zlib.crc32(buffer[offset : offset + PRELUDE.size - CHECKSUM.size]) != checksum:
            raise make_error("protocol", "the server did not answer with Amazon's event stream")
        if size > self._limit:
            raise make_too_large_error(self._limit)
        if size < MIN_FRAME_BYTES + header_size:
            raise make_unreadable_error("the server sent an event that is shorter than its headers")
        return int(size)

    def _read_event(self, frame: bytes) -> SseEvent:
        _, header_size, _ = PRELUDE.unpack_from(frame)
        end = len(frame) - CHECKSUM.size
        if CHECKSUM.unpack_from(frame, end)[0] != zlib.crc32(frame[:end]):
            raise make_incomplete_error("an event was damaged in transit")
        headers, payload = (
            frame[PRELUDE.size : PRELUDE.size + header_size],
            frame[PRELUDE.size + header_size : end],
        )
        name = self._names.get(headers)
        if name is None:
            name = self._names[headers] = _find_name(headers)
        return SseEvent(name, payload)


def _find_name(raw: bytes) -> str:
    headers = parse_headers(raw)
    return next((headers[name] for name in NAME_HEADERS if name in headers), "")


def parse_headers(raw: bytes) -> dict[str, str]:
    """Return the headers whose value is text."""
    headers: dict[str, str] = {}
    offset = 0
    try:
        while offset < len(raw):
            start = offset + 1 + raw[offset]
            name, kind = raw[offset + 1 : start].decode(errors="replace"), raw[start]
            offset = start + 1
            size = VALUE_SIZES.get(kind)
            if size is None:
                size = int.from_bytes(raw[offset : offset + 2], "big")
                offset += 2
            if kind == TEXT_TYPE:
                headers[name] = raw[offset : offset + size].decode(errors="replace")
            offset += size
    except IndexError:
        raise make_unreadable_error("the server sent an event with unreadable headers") from None
    return headers
