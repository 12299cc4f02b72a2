"""Decode Amazon's binary event stream and fold its events into chunks."""

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
    count_in,
)
from weft.provider.faults import broken, fault, nameless, to_error
from weft.provider.sse import MAX_EVENT, SseEvent, decode_data, too_big

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


class CallStart(Struct, rename="camel"):
    tool_use_id: str = ""
    name: str = ""


class Start(Struct, rename="camel"):
    tool_use: CallStart | None = None


class CallDelta(Struct):
    input: str = ""


class Thought(Struct, rename="camel"):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class Delta(Struct, rename="camel"):
    text: str | None = None
    tool_use: CallDelta | None = None
    reasoning_content: Thought | None = None


class Event(Struct, rename="camel"):
    """Every event of a stream; its frame says which it is."""

    content_block_index: int = 0
    start: Start | None = None
    delta: Delta | None = None
    stop_reason: str | None = None
    usage: dict[str, Any] | None = None
    trace: dict[str, Any] | None = None
    message: str | None = None


_decoder = msgspec.json.Decoder(Event, strict=False)


class ConverseFold:
    """One answer. The count of tokens comes after the reason to stop, and only then is it whole."""

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
        told = decode_data(event.data, _decoder)
        match event.name:
            case "contentBlockDelta" if told.delta is not None:
                return [*self._begin(), *self._grow(told.content_block_index, told.delta)]
            case "messageStart":
                return self._begin()
            case "contentBlockStart" if told.start is not None and told.start.tool_use is not None:
                return [*self._begin(), *self._open_call(told.content_block_index, told.start.tool_use)]
            case "contentBlockStop":
                return self._close(told.content_block_index)
            case "messageStop":
                self._reason = self._reason or told.stop_reason or ""
                return [*self._begin(), *self._close_all()]
            case "metadata":
                return self._finish(told)
            case name if name.endswith(("Exception", "Error")):
                raise _failure(name, told)
            case _:
                return []  # what a later version tells

    def end(self) -> list[AnyChunk]:
        """The events are over. Whole is what came with a reason to stop, even where nothing was counted."""
        if self.done:
            return []
        if self._reason is None:
            raise broken("the model's answer broke off before its end")
        return self._finish(Event())

    def _begin(self) -> list[AnyChunk]:
        if self._started:
            return []
        self._started = True
        return [Started()]

    def _finish(self, told: Event) -> list[AnyChunk]:
        if self._reason is None:
            raise broken("the model's answer ended without a reason")
        self.done = True
        usage = to_usage(told.usage or {})
        metadata: Metadata = {"usage": {"cacheWriteInputTokens": usage.cache_write}}
        if told.trace is not None:
            metadata["trace"] = told.trace
        reason = REASONS.get(self._reason, "other") if self._reason else "unknown"
        if self._called and reason in {"stop", "unknown", "other"}:
            reason = "tool-calls"
        return [Finished(reason=reason, raw_reason=self._reason, usage=usage, metadata={KEY: metadata})]

    # --- blocks ---

    def _open_call(self, index: int, call: CallStart) -> list[AnyChunk]:
        if not call.name:
            raise nameless()
        closed, self._called = self._close(index), True
        self._count += 1
        opened = OpenBlock(kind="call", id=call.tool_use_id or f"call_{self._count}", tool=call.name)
        self._open[index] = opened
        return [*closed, ToolInputStart(call_id=opened.id, tool=opened.tool)]

    def _grow(self, index: int, delta: Delta) -> list[AnyChunk]:
        """Words and thoughts are opened by their first piece: this API tells of the start of calls alone."""
        if delta.text:
            opened, chunks = self._opened(index, "text")
            return [*chunks, TextDelta(id=opened.id, text=delta.text)]
        if delta.tool_use is not None:
            opened_call = self._open.get(index)
            if opened_call is None or opened_call.kind != "call":
                raise nameless()
            return opened_call.write(delta.tool_use.input)
        if delta.reasoning_content is not None:
            return self._think(index, delta.reasoning_content)
        return []

    def _opened(self, index: int, kind: Literal["text", "reasoning"]) -> tuple[OpenBlock, list[AnyChunk]]:
        opened = self._open.get(index)
        if opened is not None and opened.kind == kind:
            return opened, []
        self._count += 1
        closed, id = self._close(index), f"{kind}-{self._count}"
        self._open[index] = opened = OpenBlock(kind=kind, id=id)
        return opened, [*closed, TextStart(id=id) if kind == "text" else ReasoningStart(id=id)]

    def _think(self, index: int, thought: Thought) -> list[AnyChunk]:
        opened, chunks = self._opened(index, "reasoning")
        opened.redacted += thought.redacted_content or ""
        return [*chunks, *opened.think(thought.text or "", thought.signature or "")]

    def _close(self, index: int) -> list[AnyChunk]:
        opened = self._open.pop(index, None)
        return [] if opened is None else [opened.close(KEY)]

    def _close_all(self) -> list[AnyChunk]:
        return [chunk for index in list(self._open) for chunk in self._close(index)]


