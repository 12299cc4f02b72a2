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
from weft.provider.faults import make_incomplete_error, make_unreadable_error, parse_error
from weft.provider.openai_chat.stream import to_usage as chat_usage
from weft.provider.openai_responses.request import METADATA_KEY, PHASES
from weft.provider.sse import SseEvent, decode_event

Json = dict[str, Any]
HandleEvent = Callable[["ResponsesFold", "ResponsesEvent"], Iterable[AnyChunk]]

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
    """The fields of an event that we read. The index identifies an item: some servers change its id in every event."""

    type: str = ""
    output_index: int = 0
    summary_index: int = 0
    content_index: int = 0
    delta: Any = ""
    item: Json | None = None
    response: Json | None = None


class ResponsesItem(Struct):
    """An open item of the answer. `text_id` and `thought_id` are the ids of its open blocks."""

    id: str = ""
    text_id: str | None = None
    thought_id: str | None = None
    call_id: str = ""
    tool: str = ""
    phase: str = ""
    pieces: list[str] = []


_decoder = msgspec.json.Decoder(ResponsesEvent)


class ResponsesFold:
    """Turns the events of one answer into chunks. Events after `done` are ignored.

    `names` maps the names of tools on the wire to our names. The methods in `HANDLERS` handle one type of event each.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.done = False
        self._names = names
        self._started = False
        self._items: dict[int, ResponsesItem] = {}
        self._closed_indices: set[int] = set()
        self._has_calls = False
        self._has_refusal = False

    def feed(self, sse_event: SseEvent) -> Iterable[AnyChunk]:
        if self.done or sse_event.data == b"[DONE]":
            return []
        event = decode_event(sse_event.data, _decoder)
        handle = HANDLERS.get(event.type or sse_event.name)
        if handle is None:
            return _raise_if_error(event, sse_event)
        if self._started:
            return handle(self, event)
        self._started = True
        return [Started(), *handle(self, event)]

    def end(self) -> list[AnyChunk]:
        """Raise `ProviderError` unless the final event has arrived."""
        if not self.done:
            raise make_incomplete_error("the answer broke off before its end")
        return []

    def ignore(self, _: ResponsesEvent) -> Iterable[AnyChunk]:
        return []

    def raise_failure(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        raise parse_error(None, {}, msgspec.json.encode({"response": event.response}))

    # --- items ---

    def _get_item(self, event: ResponsesEvent) -> ResponsesItem:
        item = self._items.get(event.output_index)
        if item is None:
            self._items[event.output_index] = item = ResponsesItem()
        return item

    def open_item(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        item_data = event.item or {}
        item = self._get_item(event)
        item.id = _get_text(item_data, "id")
        item.phase = _get_text(item_data, "phase")
        if item_data.get("type") == "function_call":
            return self._open_call(item, item_data)
        return []

    def _open_call(self, item: ResponsesItem, item_data: Json) -> Iterable[AnyChunk]:
        name = _get_text(item_data, "name")
        item.tool = self._names.get(name, name)
        item.call_id = _get_text(item_data, "call_id") or _get_text(item_data, "id")
        if not item.tool or not item.call_id:
            raise make_unreadable_error("the model called a tool without a name or an id")
        return [ToolInputStart(call_id=item.call_id, tool=item.tool)]

    def add_text(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        item = self._get_item(event)
        if item.text_id is not None:
            return (TextDelta(id=item.text_id, text=event.delta),) if event.delta else ()
        item.text_id = f"text-{event.output_index}"
        start = TextStart(id=item.text_id, metadata=_to_metadata(item))
        return [start, TextDelta(id=item.text_id, text=event.delta)] if event.delta else [start]

    def add_refusal(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        self._has_refusal = True
        return self.add_text(event)

    def add_reasoning(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        """Emit one reasoning part for each part of the summary, as OpenCode stores them."""
        item = self._get_item(event)
        id = f"reasoning-{event.output_index}-{event.summary_index or event.content_index}"
        chunks: list[AnyChunk] = []
        if item.thought_id != id:
            if item.thought_id is not None:
                chunks.append(ReasoningEnd(id=item.thought_id, metadata=_to_metadata(item)))
            item.thought_id = id
            chunks.append(ReasoningStart(id=id, metadata=_to_metadata(item)))
        if event.delta:
            chunks.append(ReasoningDelta(id=id, text=event.delta))
        return chunks

    def add_input(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        item = self._get_item(event)
        if not item.call_id or not event.delta:
            return []
        item.pieces.append(event.delta)
        return [ToolInputDelta(call_id=item.call_id, text=event.delta)]

    def close_item(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        self._closed_indices.add(event.output_index)
        item, item_data = self._get_item(event), event.item or {}
        match item_data.get("type"):
            case "message":
                chunks = self._close_message(event, item, item_data)
            case "reasoning":
                chunks = self._close_reasoning(event, item, item_data)
            case "function_call":
                chunks = self._close_call(item, item_data)
            case _:
                chunks = []
        self._items.pop(event.output_index, None)
        return chunks

    def _close_message(self, event: ResponsesEvent, item: ResponsesItem, item_data: Json) -> list[AnyChunk]:
        item.id = item.id or _get_text(item_data, "id")
        item.phase = _get_text(item_data, "phase") or item.phase
        chunks: list[AnyChunk] = []
        if item.text_id is None and (text := _join_text(item_data, "content")):
            chunks += self.add_text(_to_delta(event, text))
        if any(part.get("type") == "refusal" for part in _list_parts(item_data, "content")):
            self._has_refusal = True
        if item.text_id is not None:
            chunks.append(TextEnd(id=item.text_id, metadata=_to_metadata(item)))
        return chunks

    def _close_reasoning(self, event: ResponsesEvent, item: ResponsesItem, item_data: Json) -> list[AnyChunk]:
        item.id = item.id or _get_text(item_data, "id")
        chunks: list[AnyChunk] = []
        encrypted = _get_text(item_data, "encrypted_content")
        text = _join_text(item_data, "summary") or _join_text(item_data, "content")
        if item.thought_id is None and (text or encrypted):
            chunks += self.add_reasoning(_to_delta(event, text))
        if item.thought_id is not None:
            extra = {"reasoningEncryptedContent": encrypted} if encrypted else {}
            chunks.append(ReasoningEnd(id=item.thought_id, metadata=_to_metadata(item, extra)))
        return chunks

    def _close_call(self, item: ResponsesItem, item_data: Json) -> list[AnyChunk]:
        chunks: list[AnyChunk] = []
        if not item.call_id:
            chunks += self._open_call(item, item_data)
        raw = _get_text(item_data, "arguments") or "".join(item.pieces)
        if raw and not item.pieces:
            chunks.append(ToolInputDelta(call_id=item.call_id, text=raw))
        self._has_calls = True
        metadata = {METADATA_KEY: {"itemId": item.id}} if item.id else None
        chunks.append(ToolCall(call_id=item.call_id, tool=item.tool, raw=raw or "{}", metadata=metadata))
        return chunks

    # --- the end ---

    def complete(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        chunks = [*self._close_missed(event), *self._close_all()]
        reason: FinishReason = "tool-calls" if self._has_calls else "stop"
        if self._has_refusal and not self._has_calls:
            reason = "content-filter"
        return [*chunks, self._make_finished(event, reason, "refusal" if self._has_refusal else "completed")]

    def complete_early(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        details = (event.response or {}).get("incomplete_details")
        reason = _get_text(details, "reason") if isinstance(details, dict) else ""
        return [
            *self._close_all(),
            self._make_finished(event, INCOMPLETE_REASONS.get(reason, "other"), reason or "incomplete"),
        ]

    def _close_missed(self, event: ResponsesEvent) -> Iterable[AnyChunk]:
        """Yield the chunks of items that only the final event holds: some servers send no other event."""
        output = (event.response or {}).get("output")
        for index, item_data in enumerate(output if isinstance(output, list) else ()):
            if index not in self._closed_indices and isinstance(item_data, dict):
                yield from self.close_item(ResponsesEvent(output_index=index, item=item_data))

    def _close_all(self) -> Iterable[AnyChunk]:
        for item in self._items.values():
            if item.text_id is not None:
                yield TextEnd(id=item.text_id, metadata=_to_metadata(item))
            if item.thought_id is not None:
                yield ReasoningEnd(id=item.thought_id, metadata=_to_metadata(item))
            if item.call_id:
                # The call was cut off. Emit it as it stands, so that the model reads why it failed.
                yield ToolCall(
                    call_id=item.call_id, tool=item.tool, raw="".join(item.pieces) or UNFINISHED_INPUT
                )
        self._items.clear()

    def _make_finished(self, event: ResponsesEvent, reason: FinishReason, raw_reason: str) -> Finished:
        self.done = True
        response = event.response or {}
        tier, id = _get_text(response, "service_tier"), _get_text(response, "id")
        fields = {"responseId": id, "serviceTier": tier}
        present = {name: value for name, value in fields.items() if value}
        return Finished(
            reason=reason,
            raw_reason=raw_reason,
            usage=to_usage(response.get("usage")),
            metadata={METADATA_KEY: present} if present else None,
        )


HANDLERS: Final[dict[str, HandleEvent]] = {
    "response.created": ResponsesFold.ignore,
    "response.in_progress": ResponsesFold.ignore,
    "response.queued": ResponsesFold.ignore,
    "response.output_item.added": ResponsesFold.open_item,
    "response.output_item.done": ResponsesFold.close_item,
    "response.output_text.delta": ResponsesFold.add_text,
    "response.refusal.delta": ResponsesFold.add_refusal,
    "response.reasoning_summary_part.added": ResponsesFold.add_reasoning,
    "response.reasoning_summary_text.delta": ResponsesFold.add_reasoning,
    "response.reasoning_text.delta": ResponsesFold.add_reasoning,
    "response.function_call_arguments.delta": ResponsesFold.add_input,
    "response.completed": ResponsesFold.complete,
    "response.incomplete": ResponsesFold.complete_early,
    "response.failed": ResponsesFold.raise_failure,
}


def to_usage(report: object) -> Usage:
    """Convert token counts, which differ from those of Chat Completions in their names only."""
    if not isinstance(report, dict):
        return Usage()
    renamed = {CHAT_COUNT_NAMES.get(str(name), str(name)): value for name, value in report.items()}
    return replace(chat_usage(renamed), raw=report)


def _to_metadata(item: ResponsesItem, extra: Json | None = None) -> Metadata | None:
    fields = {"itemId": item.id} if item.id else {}
    if item.phase in PHASES:
        fields["phase"] = item.phase
    fields |= extra or {}
    return {METADATA_KEY: fields} if fields else None


def _get_text(fields: Json, name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _list_parts(fields: Json, name: str) -> list[Json]:
    parts = fields.get(name)
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _join_text(fields: Json, name: str) -> str:
    return "".join(
        _get_text(part, "text") or _get_text(part, "refusal") for part in _list_parts(fields, name)
    )


def _to_delta(event: ResponsesEvent, text: str) -> ResponsesEvent:
    return ResponsesEvent(output_index=event.output_index, delta=text)


def _raise_if_error(event: ResponsesEvent, sse_event: SseEvent) -> Iterable[AnyChunk]:
    if "error" in (event.type, sse_event.name) or (not event.type and b'"error"' in sse_event.data):
        raise parse_error(None, {}, sse_event.data)
    return ()
