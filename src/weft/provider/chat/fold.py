"""Events of OpenAI's Chat Completions, and of the many servers that speak it in their own way, to chunks."""

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from weft.errors import DocumentError
from weft.model.wire import parse
from weft.provider.chat.calls import CallDelta, CallsFold
from weft.provider.chat.request import DETAILS
from weft.provider.chat.think_tags import Kind, ThinkSplitter
from weft.provider.chat.usage import to_usage
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
    Usage,
)
from weft.provider.faults import broken, to_error
from weft.provider.sse import SseEvent, decode_data

LAST: Final = b"[DONE]"
REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content-filter",
    "sensitive": "content-filter",
    "tool_calls": "tool-calls",
    "function_call": "tool-calls",
    "tool_use": "tool-calls",
    "error": "error",
    "network_error": "error",
    "insufficient_system_resource": "error",
}


NOTHING: Final = Raw(b"")


class Delta(Struct):
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    tool_calls: list[CallDelta] | None = None


class Choice(Struct):
    index: int | None = 0
    delta: Delta | None = None
    finish_reason: str | None = None
    usage: Raw = NOTHING


class Groq(Struct):
    usage: Raw = NOTHING


class Event(Struct):
    id: str | int | None = None
    object: str | None = None
    choices: list[Choice] | None = None
    usage: Raw = NOTHING
    error: Raw = NOTHING
    x_groq: Groq | None = None


_decoder = msgspec.json.Decoder(Event, strict=False)


class OpenAIChatFold:
    """One answer. `feed` it the events in order; after `done` there is nothing more to come.

    `key` is the provider's, under which it finds again what it wants to see again.
    """

    def __init__(self, key: str = "openai") -> None:
        self.done = False
        self._key = key
        self._started = False
        self._reason: str | None = None
        self._usage: bytes | None = None
        self._split = ThinkSplitter()
        self._open: tuple[Kind, str] | None = None
        self._count = 0
        self._details: list[dict[str, Any]] = []
        self._calls = CallsFold()

    def feed(self, event: SseEvent) -> list[AnyChunk]:
        if self.done:
            return []
        if event.data.startswith(LAST):
            return self._finish()
        if event.name == "error":
            raise to_error(None, {}, event.data)
        told = decode_data(event.data, _decoder)
        if _present(told.error) is not None or told.object == "error":
            raise to_error(None, {}, event.data)
        return self._take(told)

    def end(self) -> list[AnyChunk]:
        """The events are over. Whole is what came with a reason to stop, even where the last word is missing."""
        if self.done:
            return []
        if self._reason is None:
            raise broken("the model's answer broke off before its end")
        return self._finish()

    def _take(self, told: Event) -> list[AnyChunk]:
        chunks: list[AnyChunk] = []
        usage = _present(told.usage) or _present(told.x_groq.usage if told.x_groq else NOTHING)
        if not self._started:
            self._started = True
            self._calls.answer = str(told.id or "call")
            chunks.append(Started(usage=_used(usage) if usage is not None else None))
        for choice in told.choices or ():
            if choice.index:
                continue  # we ask for one answer
            if choice.delta is not None and self._reason is None:
                chunks += self._grow(choice.delta)
            if choice.finish_reason and self._reason is None:
                self._reason = choice.finish_reason
                chunks += self._close_all()
            usage = usage or _present(choice.usage)
        self._usage = usage or self._usage
        return chunks

    def _finish(self) -> list[AnyChunk]:
        if not self._started:
            raise broken("the model's answer ended before it began")
        closed = self._close_all()
        if self._reason is None and not self._count and not self._calls.told:
            raise broken("the model's answer ended without a word")
        self.done = True
        reason: FinishReason = REASONS.get(self._reason.lower(), "other") if self._reason else "unknown"
        # OpenCode believes a `stop` that comes with calls, and their results never reach the model.
        if self._calls.told and reason in {"stop", "unknown", "other"}:
            reason = "tool-calls"
        return [*closed, Finished(reason=reason, raw_reason=self._reason or "", usage=_used(self._usage))]

    # --- words ---

    def _grow(self, delta: Delta) -> list[AnyChunk]:
        chunks = self._think(delta)
        said = delta.content or delta.refusal
        if isinstance(said, str):
            chunks += self._say(said)
        for kind, text in _pieces(said) if isinstance(said, list) else ():
            chunks += self._say(text) if kind == "text" else self._words("reasoning", text)
        if delta.tool_calls:
            chunks += self._flush()
            for call in delta.tool_calls:
                chunks += self._calls.feed(call)
        return chunks

    def _say(self, text: str) -> list[AnyChunk]:
        return [chunk for kind, piece in self._split.feed(text) for chunk in self._words(kind, piece)]

    def _think(self, delta: Delta) -> list[AnyChunk]:
        if delta.reasoning_details:
            for detail in delta.reasoning_details:
                _join(self._details, detail)
            text = "".join(
                str(each.get("text") or each.get("summary") or "") for each in delta.reasoning_details
            )
            return self._words("reasoning", text or delta.reasoning or "")
        return self._words("reasoning", delta.reasoning_content or delta.reasoning or "")

    def _words(self, kind: Kind, text: str) -> list[AnyChunk]:
        if not text:
            return []
        opened: list[AnyChunk] = []
        if self._open is None or self._open[0] != kind:
            opened = self._close_words()
            self._count += 1
            id = f"{kind}-{self._count}"
            self._open = (kind, id)
            opened.append(TextStart(id=id) if kind == "text" else ReasoningStart(id=id))
        id = self._open[1]
        return [*opened, TextDelta(id=id, text=text) if kind == "text" else ReasoningDelta(id=id, text=text)]

    def _flush(self) -> list[AnyChunk]:
        held = [chunk for kind, piece in self._split.end() for chunk in self._words(kind, piece)]
        return [*held, *self._close_words()]

    def _close_words(self) -> list[AnyChunk]:
        opened, self._open = self._open, None
        if opened is None:
            return []
        kind, id = opened
        return [TextEnd(id=id) if kind == "text" else ReasoningEnd(id=id, metadata=self._kept())]

    def _kept(self) -> Metadata | None:
        details, self._details = self._details, []
        return {self._key: {DETAILS: details}} if details else None

    def _close_all(self) -> list[AnyChunk]:
        chunks = [*self._flush(), *self._calls.end()]
        if self._details:  # thoughts that came after the words, or without any
            self._count += 1
            id = f"reasoning-{self._count}"
            chunks += [ReasoningStart(id=id), ReasoningEnd(id=id, metadata=self._kept())]
        return chunks


