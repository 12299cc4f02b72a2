"""The pieces of one answer of Google's `streamGenerateContent`, folded into chunks."""

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
    count_in,
)
from weft.provider.faults import broken, fault, nameless, to_error
from weft.provider.gemini.request import KEY
from weft.provider.sse import SseEvent, decode_data

Kind = Literal["text", "reasoning"]

REASONS: Final[dict[str, FinishReason]] = {
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
# The model wrote something its own API could not read. It does so by chance: the next try is mostly well.
GARBLED: Final = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"})
REFUSED: Final = frozenset({"UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE"})


class FunctionCall(Struct, frozen=True, gc=False):
    name: str = ""
    id: str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class Part(Struct, frozen=True, gc=False, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class Content(Struct, frozen=True, gc=False):
    parts: list[Part] | None = None


class Candidate(Struct, frozen=True, gc=False, rename="camel"):
    content: Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class PromptFeedback(Struct, frozen=True, gc=False, rename="camel"):
    block_reason: str | None = None


class Piece(Struct, frozen=True, gc=False, rename="camel"):
    """As much of an event as we read. What was used is kept unread: only the last word on it counts."""

    candidates: list[Candidate] | None = None
    prompt_feedback: PromptFeedback | None = None
    usage_metadata: msgspec.Raw = msgspec.Raw()
    response_id: str | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(Piece)


class GeminiFold:
    """One answer. `feed` it the events in order, then ask for the `end`; after `done` there is nothing more to come.

    `names` brings the name of a tool on the wire back to ours; `fallback` begins the ids of calls that have none.
    """

    def __init__(self, names: Mapping[str, str], fallback: str) -> None:
        self.done = False
        self._names = names
        self._prefix = fallback
        self._started = False
        self._open: Kind | None = None
        self._signature: str | None = None
        self._blocks = 0
        self._calls: list[str] = []
        self._blocked = False
        self._reason = ""
        self._note = ""
        self._usage = msgspec.Raw()

    def feed(self, sent: SseEvent) -> list[AnyChunk]:
        if self.done or sent.data == b"[DONE]":
            return []
        piece = decode_data(sent.data, _decoder)
        if piece.error is not None or sent.name == "error":
            raise to_error(None, {}, sent.data)
        chunks: list[AnyChunk] = []
        if not self._started:
            self._started = True
            chunks.append(Started(usage=_used(piece.usage_metadata)))
        if piece.response_id:
            self._prefix = piece.response_id
        if piece.usage_metadata:
            self._usage = piece.usage_metadata
        if piece.prompt_feedback is not None and piece.prompt_feedback.block_reason:
            self._reason, self._blocked = piece.prompt_feedback.block_reason, True
        for candidate in (piece.candidates or ())[:1]:
            for part in (candidate.content and candidate.content.parts) or ():
                self._fold(part, chunks)
            if candidate.finish_reason:
                self._reason, self._note = candidate.finish_reason, candidate.finish_message or ""
        # Some servers tell what was used after they told why they stopped.
        self.done = bool(self._reason and piece.usage_metadata)
        return chunks

    def end(self) -> list[AnyChunk]:
        """There is no more to come: close what is open and say how it ended."""
        if not self._reason:
            raise broken("the model's answer broke off before its end")
        chunks: list[AnyChunk] = []
        self._close(chunks)
        reason = self._finish_reason()
        usage = _used(self._usage) or Usage()
        chunks.append(Finished(reason=reason, raw_reason=self._reason, usage=usage))
        return chunks

    def _finish_reason(self) -> FinishReason:
        raw = self._reason
        if self._blocked:
            return "content-filter"
        if self._calls and raw != "MAX_TOKENS":
            return "tool-calls"
        if raw in GARBLED:
            raise fault("server", self._said(f"the model wrote a call that cannot be read ({raw})"))
        if raw in REFUSED:
            raise fault("bad-request", self._said(f"the model's answer was refused ({raw})"))
        return REASONS.get(raw, "other")

    def _said(self, sentence: str) -> str:
        return f"{sentence}: {self._note}" if self._note else sentence

    # --- parts ---

    def _fold(self, part: Part, chunks: list[AnyChunk]) -> None:
        if part.function_call is not None:
            self._close(chunks)
            self._call(part.function_call, part.thought_signature, chunks)
        elif part.text is not None and (part.text or part.thought_signature):
            self._say("reasoning" if part.thought else "text", part, part.text, chunks)

    def _say(self, kind: Kind, part: Part, text: str, chunks: list[AnyChunk]) -> None:
        # What is signed stands for itself: no second signed piece is joined to it.
        if self._open != kind or (self._signature and part.thought_signature):
            self._close(chunks)
            self._open = kind
            self._blocks += 1
            start = TextStart if kind == "text" else ReasoningStart
            chunks.append(start(id=str(self._blocks)))
        if part.thought_signature:
            self._signature = part.thought_signature
        if text:
            delta = TextDelta if kind == "text" else ReasoningDelta
            chunks.append(delta(id=str(self._blocks), text=text))

    def _close(self, chunks: list[AnyChunk]) -> None:
        if self._open is None:
            return
        end = TextEnd if self._open == "text" else ReasoningEnd
        chunks.append(end(id=str(self._blocks), metadata=_metadata(self._signature)))
        self._open = self._signature = None

    def _call(self, call: FunctionCall, signature: str | None, chunks: list[AnyChunk]) -> None:
        if not call.name:
            raise nameless()
        raw = bytes(call.args).decode(errors="replace")
        id = call.id or f"{self._prefix}_{len(self._calls)}"
        if id in self._calls:
            id = f"{id}_{len(self._calls)}"
        self._calls.append(id)
        tool = self._names.get(call.name, call.name)
        chunks += [
            ToolInputStart(call_id=id, tool=tool),
            ToolInputDelta(call_id=id, text="{}" if raw == "null" else raw),
            ToolCall(
                call_id=id,
                tool=tool,
                raw="{}" if raw == "null" else raw,
                metadata=_metadata(signature, call.id),
            ),
        ]


def _metadata(signature: str | None, call_id: str | None = None) -> Metadata | None:
    kept = {"thoughtSignature": signature, "callId": call_id}
    told = {name: value for name, value in kept.items() if value}
    return {KEY: told} if told else None


_counts = msgspec.json.Decoder(dict[str, Any])


def _used(told: msgspec.Raw) -> Usage | None:
    return to_usage(decode_data(bytes(told), _counts)) if told else None


def to_usage(told: Mapping[str, Any] | None) -> Usage:
    """The prompt holds what the cache gave; thoughts are counted beside the answer; what tools read is input too."""
    if told is None:
        return Usage()
    read = count_in(told, "cachedContentTokenCount")
    asked = count_in(told, "promptTokenCount") + count_in(told, "toolUsePromptTokenCount")
    answered, thought = count_in(told, "candidatesTokenCount"), count_in(told, "thoughtsTokenCount")
    if count_in(told, "totalTokenCount") == asked + answered:
        answered = max(0, answered - thought)  # some servers count the thoughts into the answer
    return Usage(
        input=max(0, asked - read),
        output=answered,
        reasoning=thought,
        cache_read=read,
        raw=dict(told),
    )