def _failure(name: str, told: Event) -> ProviderError:
    return to_error(None, {}, msgspec.json.encode({"__type": name, "message": told.message or name}))


def to_usage(raw: dict[str, Any]) -> Usage:
    """Input comes without what the cache held; thinking is counted with the output and nowhere told apart."""
    return Usage(
        input=count_in(raw, "inputTokens"),
        output=count_in(raw, "outputTokens"),
        cache_read=count_in(raw, "cacheReadInputTokens"),
        cache_write=count_in(raw, "cacheWriteInputTokens"),
        raw=raw or None,
    )


# A frame: its length, that of its headers, a sum over both; headers, payload, and a sum over all before it.
PRELUDE: Final = struct.Struct(">III")
SUM: Final = struct.Struct(">I")
LEAST: Final = PRELUDE.size + SUM.size
TEXT: Final = 7
# Bytes that a header's value takes, by its type; those not here begin with their length in two bytes.
SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
NAMES: Final = (":exception-type", ":error-code", ":event-type")


class FrameReader:
    """Feed it what arrives, cut anywhere; it gives back the events that became whole, named by their type.

    What is not whole is kept in pieces, so the work is linear however it was cut.
    """

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._held = 0
        self._wanted = LEAST
        self._names: dict[bytes, str] = {}  # of the few kinds of headers one answer has

    def feed(self, data: bytes) -> list[SseEvent]:
        self._pieces.append(data)
        self._held += len(data)
        if self._held < self._wanted:
            return []
        whole, at = b"".join(self._pieces), 0
        events: list[SseEvent] = []
        self._wanted = LEAST
        while len(whole) - at >= LEAST:
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
            raise broken("the model's answer broke off in the middle of an event")
        return []

    def _size(self, whole: bytes, at: int) -> int:
        size, headers, told = PRELUDE.unpack_from(whole, at)
        if zlib.crc32(whole[at : at + PRELUDE.size - SUM.size]) != told:
            raise fault("protocol", "the server does not answer in Amazon's event stream")
        if size > self._limit:
            raise too_big(self._limit)
        if size < LEAST + headers:
            raise fault("protocol", "the server sent an event that is shorter than its own headers")
        return int(size)

    def _event(self, frame: bytes) -> SseEvent:
        _, size, _ = PRELUDE.unpack_from(frame)
        end = len(frame) - SUM.size
        if SUM.unpack_from(frame, end)[0] != zlib.crc32(frame[:end]):
            raise broken("an event was damaged on its way")
        headers, payload = frame[PRELUDE.size : PRELUDE.size + size], frame[PRELUDE.size + size : end]
        name = self._names.get(headers)
        if name is None:
            name = self._names[headers] = _name(headers)
        return SseEvent(name, payload)


def _name(raw: bytes) -> str:
    found = to_headers(raw)
    return next((found[name] for name in NAMES if name in found), "")


def to_headers(raw: bytes) -> dict[str, str]:
    """The headers that are text; others have nothing for us."""
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(raw):
            start = at + 1 + raw[at]
            name, kind = raw[at + 1 : start].decode(errors="replace"), raw[start]
            at = start + 1
            size = SIZES.get(kind)
            if size is None:
                size = int.from_bytes(raw[at : at + 2], "big")
                at += 2
            if kind == TEXT:
                found[name] = raw[at : at + size].decode(errors="replace")
            at += size
    except IndexError:
        raise fault("protocol", "the server sent an event with headers we cannot read") from None
    return found
