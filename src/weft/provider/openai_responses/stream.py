"""Turn events of the Responses API into chunks."""

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
from weft.provider.faults import make_error, make_incomplete_error, parse_error
from weft.provider.openai_chat.stream import to_usage as chat_usage
from weft.provider.openai_responses.request import KEY, PHASES
from weft.provider.sse import SseEvent, decode_event

Json = dict[str, Any]
FoldEvent = Callable[["ResponsesFold", "ResponsesEvent"], Iterable[AnyChunk]]

INCOMPLETE_REASONS: Final[dict[str, FinishReason]] = {
    "max_output_tokens": "length",
    "content_filter": "content-filter",
}
CHAT_COUNT_NAMES: Final = {
    "input_tokens": "prompt_tokens",
    "input_tokens_details": "prompt_tokens_details",
    "output_tokens": "completion_tokens",
    "output_tokens_details": "completion_tokens_details",
}
# The input of a call that was cut off before its first character. It is not "{}", which would be a valid call.
UNFINISHED_INPUT: Final = "{"


class ResponsesEvent(Struct, frozen=True, gc=False):
    """The fields of an event that we read. Items are identified by their index: some servers change an item's id in
    every event.
    """

    type: str = ""
    output_index: int = 0
    summary_index: int = 0
    content_index: int = 0
    delta: Any = ""
    item: Any = None
    response: Any = None


class ResponsesItem(Struct):
    """An item of the answer that has begun and not ended."""

    id: str = ""
    text: str | None = None
    thought: str | None = None
    call_id: str = ""
    tool: str = ""
    phase: str = ""
    pieces: list[str] = []


_decoder = msgspec.json.Decoder(ResponsesEvent)


