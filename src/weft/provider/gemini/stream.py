"""Turn events of Google's `streamGenerateContent` into chunks."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

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
from weft.provider.faults import make_error, make_incomplete_error, make_nameless_call_error, parse_error
from weft.provider.gemini.request import METADATA_KEY
from weft.provider.sse import SseEvent, decode_event

BlockKind = Literal["text", "reasoning"]

FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content-filter",
    "RECITATION": "content-filter",
    "LANGUAGE": "content-filter",
    "BLOCKLIST": "content-filter",
    "PROHIBITED_CONTENT": "content-filter",
    "SPII": "content-filter",
    "IMAGE_SAFETY": "content-filter",
    "IMAGE_PROHIBITED_CONTENT": "content-filter",
    "MODEL_ARMOR": "content-filter",
}
# The API could not parse what the model wrote. A retry usually works.
MALFORMED_REASONS: Final = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"})
REFUSED_REASONS: Final = frozenset(
    {"UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE"}
)


class GeminiFunctionCall(Struct, frozen=True, gc=False):
    name: str = ""
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class GeminiPart(Struct, frozen=True, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: GeminiFunctionCall | None = None


class GeminiContent(Struct, frozen=True, gc=False):
    parts: list[GeminiPart] | None = None


class GeminiCandidate(Struct, frozen=True, gc=False, rename="camel"):
    content: GeminiContent | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class GeminiPromptFeedback(Struct, frozen=True, gc=False, rename="camel"):
    block_reason: str | None = None


class GeminiEvent(Struct, frozen=True, gc=False, rename="camel"):
    """The fields of an event that we read. The usage is decoded only once, from the last event."""

    candidates: list[GeminiCandidate] | None = None
    prompt_feedback: GeminiPromptFeedback | None = None
    usage_metadata: msgspec.Raw = msgspec.Raw()
    response_id: str | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(GeminiEvent)


class GeminiFold:
    """Turns the events of one answer into chunks. Events after `done` are ignored.

    `names` maps the names of tools on the wire to our names. Calls without an id get one with the answer's id as prefix,
    or with `fallback` if that is missing, too.
    """

    def __init__(self, names: Mapping[str, str], fallback: str) -> None:
        self.done = False
        self._names = names
        self._prefix = fallback
        self._started = False
        self._open: BlockKind | None = None
        self._signature: str | None = None
        self._block_count = 0
        self._call_ids: list[str] = []
        self._blocked = False
        self._reason = ""
        self._finish_message = ""
        self._usage = msgspec.Raw()

    def feed(self, sse_event: SseEvent) -> list[AnyChunk]:
        if self.done or sse_event.data == b"[DONE]":
            return []
        event = decode_event(sse_event.data, _decoder)
        if event.error is not None or sse_event.name == "error":
            raise parse_error(None, {}, sse_event.data)
        chunks: list[AnyChunk] = []
        if not self._started:
            self._started = True
            chunks.append(Started(usage=_decode_usage(event.usage_metadata)))
        if event.response_id:
            self._prefix = event.response_id
        if event.usage_metadata:
            self._usage = event.usage_metadata
        if event.prompt_feedback is not None and event.prompt_feedback.block_reason:
            self._reason, self._blocked = event.prompt_feedback.block_reason, True
        for candidate in (event.candidates or ())[:1]:
            for part in (candidate.content and candidate.content.parts) or ():
                self._add_part(part, chunks)
            if candidate.finish_reason:
                self._reason, self._finish_message = candidate.finish_reason, candidate.finish_message or ""
        # Some servers report the usage in an event after the finish reason.
        self.done = bool(self._reason and event.usage_metadata)
        return chunks

    def end(self) -> list[AnyChunk]:
        """Close what is open and return the end of the answer. Raise `ProviderError` if the answer is incomplete or was
        refused.
        """
        if not self._reason:
            raise make_incomplete_error("the answer broke off before its end")
        chunks: list[AnyChunk] = []
        self._close(chunks)
        reason = self._get_finish_reason()
        usage = _decode_usage(self._usage) or Usage()
        chunks.append(Finished(reason=reason, raw_reason=self._reason, usage=usage))
        return chunks

    def _get_finish_reason(self) -> FinishReason:
        raw = self._reason
        if self._blocked:
            return "content-filter"
        if self._call_ids and raw != "MAX_TOKENS":
            return "tool-calls"
        if raw in MALFORMED_REASONS:
            raise make_error(
                "server",
                self._add_finish_message(f"the model wrote a tool call that cannot be parsed ({raw})"),
            )
        if raw in REFUSED_REASONS:
            raise make_error(
                "bad-request", self._add_finish_message(f"the API refused the model's answer ({raw})")
            )
        return FINISH_REASONS.get(raw, "other")

    def _add_finish_message(self, sentence: str) -> str:
        return f"{sentence}: {self._finish_message}" if self._finish_message else sentence

    # --- parts ---

    def _add_part(self, part: GeminiPart, chunks: list[AnyChunk]) -> None:
        if part.function_call is not None:
            self._close(chunks)
            self._add_call(part.function_call, part.thought_signature, chunks)
        elif part.text is not None and (part.text or part.thought_signature):
            self._add_text("reasoning" if part.thought else "text", part, part.text, chunks)

    def _add_text(self, kind: BlockKind, part: GeminiPart, text: str, chunks: list[AnyChunk]) -> None:
        # Each signature needs a block of its own, so a second signed part begins another one.
        if self._open != kind or (self._signature and part.thought_signature):
            self._close(chunks)
            self._open = kind
            self._block_count += 1
            start = TextStart if kind == "text" else ReasoningStart
            chunks.append(start(id=str(self._block_count)))
        if part.thought_signature:
            self._signature = part.thought_signature
        if text:
            delta = TextDelta if kind == "text" else ReasoningDelta
            chunks.append(delta(id=str(self._block_count), text=text))

    def _close(self, chunks: list[AnyChunk]) -> None:
        if self._open is None:
            return
        end = TextEnd if self._open == "text" else ReasoningEnd
        chunks.append(end(id=str(self._block_count), metadata=_to_metadata(self._signature)))
        self._open = self._signature = None

    def _add_call(self, call: GeminiFunctionCall, signature: str | None, chunks: list[AnyChunk]) -> None:
        if not call.name:
            raise make_nameless_call_error()
        raw = bytes(call.args).decode(errors="replace")
        id = call.id or f"{self._prefix}_{len(self._call_ids)}"
        if id in self._call_ids:
            id = f"{id}_{len(self._call_ids)}"
        self._call_ids.append(id)
        tool = self._names.get(call.name, call.name)
        chunks += [
            ToolInputStart(call_id=id, tool=tool),
            ToolInputDelta(call_id=id, text="{}" if raw == "null" else raw),
            ToolCall(
                call_id=id,
                tool=tool,
                raw="{}" if raw == "null" else raw,
                metadata=_to_metadata(signature, call.id),
            ),
        ]


def _to_metadata(signature: str | None, call_id: str | None = None) -> Metadata | None:
    fields = {"thoughtSignature": signature, "callId": call_id}
    present = {name: value for name, value in fields.items() if value}
    return {METADATA_KEY: present} if present else None


_counts_decoder = msgspec.json.Decoder(dict[str, Any])


def _decode_usage(report: msgspec.Raw) -> Usage | None:
    return to_usage(decode_event(bytes(report), _counts_decoder)) if report else None


def to_usage(report: Mapping[str, Any] | None) -> Usage:
    """Convert token counts. The prompt count includes cached tokens. Tool use counts as input. Thoughts have a count of
    their own.
    """
    if report is None:
        return Usage()
    cache_read = read_count(report, "cachedContentTokenCount")
    prompt = read_count(report, "promptTokenCount") + read_count(report, "toolUsePromptTokenCount")
    output, reasoning = read_count(report, "candidatesTokenCount"), read_count(report, "thoughtsTokenCount")
    if read_count(report, "totalTokenCount") == prompt + output:
        output = max(0, output - reasoning)  # some servers include the thoughts in the answer
    return Usage(
        input=max(0, prompt - cache_read),
        output=output,
        reasoning=reasoning,
        cache_read=cache_read,
        raw=dict(report),
    )
