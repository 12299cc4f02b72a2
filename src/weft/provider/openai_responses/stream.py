"""The events of one answer of the Responses API, folded into chunks."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

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
)
from weft.provider.faults import broken, fault, to_error
from weft.provider.openai_chat.stream import to_usage as chat_usage
from weft.provider.openai_responses.request import KEY, PHASES
from weft.provider.sse import SseEvent, decode_data

Json = dict[str, Any]
Fold = Callable[["ResponsesFold", "Event"], Iterable[AnyChunk]]

INCOMPLETE: Final[dict[str, FinishReason]] = {
    "max_output_tokens": "length",
    "content_filter": "content-filter",
}
RENAMED: Final = {
    "input_tokens": "prompt_tokens",
    "input_tokens_details": "prompt_tokens_details",
    "output_tokens": "completion_tokens",
    "output_tokens_details": "completion_tokens_details",
}
# What a call's text is taken for when the answer was cut before a letter of it came: never for a call without input.
CUT: Final = "{"


class Event(Struct, frozen=True, gc=False):
    """As much of an event as we read. Items go by their place: some servers give an item a new id in every event."""

    type: str = ""
    output_index: int = 0
    summary_index: int = 0
    content_index: int = 0
    delta: Any = ""
    item: Any = None
    response: Any = None


class Item(Struct):
    """Something of the answer that has begun and not ended."""

    id: str = ""
    text: str | None = None
    thought: str | None = None
    call_id: str = ""
    tool: str = ""
    phase: str = ""
    pieces: list[str] = []


_decoder = msgspec.json.Decoder(Event)


class ResponsesFold:
    """One answer. `feed` it the events in order; after `done` there is nothing more to come.

    `names` brings the name of a tool on the wire back to ours.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.done = False
        self._names = names
        self._started = False
        self._items: dict[int, Item] = {}
        self._ended: set[int] = set()
        self._called = False
        self._refused = False

    def feed(self, sent: SseEvent) -> Iterable[AnyChunk]:
        if self.done or sent.data == b"[DONE]":
            return []
        event = decode_data(sent.data, _decoder)
        fold = FOLDS.get(event.type or sent.name)
        if fold is None:
            return _refuse_error(event, sent)
        if self._started:
            return fold(self, event)
        self._started = True
        return [Started(), *fold(self, event)]

    def end(self) -> list[AnyChunk]:
        """The events are over. The last of them tells everything; without it the answer is not whole."""
        if not self.done:
            raise broken("the model's answer broke off before its end")
        return []

    def begin(self, _: Event) -> Iterable[AnyChunk]:
        return []

    def fail(self, event: Event) -> Iterable[AnyChunk]:
        raise to_error(None, {}, msgspec.json.encode({"response": event.response}))

    # --- items ---

    def _item(self, event: Event) -> Item:
        item = self._items.get(event.output_index)
        if item is None:
            self._items[event.output_index] = item = Item()
        return item

    def add(self, event: Event) -> Iterable[AnyChunk]:
        told = event.item or {}
        item = self._item(event)
        item.id = _text(told, "id")
        item.phase = _text(told, "phase")
        if told.get("type") == "function_call":
            return self._open_call(item, told)
        return []

    def _open_call(self, item: Item, told: Json) -> Iterable[AnyChunk]:
        name = _text(told, "name")
        item.call_id, item.tool = _text(told, "call_id") or _text(told, "id"), self._names.get(name, name)
        if not item.tool or not item.call_id:
            raise fault("protocol", "the model called a tool without a name or an id")
        return [ToolInputStart(call_id=item.call_id, tool=item.tool)]

    def say(self, event: Event) -> Iterable[AnyChunk]:
        item = self._item(event)
        if item.text is not None:
            return (TextDelta(id=item.text, text=event.delta),) if event.delta else ()
        item.text = f"text-{event.output_index}"
        start = TextStart(id=item.text, metadata=_metadata(item))
        return [start, TextDelta(id=item.text, text=event.delta)] if event.delta else [start]

    def refuse(self, event: Event) -> Iterable[AnyChunk]:
        self._refused = True
        return self.say(event)

    def think(self, event: Event) -> Iterable[AnyChunk]:
        """One reasoning part for each part of the summary, as OpenCode keeps them."""
        item = self._item(event)
        name = f"reasoning-{event.output_index}-{event.summary_index or event.content_index}"
        told: list[AnyChunk] = []
        if item.thought != name:
            if item.thought is not None:
                told.append(ReasoningEnd(id=item.thought, metadata=_metadata(item)))
            item.thought = name
            told.append(ReasoningStart(id=name, metadata=_metadata(item)))
        if event.delta:
            told.append(ReasoningDelta(id=name, text=event.delta))
        return told

    def write(self, event: Event) -> Iterable[AnyChunk]:
        item = self._item(event)
        if not item.call_id or not event.delta:
            return []
        item.pieces.append(event.delta)
        return [ToolInputDelta(call_id=item.call_id, text=event.delta)]

    def close(self, event: Event) -> Iterable[AnyChunk]:
        self._ended.add(event.output_index)
        item, told = self._item(event), event.item or {}
        match told.get("type"):
            case "message":
                chunks = self._end_message(event, item, told)
            case "reasoning":
                chunks = self._end_reasoning(event, item, told)
            case "function_call":
                chunks = self._end_call(item, told)
            case _:
                chunks = []
        self._items.pop(event.output_index, None)
        return chunks

    def _end_message(self, event: Event, item: Item, told: Json) -> list[AnyChunk]:
        item.id, item.phase = item.id or _text(told, "id"), _text(told, "phase") or item.phase
        chunks: list[AnyChunk] = []
        if item.text is None and (words := _said(told, "content")):
            chunks += self.say(_again(event, words))
        if any(part.get("type") == "refusal" for part in _parts(told, "content")):
            self._refused = True
        if item.text is not None:
            chunks.append(TextEnd(id=item.text, metadata=_metadata(item)))
        return chunks

    def _end_reasoning(self, event: Event, item: Item, told: Json) -> list[AnyChunk]:
        item.id = item.id or _text(told, "id")
        chunks: list[AnyChunk] = []
        encrypted = _text(told, "encrypted_content")
        words = _said(told, "summary") or _said(told, "content")
        if item.thought is None and (words or encrypted):
            chunks += self.think(_again(event, words))
        if item.thought is not None:
            more = {"reasoningEncryptedContent": encrypted} if encrypted else {}
            chunks.append(ReasoningEnd(id=item.thought, metadata=_metadata(item, more)))
        return chunks

    def _end_call(self, item: Item, told: Json) -> list[AnyChunk]:
        chunks: list[AnyChunk] = []
        if not item.call_id:
            chunks += self._open_call(item, told)
        raw = _text(told, "arguments") or "".join(item.pieces)
        if raw and not item.pieces:
            chunks.append(ToolInputDelta(call_id=item.call_id, text=raw))
        self._called = True
        metadata = {KEY: {"itemId": item.id}} if item.id else None
        chunks.append(ToolCall(call_id=item.call_id, tool=item.tool, raw=raw or "{}", metadata=metadata))
        return chunks

    # --- the end ---

    def complete(self, event: Event) -> Iterable[AnyChunk]:
        chunks = [*self._missed(event), *self._close_all()]
        reason: FinishReason = "tool-calls" if self._called else "stop"
        if self._refused and not self._called:
            reason = "content-filter"
        return [*chunks, self._finished(event, reason, "refusal" if self._refused else "completed")]

    def cut(self, event: Event) -> Iterable[AnyChunk]:
        details = (event.response or {}).get("incomplete_details")
        why = _text(details, "reason") if isinstance(details, dict) else ""
        return [*self._close_all(), self._finished(event, INCOMPLETE.get(why, "other"), why or "incomplete")]

    def _missed(self, event: Event) -> Iterable[AnyChunk]:
        """What the whole answer holds and no event told: some servers send nothing but the end."""
        output = (event.response or {}).get("output")
        for index, told in enumerate(output if isinstance(output, list) else ()):
            if index not in self._ended and isinstance(told, dict):
                yield from self.close(Event(output_index=index, item=told))

    def _close_all(self) -> Iterable[AnyChunk]:
        for item in self._items.values():
            if item.text is not None:
                yield TextEnd(id=item.text, metadata=_metadata(item))
            if item.thought is not None:
                yield ReasoningEnd(id=item.thought, metadata=_metadata(item))
            if item.call_id:
                # Cut in the middle: told as it stands, so that the model reads why it came to nothing.
                yield ToolCall(call_id=item.call_id, tool=item.tool, raw="".join(item.pieces) or CUT)
        self._items.clear()

    def _finished(self, event: Event, reason: FinishReason, raw_reason: str) -> Finished:
        self.done = True
        response = event.response or {}
        tier, id = _text(response, "service_tier"), _text(response, "id")
        told = {"responseId": id, "serviceTier": tier}
        kept = {name: value for name, value in told.items() if value}
        return Finished(
            reason=reason,
            raw_reason=raw_reason,
            usage=to_usage(response.get("usage")),
            metadata={KEY: kept} if kept else None,
        )