class ResponsesFold:
    """Folds the events of one answer. After `done` nothing more comes.

    `names` maps the names of tools on the wire to our names.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.done = False
        self._names = names
        self._started = False
        self._items: dict[int, ResponsesItem] = {}
        self._ended: set[int] = set()
        self._called = False
        self._refused = False

    def feed(self, sent: SseEvent) -> Iterable[AnyChunk]:
        if self.done or sent.data == b"[DONE]":
            return []
        event = decode_event(sent.data, _decoder)
        fold = FOLDS.get(event.type or sent.name)
        if fold is None:
            return _raise_if_error(event, sent)
        if self._started:
            return fold(self, event)
        self._started = True
        return [Started(), *fold(self, event)]

    def end(self) -> list[AnyChunk]:
        """Raise `ProviderError` unless the final event has arrived."""
        if not self.done:
            raise make_incomplete_error("the answer broke off before its end")
        return []

    def begin(self, _: ResponsesEvent) -> Iterable[AnyChunk]:
        return []

    def fail(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        raise parse_error(None, {}, msgspec.json.encode({"response": event.response}))

    # --- items ---

    def _item(self, event: ResponsesEvent) -> ResponsesItem:
        item = self._items.get(event.output_index)
        if item is None:
            self._items[event.output_index] = item = ResponsesItem()
        return item

    def open_item(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        item_data = event.item or {}
        item = self._item(event)
        item.id = _get_text(item_data, "id")
        item.phase = _get_text(item_data, "phase")
        if item_data.get("type") == "function_call":
            return self._open_call(item, item_data)
        return []

    def _open_call(self, item: ResponsesItem, item_data: Json) -> Iterable[AnyChunk]:
        name = _get_text(item_data, "name")
        item.call_id, item.tool = (
            _get_text(item_data, "call_id") or _get_text(item_data, "id"),
            self._names.get(name, name),
        )
        if not item.tool or not item.call_id:
            raise make_error("protocol", "the model called a tool without a name or an id")
        return [ToolInputStart(call_id=item.call_id, tool=item.tool)]

    def add_text(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        item = self._item(event)
        if item.text is not None:
            return (TextDelta(id=item.text, text=event.delta),) if event.delta else ()
        item.text = f"text-{event.output_index}"
        start = TextStart(id=item.text, metadata=_to_metadata(item))
        return [start, TextDelta(id=item.text, text=event.delta)] if event.delta else [start]

    def add_refusal(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        self._refused = True
        return self.add_text(event)

    def add_reasoning(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        """Emit one reasoning part for each part of the summary, as OpenCode stores them."""
        item = self._item(event)
        name = f"reasoning-{event.output_index}-{event.summary_index or event.content_index}"
        item_data: list[AnyChunk] = []
        if item.thought != name:
            if item.thought is not None:
                item_data.append(ReasoningEnd(id=item.thought, metadata=_to_metadata(item)))
            item.thought = name
            item_data.append(ReasoningStart(id=name, metadata=_to_metadata(item)))
        if event.delta:
            item_data.append(ReasoningDelta(id=name, text=event.delta))
        return item_data

    def add_input(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        item = self._item(event)
        if not item.call_id or not event.delta:
            return []
        item.pieces.append(event.delta)
        return [ToolInputDelta(call_id=item.call_id, text=event.delta)]

    def close_item(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        self._ended.add(event.output_index)
        item, item_data = self._item(event), event.item or {}
        match item_data.get("type"):
            case "message":
                chunks = self._end_message(event, item, item_data)
            case "reasoning":
                chunks = self._end_reasoning(event, item, item_data)
            case "function_call":
                chunks = self._end_call(item, item_data)
            case _:
                chunks = []
        self._items.pop(event.output_index, None)
        return chunks

    def _end_message(self, event: ResponsesEvent, item: ResponsesItem, item_data: Json) -> list[AnyChunk]:
        item.id, item.phase = (
            item.id or _get_text(item_data, "id"),
            _get_text(item_data, "phase") or item.phase,
        )
        chunks: list[AnyChunk] = []
        if item.text is None and (text := _join_text(item_data, "content")):
            chunks += self.add_text(_to_delta(event, text))
        if any(part.get("type") == "refusal" for part in _list_parts(item_data, "content")):
            self._refused = True
        if item.text is not None:
            chunks.append(TextEnd(id=item.text, metadata=_to_metadata(item)))
        return chunks

    def _end_reasoning(self, event: ResponsesEvent, item: ResponsesItem, item_data: Json) -> list[AnyChunk]:
        item.id = item.id or _get_text(item_data, "id")
        chunks: list[AnyChunk] = []
        encrypted = _get_text(item_data, "encrypted_content")
        text = _join_text(item_data, "summary") or _join_text(item_data, "content")
        if item.thought is None and (text or encrypted):
            chunks += self.add_reasoning(_to_delta(event, text))
        if item.thought is not None:
            more = {"reasoningEncryptedContent": encrypted} if encrypted else {}
            chunks.append(ReasoningEnd(id=item.thought, metadata=_to_metadata(item, more)))
        return chunks

    def _end_call(self, item: ResponsesItem, item_data: Json) -> list[AnyChunk]:
        chunks: list[AnyChunk] = []
        if not item.call_id:
            chunks += self._open_call(item, item_data)
        raw = _get_text(item_data, "arguments") or "".join(item.pieces)
        if raw and not item.pieces:
            chunks.append(ToolInputDelta(call_id=item.call_id, text=raw))
        self._called = True
        metadata = {KEY: {"itemId": item.id}} if item.id else None
        chunks.append(ToolCall(call_id=item.call_id, tool=item.tool, raw=raw or "{}", metadata=metadata))
        return chunks

    # --- the end ---

    def complete(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        chunks = [*self._close_missed(event), *self._close_all()]
        reason: FinishReason = "tool-calls" if self._called else "stop"
        if self._refused and not self._called:
            reason = "content-filter"
        return [*chunks, self._finished(event, reason, "refusal" if self._refused else "completed")]

    def cut_off(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        details = (event.response or {}).get("incomplete_details")
        why = _get_text(details, "reason") if isinstance(details, dict) else ""
        return [
            *self._close_all(),
            self._finished(event, INCOMPLETE_REASONS.get(why, "other"), why or "incomplete"),
        ]

    def _close_missed(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        """Yield the chunks of items that only the final event holds: some servers send nothing but the end."""
        output = (event.response or {}).get("output")
        for index, item_data in enumerate(output if isinstance(output, list) else ()):
            if index not in self._ended and isinstance(item_data, dict):
                yield from self.close_item(ResponsesEvent(output_index=index, item=item_data))

    def _close_all(self) -> Iterable[AnyChunk]:
        for item in self._items.values():
            if item.text is not None:
                yield TextEnd(id=item.text, metadata=_to_metadata(item))
            if item.thought is not None:
                yield ReasoningEnd(id=item.thought, metadata=_to_metadata(item))
            if item.call_id:
                # The call was cut off. Emit it as it stands, so that the model reads why it failed.
                yield ToolCall(
                    call_id=item.call_id, tool=item.tool, raw="".join(item.pieces) or UNFINISHED_INPUT
                )
        self._items.clear()

    def _finished(self, event: ResponsesEvent, reason: FinishReason, raw_reason: str) -> Finished:
        self.done = True
        response = event.response or {}
        tier, id = _get_text(response, "service_tier"), _get_text(response, "id")
        item_data = {"responseId": id, "serviceTier": tier}
        kept = {name: value for name, value in item_data.items() if value}
        return Finished(
            reason=reason,
            raw_reason=raw_reason,
            usage=to_usage(response.get("usage")),
            metadata={KEY: kept} if kept else None,
        )


FOLDS: Final[dict[str, FoldEvent]] = {
    "response.created": ResponsesFold.begin,
    "response.in_progress": ResponsesFold.begin,
    "response.queued": ResponsesFold.begin,
    "response.output_item.added": ResponsesFold.open_item,
    "response.output_item.done": ResponsesFold.close_item,
    "response.output_text.delta": ResponsesFold.add_text,
    "response.refusal.delta": ResponsesFold.add_refusal,
    "response.reasoning_summary_part.added": ResponsesFold.add_reasoning,
    "response.reasoning_summary_text.delta": ResponsesFold.add_reasoning,
    "response.reasoning_text.delta": ResponsesFold.add_reasoning,
    "response.function_call_arguments.delta": ResponsesFold.add_input,
    "response.completed": ResponsesFold.complete,
    "response.incomplete": ResponsesFold.cut_off,
    "response.failed": ResponsesFold.fail,
}


def to_usage(item_data: object) -> Usage:
    """Convert token counts, which differ from those of Chat Completions in their names only."""
    if not isinstance(item_data, dict):
        return Usage()
    named = {CHAT_COUNT_NAMES.get(str(name), str(name)): value for name, value in item_data.items()}
    return replace(chat_usage(named), raw=item_data)


def _to_metadata(item: ResponsesItem, more: Json | None = None) -> Metadata | None:
    kept = {"itemId": item.id} if item.id else {}
    if item.phase in PHASES:
        kept["phase"] = item.phase
    kept |= more or {}
    return {KEY: kept} if kept else None


def _get_text(item_data: Json, name: str) -> str:
    value = item_data.get(name)
    return value if isinstance(value, str) else ""


def _list_parts(item_data: Json, name: str) -> list[Json]:
    parts = item_data.get(name)
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _join_text(item_data: Json, name: str) -> str:
    return "".join(
        _get_text(part, "text") or _get_text(part, "refusal") for part in _list_parts(item_data, name)
    )


def _to_delta(event: ResponsesEvent, text: str) -> ResponsesEvent:
    return ResponsesEvent(output_index=event.output_index, delta=text)


def _raise_if_error(event: ResponsesEvent, sent: SseEvent) -> Iterable[AnyChunk]:
    if "error" in (event.type, sent.name) or (not event.type and b'"error"' in sent.data):
        raise parse_error(None, {}, sent.data)
    return ()
