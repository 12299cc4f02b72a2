"""Decode Amazon's binary event stream and turn its events into chunks."""

import struct
import zlib
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from weft.errors import ProviderError
from weft.provider.anthropic.stream import OpenBlock
from weft.provider.bedrock.request import KEY
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
from weft.provider.faults import make_error, make_incomplete_error, make_nameless_call_error, parse_error
from weft.provider.sse import MAX_EVENT_BYTES, SseEvent, decode_event, make_too_large_error

REASONS: Final[dict[str, FinishReason]] = {
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
    """Any event of a stream; its frame says which one it is."""

    content_block_index: int = 0
    start: ConverseStart | None = None
    delta: ConverseDelta | None = None
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None
    trace: dict[str, Any] | None = None
    message: str | None = None


_decoder = msgspec.json.Decoder(ConverseEvent, strict=False)


class ConverseFold:
    """Folds the events of one answer. The token counts come after the stop reason and complete the answer."""

    def __init__(self) -> None:
        self.done = False
        self._started = False
        self._open: dict[int, OpenBlock] = {}
        self._reason: str | None = None
        self._metadata: Metadata = {}
        self._count = 0
        self._called = False

    def feed(self, event: SseEvent) -> list[AnyChunk]:
        if self.done:
            return []
        message = decode_event(event.data, _decoder)
        match event.name:
            case "contentBlockDelta" if message.delta is not None:
                return [*self._begin(), *self._grow(message.content_block_index, message.delta)]
            case "messageStart":
                return self._begin()
            case "contentBlockStart" if message.start is not None and message.start.tool_use is not None:
                return [*self._begin(), *self._open_call(message.content_block_index, message.start.tool_use)]
            case "contentBlockStop":
                return self._close(message.content_block_index)
            case "messageStop":
                self._reason = self._reason or message.stop_reason or ""
                return [*self._begin(), *self._close_all()]
            case "metadata":
                return self._finish(message)
            case name if name.endswith(("Exception", "Error")):
                raise _to_error(name, message)
            case _:
                return []  # an event of a later version

    def end(self) -> list[AnyChunk]:
        """Complete the answer. It is complete with a stop reason, even without token counts; else raise `ProviderError`."""
        if self.done:
            return []
        if self._reason is None:
            raise make_incomplete_error("the answer broke off before its end")
        return self._finish(ConverseEvent())

    def _begin(self) -> list[AnyChunk]:
        if self._started:
            return []
        self._started = True
        return [Started()]

    def _finish(self, message: ConverseEvent) -> list[AnyChunk]:
        if self._reason is None:
            raise make_incomplete_error("the answer ended without a stop reason")
        self.done = True
        usage = to_usage(message.usage or {})
        metadata: Metadata = {"usage": {"cacheWriteInputTokens": usage.cache_write}}
        if message.trace is not None:
            metadata["trace"] = message.trace
        reason = REASONS.get(self._reason, "other") if self._reason else "unknown"
        if self._called and reason in {"stop", "unknown", "other"}:
            reason = "tool-calls"
        return [Finished(reason=reason, raw_reason=self._reason, usage=usage, metadata={KEY: metadata})]

    # --- blocks ---

    def _open_call(self, index: int, call: ConverseCallStart) -> list[AnyChunk]:
        if not call.name:
            raise make_nameless_call_error()
        closed, self._called = self._close(index), True
        self._count += 1
        opened = OpenBlock(kind="call", id=call.tool_use_id or f"call_{self._count}", tool=call.name)
        self._open[index] = opened
        return [*closed, ToolInputStart(call_id=opened.id, tool=opened.tool)]

    def _grow(self, index: int, delta: ConverseDelta) -> list[AnyChunk]:
        """Add a delta. Text and reasoning blocks are opened by their first delta: the API announces only tool calls."""
        if delta.text:
            opened, chunks = self._get_open(index, "text")
            return [*chunks, TextDelta(id=opened.id, text=delta.text)]
        if delta.tool_use is not None:
            opened_call = self._open.get(index)
            if opened_call is None or opened_call.kind != "call":
                raise make_nameless_call_error()
            return opened_call.add_input(delta.tool_use.input)
        if delta.reasoning_content is not None:
            return self._think(index, delta.reasoning_content)
        return []

    def _get_open(self, index: int, kind: Literal["text", "reasoning"]) -> tuple[OpenBlock, list[AnyChunk]]:
        opened = self._open.get(index)
        if opened is not None and opened.kind == kind:
            return opened, []
        self._count += 1
        closed, id = self._close(index), f"{kind}-{self._count}"
        self._open[index] = opened = OpenBlock(kind=kind, id=id)
        return opened, [*closed, TextStart(id=id) if kind == "text" else ReasoningStart(id=id)]

    def _think(self, index: int, thought: ConverseThought) -> list[AnyChunk]:
        opened, chunks = self._get_open(index, "reasoning")
        opened.redacted += thought.redacted_content or ""
        return [*chunks, *opened.add_thought(thought.text or "", thought.signature or "")]

    def _close(self, index: int) -> list[AnyChunk]:
        opened = self._open.pop(index, None)
        return [] if opened is None else [opened.close(KEY)]

    def _close_all(self) -> list[AnyChunk]:
        return [chunk for index in list(self._open) for chunk in self._close(index)]


def _to_error(name: str, message: ConverseEvent) -> ProviderError:
    return parse_error(None, {}, msgspec.json.encode({"__type": name, "message": message.message or name}))


def to_usage(raw: dict[str, Any]) -> Usage:
    """Convert token counts. The API's input excludes cached tokens; its output includes the thinking, which is not
    reported.
    """
    return Usage(
        input=read_count(raw, "inputTokens"),
        output=read_count(raw, "outputTokens"),
        cache_read=read_count(raw, "cacheReadInputTokens"),
        cache_write=read_count(raw, "cacheWriteInputTokens"),
        raw=raw or None,
    )


# A frame: its length, the length of its headers, a checksum of both; the headers, the payload, and a checksum of all.
PRELUDE: Final = struct.Struct(">III")
CHECKSUM: Final = struct.Struct(">I")
MIN_FRAME: Final = PRELUDE.size + CHECKSUM.size
TEXT_TYPE: Final = 7
# Size of a header's value in bytes, by its type. Other types begin with their length in two bytes.
VALUE_SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
NAME_HEADERS: Final = (":exception-type", ":error-code", ":event-type")


class ConverseFrameReader:
    """Splits bytes, cut anywhere, into events, named by their type.

    Incomplete data is kept in pieces, so that the work is linear however the data is cut.
    """

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._held = 0
        self._wanted = MIN_FRAME
        self._names: dict[bytes, str] = {}  # one answer has few different headers

    def feed(self, data: bytes) -> list[SseEvent]:
        self._pieces.append(data)
        self._held += len(data)
        if self._held < self._wanted:
            return []
        whole, at = b"".join(self._pieces), 0
        events: list[SseEvent] = []
        self._wanted = MIN_FRAME
        while len(whole) - at >= MIN_FRAME:
            size = self._size(whole, at)
            if len(whole) - at < size:
                self._wanted = size
                break
            events.append(self._event(whole[at : at + size]))
            at += size
        self._pieces, self._held = [whole[at:]], len(whole) - at
        return events

    def end(self) -> list[SseEvent]:
        if self._held:
            raise make_incomplete_error("the answer broke off in the middle of an event")
        return []

    def _size(self, whole: bytes, at: int) -> int:
        size, headers, message = PRELUDE.unpack_from(whole, at)
        if zlib.crc32(whole[at : at + PRELUDE.size - CHECKSUM.size]) != message:
            raise make_error("protocol", "the server did not answer with Amazon's event stream")
        if size > self._limit:
            raise make_too_large_error(self._limit)
        if size < MIN_FRAME + headers:
            raise make_error("protocol", "the server sent an event that is shorter than its headers")
        return int(size)

    def _event(self, frame: bytes) -> SseEvent:
        _, size, _ = PRELUDE.unpack_from(frame)
        end = len(frame) - CHECKSUM.size
        if CHECKSUM.unpack_from(frame, end)[0] != zlib.crc32(frame[:end]):
            raise make_incomplete_error("an event was damaged in transit")
        headers, payload = frame[PRELUDE.size : PRELUDE.size + size], frame[PRELUDE.size + size : end]
        name = self._names.get(headers)
        if name is None:
            name = self._names[headers] = _find_name(headers)
        return SseEvent(name, payload)


def _find_name(raw: bytes) -> str:
    found = parse_headers(raw)
    return next((found[name] for name in NAME_HEADERS if name in found), "")


def parse_headers(raw: bytes) -> dict[str, str]:
    """Return the headers whose value is text."""
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(raw):
            start = at + 1 + raw[at]
            name, kind = raw[at + 1 : start].decode(errors="replace"), raw[start]
            at = start + 1
            size = VALUE_SIZES.get(kind)
            if size is None:
                size = int.from_bytes(raw[at : at + 2], "big")
                at += 2
            if kind == TEXT_TYPE:
                found[name] = raw[at : at + size].decode(errors="replace")
            at += size
    except IndexError:
        raise make_error("protocol", "the server sent an event with unreadable headers") from None
    return found
