"""Turn events of OpenAI's Chat Completions API, and of servers that imitate it, into chunks."""

from decimal import Decimal, InvalidOperation
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from weft.errors import DocumentError
from weft.model.wire import parse
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
from weft.provider.openai_chat.request import REASONING_DETAILS
from weft.provider.sse import SseEvent, decode_event


class ChatFunctionDelta(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | list[Any] | None = None


class ChatCallDelta(Struct):
    index: int | None = None
    id: str | int | None = None
    function: ChatFunctionDelta | None = None


class ChatOpenCall(Struct):
    """A tool call that is being written. `ToolInputStart` is emitted once its name is known."""

    id: str
    server_id: str
    tool: str = ""
    pieces: list[str] = []
    complete: bool = False


class ChatCallsFold:
    """Turns the tool-call deltas of one answer into chunks. Servers omit or repeat ids, names and indices."""

    def __init__(self) -> None:
        self.id_prefix = "call"
        self.has_calls = False
        self._open_calls: dict[int, ChatOpenCall] = {}

    def feed(self, delta: ChatCallDelta) -> list[AnyChunk]:
        chunks: list[AnyChunk] = []
        index = self._find_index(delta)
        call = self._open_calls.get(index)
        if call is None:
            chunks += self._close_complete()
            server_id = str(delta.id or "")
            call = self._open_calls[index] = ChatOpenCall(
                id=server_id or f"{self.id_prefix}_{index}", server_id=server_id, pieces=[]
            )
        if call.complete:
            return chunks
        return chunks + self._add_delta(call, delta.function or ChatFunctionDelta())

    def end(self) -> list[AnyChunk]:
        """Close all calls: no more input comes."""
        return [
            chunk for call in self._open_calls.values() if not call.complete for chunk in self._close(call)
        ]

    def _find_index(self, delta: ChatCallDelta) -> int:
        """Return the index of the call that a delta belongs to. A new id together with a name begins another call, even
        if the index is that of a call before.
        """
        last = max(self._open_calls, default=-1)
        index = delta.index if delta.index is not None else last
        call = self._open_calls.get(index)
        if call is None:
            return max(index, 0) if delta.index is not None else last + 1
        has_name = delta.function is not None and bool(delta.function.name)
        has_other_id = bool(delta.id) and str(delta.id) != call.server_id and bool(call.tool)
        has_neither = delta.index is None and not delta.id
        return last + 1 if has_name and (has_other_id or has_neither) else index

    def _add_delta(self, call: ChatOpenCall, function: ChatFunctionDelta) -> list[AnyChunk]:
        chunks: list[AnyChunk] = []
        text = function.arguments or ""
        if not isinstance(text, str):  # some servers send an object
            text = msgspec.json.encode(text).decode()
        if text:
            call.pieces.append(text)
        if not call.tool and function.name:
            call.tool = function.name
            self.has_calls = True
            chunks.append(ToolInputStart(call_id=call.id, tool=call.tool))
            text = "".join(call.pieces)
        if text and call.tool:
            chunks.append(ToolInputDelta(call_id=call.id, text=text))
        return chunks

    def _close_complete(self) -> list[AnyChunk]:
        """Close the calls whose input is complete, because another call begins."""
        chunks: list[AnyChunk] = []
        for call in self._open_calls.values():
            if not call.complete and call.tool and _is_json("".join(call.pieces)):
                chunks += self._close(call)
        return chunks

    def _close(self, call: ChatOpenCall) -> list[AnyChunk]:
        if not call.tool:
            raise make_nameless_call_error()
        call.complete = True
        raw = "".join(call.pieces)
        return [ToolCall(call_id=call.id, tool=call.tool, raw=raw if raw.strip() else "{}")]


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


OPEN_TAG: Final = "<think>"
CLOSE_TAG: Final = "</think>"

BlockKind = Literal["text", "reasoning"]
TextPiece = tuple[BlockKind, str]


class ThinkSplitter:
    """Splits text, cut anywhere, into answer and thoughts in `<think>` tags. Text that may become a tag is held back.

    OpenCode accepts the tag anywhere, so that an answer about such tags loses text. We accept it only where a thought
    can begin: before the first word of the text, or right after another thought.
    """

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._may_open = True
        self._after_tag = False

    def feed(self, text: str) -> list[TextPiece]:
        """Return the pieces of text that are complete, each with its kind."""
        if not self._may_open and not self._inside:
            return [("text", text)]
        self._held += text
        pieces: list[TextPiece] = []
        while self._trim_held() and self._take_piece(pieces):
            pass
        return pieces

    def _trim_held(self) -> bool:
        """Drop white space after a tag. Return True if any text is held."""
        if self._after_tag:
            self._held = self._held.lstrip()
            self._after_tag = not self._held
        return bool(self._held)

    def end(self) -> list[TextPiece]:
        """Return the text that was held back."""
        held, self._held = self._held, ""
        kind: BlockKind = "reasoning" if self._inside else "text"
        return [(kind, held)] if held and (self._inside or held.strip()) else []

    def _take_piece(self, pieces: list[TextPiece]) -> bool:
        """Take one piece off the held text. Return False if more text must arrive first."""
        if self._inside:
            return self._take_thought(pieces)
        stripped = self._held.lstrip()
        if stripped.startswith(OPEN_TAG):
            self._inside, self._after_tag, self._held = True, True, stripped[len(OPEN_TAG) :]
            return True
        if OPEN_TAG.startswith(stripped):
            return False
        self._may_open = False
        pieces.append(("text", self._held))
        self._held = ""
        return False

    def _take_thought(self, pieces: list[TextPiece]) -> bool:
        thought, tag, rest = self._held.partition(CLOSE_TAG)
        if tag:
            if thought:
                pieces.append(("reasoning", thought))
            self._inside, self._after_tag, self._held = False, True, rest
            return True
        overlap = _count_tag_overlap(self._held)
        if len(self._held) > overlap:
            pieces.append(("reasoning", self._held[: len(self._held) - overlap]))
            self._held = self._held[len(self._held) - overlap :]
        return False


def _count_tag_overlap(text: str) -> int:
    """Return how many characters at the end of the text may be the beginning of the closing tag."""
    for size in range(min(len(CLOSE_TAG) - 1, len(text)), 0, -1):
        if text.endswith(CLOSE_TAG[:size]):
            return size
    return 0


Counts = dict[str, Any]

# Names outside the details, by server.
CACHE_READ_COUNTS: Final = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
CACHE_WRITE_COUNTS: Final = ("cache_creation_input_tokens",)
MAX_COST_EXPONENT: Final = 15  # far beyond any cost: sums of such numbers are exact, and short to write


def to_usage(raw: Counts) -> Usage:
    """Convert token counts. The prompt count includes cached tokens and the completion count includes reasoning. Both
    are subtracted.
    """
    prompt_details = _get_details(raw, "prompt_tokens_details")
    completion_details = _get_details(raw, "completion_tokens_details")
    prompt, completion = read_count(raw, "prompt_tokens"), read_count(raw, "completion_tokens")
    cache_read = min(
        prompt,
        _read_first_count(prompt_details, "cached_tokens") or _read_first_count(raw, *CACHE_READ_COUNTS),
    )
    cache_write = min(
        prompt - cache_read,
        _read_first_count(prompt_details, "cache_write_tokens", "cache_creation_tokens")
        or _read_first_count(raw, *CACHE_WRITE_COUNTS),
    )
    reasoning = _read_first_count(completion_details, "reasoning_tokens") or _read_first_count(
        raw, "reasoning_tokens"
    )
    is_separate = read_count(raw, "total_tokens") == prompt + completion + reasoning and reasoning > 0
    return Usage(
        input=prompt - cache_read - cache_write,
        # Some servers (xAI) count the reasoning separately, as their total shows.
        output=completion if is_separate else max(0, completion - reasoning),
        reasoning=reasoning if is_separate else min(reasoning, completion),
        cache_read=cache_read,
        cache_write=cache_write,
        cost=_parse_cost(raw.get("cost")),
        raw=raw or None,
    )


def _get_details(raw: Counts, name: str) -> Counts:
    details = raw.get(name)
    return details if isinstance(details, dict) else {}


def _read_first_count(raw: Counts, *names: str) -> int:
    return next((count for name in names if (count := read_count(raw, name))), 0)


def _parse_cost(reported: Any) -> Decimal | None:
    """Return the cost in dollars from a number, or from an object with the total."""
    if isinstance(reported, dict):
        reported = reported.get("total_cost")
    if (
        reported is None
        or isinstance(reported, bool)
        or not isinstance(reported, int | float | str | Decimal)
    ):
        return None
    try:
        cost = Decimal(str(reported))
    except InvalidOperation:
        return None
    is_sensible = cost.is_finite() and cost >= 0 and abs(cost.adjusted()) <= MAX_COST_EXPONENT
    return cost if is_sensible else None


DONE_DATA: Final = b"[DONE]"
FINISH_REASONS: Final[dict[str, FinishReason]] = {
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


ABSENT: Final = Raw(b"")


class ChatDelta(Struct):
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    tool_calls: list[ChatCallDelta] | None = None


class ChatChoice(Struct):
    index: int | None = 0
    delta: ChatDelta | None = None
    finish_reason: str | None = None
    usage: Raw = ABSENT


class GroqExtension(Struct):
    usage: Raw = ABSENT


class ChatEvent(Struct):
    id: str | int | None = None
    object: str | None = None
    choices: list[ChatChoice] | None = None
    usage: Raw = ABSENT
    error: Raw = ABSENT
    x_groq: GroqExtension | None = None


_decoder = msgspec.json.Decoder(ChatEvent, strict=False)


class OpenAIChatFold:
    """Turns the events of one answer into chunks. Events after `done` are ignored.

    `key` is the key of the provider's own data in the metadata.
    """

    def __init__(self, key: str = "openai") -> None:
        self.done = False
        self._key = key
        self._started = False
        self._reason: str | None = None
        self._usage: bytes | None = None
        self._splitter = ThinkSplitter()
        self._open: tuple[BlockKind, str] | None = None
        self._block_count = 0
        self._details: list[dict[str, Any]] = []
        self._calls = ChatCallsFold()

    def feed(self, sse_event: SseEvent) -> list[AnyChunk]:
        if self.done:
            return []
        if sse_event.data.startswith(DONE_DATA):
            return self._finish()
        if sse_event.name == "error":
            raise parse_error(None, {}, sse_event.data)
        event = decode_event(sse_event.data, _decoder)
        if _get_value(event.error) is not None or event.object == "error":
            raise parse_error(None, {}, sse_event.data)
        return self._read_event(event)

    def end(self) -> list[AnyChunk]:
        """Complete the answer. It is complete with a finish reason, even if the last event is missing; else raise
        `ProviderError`.
        """
        if self.done:
            return []
        if self._reason is None:
            raise make_incomplete_error("the answer broke off before its end")
        return self._finish()

    def _read_event(self, event: ChatEvent) -> list[AnyChunk]:
        chunks: list[AnyChunk] = []
        usage = _get_value(event.usage) or _get_value(event.x_groq.usage if event.x_groq else ABSENT)
        if not self._started:
            self._started = True
            self._calls.id_prefix = str(event.id or "call")
            chunks.append(Started(usage=_decode_usage(usage) if usage is not None else None))
        for choice in event.choices or ():
            if choice.index:
                continue  # we request one answer
            if choice.delta is not None and self._reason is None:
                chunks += self._add_delta(choice.delta)
            if choice.finish_reason and self._reason is None:
                self._reason = choice.finish_reason
                chunks += self._close_all()
            usage = usage or _get_value(choice.usage)
        self._usage = usage or self._usage
        return chunks

    def _finish(self) -> list[AnyChunk]:
        if not self._started:
            raise make_incomplete_error("the answer ended before it began")
        closed = self._close_all()
        if self._reason is None and not self._block_count and not self._calls.has_calls:
            raise make_incomplete_error("the answer ended without content")
        self.done = True
        reason: FinishReason = (
            FINISH_REASONS.get(self._reason.lower(), "other") if self._reason else "unknown"
        )
        # OpenCode trusts a `stop` that comes with tool calls, and their results never reach the model.
        if self._calls.has_calls and reason in {"stop", "unknown", "other"}:
            reason = "tool-calls"
        return [
            *closed,
            Finished(reason=reason, raw_reason=self._reason or "", usage=_decode_usage(self._usage)),
        ]

    # --- text and reasoning ---

    def _add_delta(self, delta: ChatDelta) -> list[AnyChunk]:
        chunks = self._add_thought(delta)
        content = delta.content or delta.refusal
        if isinstance(content, str):
            chunks += self._add_split_text(content)
        for kind, text in _split_content(content) if isinstance(content, list) else ():
            chunks += self._add_split_text(text) if kind == "text" else self._add_text("reasoning", text)
        if delta.tool_calls:
            chunks += self._flush()
            for call in delta.tool_calls:
                chunks += self._calls.feed(call)
        return chunks

    def _add_split_text(self, text: str) -> list[AnyChunk]:
        return [chunk for kind, piece in self._splitter.feed(text) for chunk in self._add_text(kind, piece)]

    def _add_thought(self, delta: ChatDelta) -> list[AnyChunk]:
        if delta.reasoning_details:
            for detail in delta.reasoning_details:
                _join_detail(self._details, detail)
            text = "".join(
                str(detail.get("text") or detail.get("summary") or "") for detail in delta.reasoning_details
            )
            return self._add_text("reasoning", text or delta.reasoning or "")
        return self._add_text("reasoning", delta.reasoning_content or delta.reasoning or "")

    def _add_text(self, kind: BlockKind, text: str) -> list[AnyChunk]:
        if not text:
            return []
        chunks: list[AnyChunk] = []
        if self._open is None or self._open[0] != kind:
            chunks = self._close_text()
            self._block_count += 1
            id = f"{kind}-{self._block_count}"
            self._open = (kind, id)
            chunks.append(TextStart(id=id) if kind == "text" else ReasoningStart(id=id))
        id = self._open[1]
        return [*chunks, TextDelta(id=id, text=text) if kind == "text" else ReasoningDelta(id=id, text=text)]

    def _flush(self) -> list[AnyChunk]:
        held = [chunk for kind, piece in self._splitter.end() for chunk in self._add_text(kind, piece)]
        return [*held, *self._close_text()]

    def _close_text(self) -> list[AnyChunk]:
        block, self._open = self._open, None
        if block is None:
            return []
        kind, id = block
        return [TextEnd(id=id) if kind == "text" else ReasoningEnd(id=id, metadata=self._take_metadata())]

    def _take_metadata(self) -> Metadata | None:
        details, self._details = self._details, []
        return {self._key: {REASONING_DETAILS: details}} if details else None

    def _close_all(self) -> list[AnyChunk]:
        chunks = [*self._flush(), *self._calls.end()]
        if self._details:  # reasoning that came after the text, or without any
            self._block_count += 1
            id = f"reasoning-{self._block_count}"
            chunks += [ReasoningStart(id=id), ReasoningEnd(id=id, metadata=self._take_metadata())]
        return chunks


def _decode_usage(raw: bytes | None) -> Usage:
    try:
        counts = parse(raw) if raw is not None else None
    except DocumentError:
        counts = None
    return to_usage(counts if isinstance(counts, dict) else {})


def _get_value(raw: Raw) -> bytes | None:
    if raw is ABSENT:  # true for nearly all events
        return None
    value = bytes(raw)
    return None if value in (b"", b"null") else value


def _split_content(content: list[Any]) -> list[tuple[BlockKind, str]]:
    """Split the list of texts and thoughts that Mistral's reasoning models send as content."""
    pieces: list[tuple[BlockKind, str]] = []
    for item in content:
        if isinstance(item, dict) and item.get("type") == "thinking":
            thinking = item.get("thinking")
            parts = thinking if isinstance(thinking, list) else [{"text": thinking}]
            pieces += [("reasoning", str(part.get("text") or "")) for part in parts if isinstance(part, dict)]
        elif isinstance(item, dict) and isinstance(item.get("text"), str):
            pieces.append(("text", item["text"]))
    return pieces


def _join_detail(details: list[dict[str, Any]], new: dict[str, Any]) -> None:
    """Append a reasoning detail, or join it to the last one: the router wants the pieces of one thought back as one."""
    field = {"reasoning.text": "text", "reasoning.summary": "summary"}.get(str(new.get("type")), "")
    last = details[-1] if details else {}
    is_same = field and all(last.get(name) == new.get(name) for name in ("type", "index"))
    if not is_same or not (new.get("id") is None or last.get("id") in (None, new.get("id"))):
        details.append(dict(new))
        return
    joined = (last.get(field) or "") + (new.get(field) or "")
    details[-1] = last | {name: value for name, value in new.items() if value is not None} | {field: joined}