FOLDS: Final[dict[str, Fold]] = {
    "response.created": ResponsesFold.begin,
    "response.in_progress": ResponsesFold.begin,
    "response.queued": ResponsesFold.begin,
    "response.output_item.added": ResponsesFold.add,
    "response.output_item.done": ResponsesFold.close,
    "response.output_text.delta": ResponsesFold.say,
    "response.refusal.delta": ResponsesFold.refuse,
    "response.reasoning_summary_part.added": ResponsesFold.think,
    "response.reasoning_summary_text.delta": ResponsesFold.think,
    "response.reasoning_text.delta": ResponsesFold.think,
    "response.function_call_arguments.delta": ResponsesFold.write,
    "response.completed": ResponsesFold.complete,
    "response.incomplete": ResponsesFold.cut,
    "response.failed": ResponsesFold.fail,
}


def to_usage(told: object) -> Usage:
    """Counted as Chat Completions counts, under other names."""
    if not isinstance(told, dict):
        return Usage()
    named = {RENAMED.get(str(name), str(name)): value for name, value in told.items()}
    return replace(chat_usage(named), raw=told)


def _metadata(item: Item, more: Json | None = None) -> Metadata | None:
    kept = {"itemId": item.id} if item.id else {}
    if item.phase in PHASES:
        kept["phase"] = item.phase
    kept |= more or {}
    return {KEY: kept} if kept else None


def _text(told: Json, name: str) -> str:
    value = told.get(name)
    return value if isinstance(value, str) else ""


def _parts(told: Json, name: str) -> list[Json]:
    parts = told.get(name)
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _said(told: Json, name: str) -> str:
    return "".join(_text(part, "text") or _text(part, "refusal") for part in _parts(told, name))


def _again(event: Event, words: str) -> Event:
    return Event(output_index=event.output_index, delta=words)


def _refuse_error(event: Event, sent: SseEvent) -> Iterable[AnyChunk]:
    if "error" in (event.type, sent.name) or (not event.type and b'"error"' in sent.data):
        raise to_error(None, {}, sent.data)
    return ()