def _used(told: bytes | None) -> Usage:
    try:
        counts = parse(told) if told is not None else None
    except DocumentError:
        counts = None
    return to_usage(counts if isinstance(counts, dict) else {})


def _present(raw: Raw) -> bytes | None:
    if raw is NOTHING:  # as in all events but a few
        return None
    said = bytes(raw)
    return None if said in (b"", b"null") else said


def _pieces(content: list[Any]) -> list[tuple[Kind, str]]:
    """What Mistral's thinking models send for a text: a list of texts and thoughts."""
    found: list[tuple[Kind, str]] = []
    for item in content:
        if isinstance(item, dict) and item.get("type") == "thinking":
            inner = item.get("thinking")
            parts = inner if isinstance(inner, list) else [{"text": inner}]
            found += [("reasoning", str(part.get("text") or "")) for part in parts if isinstance(part, dict)]
        elif isinstance(item, dict) and isinstance(item.get("text"), str):
            found.append(("text", item["text"]))
    return found


def _join(details: list[dict[str, Any]], new: dict[str, Any]) -> None:
    """Pieces of one thought become one again: the router wants them back as if they had come whole."""
    field = {"reasoning.text": "text", "reasoning.summary": "summary"}.get(str(new.get("type")), "")
    last = details[-1] if details else {}
    same = field and all(last.get(name) == new.get(name) for name in ("type", "index"))
    if not same or not (new.get("id") is None or last.get("id") in (None, new.get("id"))):
        details.append(dict(new))
        return
    said = (last.get(field) or "") + (new.get(field) or "")
    details[-1] = last | {name: value for name, value in new.items() if value is not None} | {field: said}
