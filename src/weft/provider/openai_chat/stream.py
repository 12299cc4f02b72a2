"""Fold events of OpenAI's Chat Completions, and of the servers that imitate it, into chunks."""

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
    count_in,
)
from weft.provider.faults import broken, nameless, to_error
from weft.provider.openai_chat.request import DETAILS
from weft.provider.sse import SseEvent, decode_data


class FunctionDelta(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | list[Any] | None = None


class CallDelta(Struct):
    index: int | None = None
    id: str | int | None = None
    function: FunctionDelta | None = None


class Writing(Struct):
    """A call while it is written. It is told of once its name is known."""

    id: str
    server_id: str
    tool: str = ""
    pieces: list[str] = []
    whole: bool = False


class CallsFold:
    """The calls of one answer. Servers leave out ids, names and indices, or repeat them; what can be meant is taken."""

    def __init__(self) -> None:
        self.answer = "call"
        self.told = False
        self._writing: dict[int, Writing] = {}

    def feed(self, delta: CallDelta) -> list[AnyChunk]:
        chunks: list[AnyChunk] = []
        index = self._place(delta)
        call = self._writing.get(index)
        if call is None:
            chunks += self._settled()
            server_id = str(delta.id or "")
            call = self._writing[index] = Writing(
                id=server_id or f"{self.answer}_{index}", server_id=server_id, pieces=[]
            )
        if call.whole:
            return chunks
        return chunks + self._grow(call, delta.function or FunctionDelta())

    def end(self) -> list[AnyChunk]:
        """No more pieces come: every call is as whole as it will be."""
        return [chunk for call in self._writing.values() if not call.whole for chunk in self._close(call)]

    def _place(self, delta: CallDelta) -> int:
        """Which call a piece belongs to: an id and name of its own begin another, whatever the index says."""
        last = max(self._writing, default=-1)
        index = delta.index if delta.index is not None else last
        call = self._writing.get(index)
        if call is None:
            return max(index, 0) if delta.index is not None else last + 1
        named = delta.function is not None and bool(delta.function.name)
        other = bool(delta.id) and str(delta.id) != call.server_id and bool(call.tool)
        nameless = delta.index is None and not delta.id and named
        return last + 1 if named and (other or nameless) else index

    def _grow(self, call: Writing, function: FunctionDelta) -> list[AnyChunk]:
        chunks: list[AnyChunk] = []
        said = function.arguments
        text = said if isinstance(said, str) else "" if said is None else msgspec.json.encode(said).decode()
        if text:
            call.pieces.append(text)
        if not call.tool and function.name:
            call.tool = function.name
            self.told = True
            chunks.append(ToolInputStart(call_id=call.id, tool=call.tool))
            text = "".join(call.pieces)
        if text and call.tool:
            chunks.append(ToolInputDelta(call_id=call.id, text=text))
        return chunks

    def _settled(self) -> list[AnyChunk]:
        """Another call begins: those before it that are whole need not wait for it."""
        chunks: list[AnyChunk] = []
        for call in self._writing.values():
            if not call.whole and call.tool and _is_json("".join(call.pieces)):
                chunks += self._close(call)
        return chunks

    def _close(self, call: Writing) -> list[AnyChunk]:
        if not call.tool:
            raise nameless()
        call.whole = True
        raw = "".join(call.pieces)
        return [ToolCall(call_id=call.id, tool=call.tool, raw=raw if raw.strip() else "{}")]


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


OPEN: Final = "<think>"
CLOSE: Final = "</think>"

Kind = Literal["text", "reasoning"]
Piece = tuple[Kind, str]


class ThinkSplitter:
    """Feed it text, cut anywhere; it gives the pieces and what they are. What may yet become a tag is held back.

    OpenCode takes the tag for one wherever it stands, and an answer about such tags loses its words. We take it only
    where a thought can begin: before the first word of the text, or right after another thought.
    """

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._may_open = True
        self._after_tag = False

    def feed(self, text: str) -> list[Piece]:
        if not self._may_open and not self._inside:
            return [("text", text)]
        self._held += text
        pieces: list[Piece] = []
        while self._trimmed() and self._step(pieces):
            pass
        return pieces

    def _trimmed(self) -> bool:
        """Whether something is held, without the space that follows a tag."""
        if self._after_tag:
            self._held = self._held.lstrip()
            self._after_tag = not self._held
        return bool(self._held)

    def end(self) -> list[Piece]:
        """What was held back is what it looks like."""
        held, self._held = self._held, ""
        kind: Kind = "reasoning" if self._inside else "text"
        return [(kind, held)] if held and (self._inside or held.strip()) else []

    def _step(self, pieces: list[Piece]) -> bool:
        """Take one piece off what is held; false when more has to come first."""
        if self._inside:
            return self._think(pieces)
        bare = self._held.lstrip()
        if bare.startswith(OPEN):
            self._inside, self._after_tag, self._held = True, True, bare[len(OPEN) :]
            return True
        if OPEN.startswith(bare):
            return False
        self._may_open = False
        pieces.append(("text", self._held))
        self._held = ""
        return False

    def _think(self, pieces: list[Piece]) -> bool:
        thought, tag, rest = self._held.partition(CLOSE)
        if tag:
            if thought:
                pieces.append(("reasoning", thought))
            self._inside, self._after_tag, self._held = False, True, rest
            return True
        keep = _overlap(self._held)
        if len(self._held) > keep:
            pieces.append(("reasoning", self._held[: len(self._held) - keep]))
            self._held = self._held[len(self._held) - keep :]
        return False


def _overlap(text: str) -> int:
    """How many of the last letters may be the beginning of the closing tag."""
    for size in range(min(len(CLOSE) - 1, len(text)), 0, -1):
        if text.endswith(CLOSE[:size]):
            return size
    return 0


Counts = dict[str, Any]


def to_usage(raw: Counts) -> Usage:
    """Prompt tokens hold what the cache held, completion tokens hold the reasoning: here each counts once."""
    asked, answered = _details(raw, "prompt_tokens_details"), _details(raw, "completion_tokens_details")
    prompt, completion = count_in(raw, "prompt_tokens"), count_in(raw, "completion_tokens")
    read = min(prompt, _first(asked, "cached_tokens") or _first(raw, *READ))
    write = min(
        prompt - read, _first(asked, "cache_write_tokens", "cache_creation_tokens") or _first(raw, *WRITTEN)
    )
    reasoning = _first(answered, "reasoning_tokens") or _first(raw, "reasoning_tokens")
    apart = count_in(raw, "total_tokens") == prompt + completion + reasoning and reasoning > 0
    return Usage(
        input=prompt - read - write,
        # Some (xAI) count the reasoning beside the completion, and their total says so.
        output=completion if apart else max(0, completion - reasoning),
        reasoning=reasoning if apart else min(reasoning, completion),
        cache_read=read,
        cache_write=write,
        cost=_cost(raw.get("cost")),
        raw=raw or None,
    )


READ = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")
WRITTEN = ("cache_creation_input_tokens",)


def _details(raw: Counts, name: str) -> Counts:
    found = raw.get(name)
    return found if isinstance(found, dict) else {}


def _first(raw: Counts, *names: str) -> int:
    return next((count for name in names if (count := count_in(raw, name))), 0)


def _cost(told: Any) -> Decimal | None:
    """Dollars: a number, or an object with the total."""
    if isinstance(told, dict):
        told = told.get("total_cost")
    if told is None or isinstance(told, bool) or not isinstance(told, int | float | str | Decimal):
        return None
    try:
        cost = Decimal(str(told))
    except InvalidOperation:
        return None
    return cost if cost.is_finite() and cost >= 0 else None


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
