"""Turn pydantic-ai's stream events into chunks, and its exceptions into `ProviderError`."""

from typing import Any, Final

import httpx2
import msgspec

from weft.errors import ProviderError
from weft.provider.anthropic.request import get_trailing_space
from weft.provider.catalog.local import find_refused_connection
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
from weft.provider.endpoint import ModelEndpoint
from weft.provider.faults import (
    make_broken_connection_error,
    make_error,
    make_incomplete_error,
    make_nameless_call_error,
    make_silence_error,
    make_unreadable_error,
    parse_error,
)
from weft.provider.pydantic_ai.request import METADATA_KEY, PydanticAiLibrary, find_missing_key

FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content-filter",
    "tool_call": "tool-calls",
    "error": "error",
}


class PydanticAiFold:
    """Turns the events of one answer into chunks. `end` takes the stream when all its events were fed."""

    def __init__(self) -> None:
        self._started = False
        self._has_calls = False
        self._open: dict[int, str] = {}  # ids of the open parts
        self._part_count = 0

    def feed(self, event: Any) -> list[AnyChunk]:
        match event.event_kind:
            case "part_delta":
                return self._add_delta(event.index, event.delta)
            case "part_start":
                return [*self._emit_started(), *self._open_part(event.index, event.part)]
            case "part_end":
                return self._close_part(event.index, event.part)
            case _:
                return []

    def end(self, answer: Any) -> list[AnyChunk]:
        response = answer.get()
        # pydantic-ai treats a stream that broke off as complete. Only its OpenAI client reports it, by this attribute.
        if response.finish_reason is None or not getattr(answer, "_has_finish_reason", True):
            raise make_incomplete_error("the answer broke off before its end")
        reason = FINISH_REASONS.get(response.finish_reason, "other")
        if self._has_calls and reason in {"stop", "other"}:
            reason = "tool-calls"
        if reason == "tool-calls" and not self._has_calls:
            raise make_nameless_call_error()
        raw = str((response.provider_details or {}).get("finish_reason") or response.finish_reason)
        return [
            *self._emit_started(),
            Finished(reason=reason, raw_reason=raw, usage=to_usage(response.usage)),
        ]

    def _emit_started(self) -> list[AnyChunk]:
        if self._started:
            return []
        self._started = True
        return [Started()]

    def _open_part(self, index: int, part: Any) -> list[AnyChunk]:
        self._part_count += 1
        match part.part_kind:
            case "text":
                id = self._open[index] = f"text-{self._part_count}"
                return [TextStart(id=id), *([TextDelta(id=id, text=part.content)] if part.content else [])]
            case "thinking":
                id = self._open[index] = f"reasoning-{self._part_count}"
                deltas = [ReasoningDelta(id=id, text=part.content)] if part.content else []
                return [ReasoningStart(id=id), *deltas]
            case "tool-call":
                if not part.tool_name:
                    raise make_nameless_call_error()
                self._has_calls = True
                id = self._open[index] = part.tool_call_id
                arguments = _encode_arguments(part.args)
                input_deltas = [ToolInputDelta(call_id=id, text=arguments)] if arguments else []
                return [ToolInputStart(call_id=id, tool=part.tool_name), *input_deltas]
            case _:
                return []  # tools that the provider runs itself are ignored

    def _add_delta(self, index: int, delta: Any) -> list[AnyChunk]:
        id = self._open.get(index)
        if id is None:
            return []
        match delta.part_delta_kind:
            case "text":
                return [TextDelta(id=id, text=delta.content_delta)] if delta.content_delta else []
            case "thinking":
                return [ReasoningDelta(id=id, text=delta.content_delta)] if delta.content_delta else []
            case "tool_call":
                arguments = _encode_arguments(delta.args_delta)
                return [ToolInputDelta(call_id=id, text=arguments)] if arguments else []
            case _:
                return []

    def _close_part(self, index: int, part: Any) -> list[AnyChunk]:
        id = self._open.pop(index, None)
        if id is None:
            return []
        match part.part_kind:
            case "text":
                return [TextEnd(id=id, metadata=_to_metadata(part))]
            case "thinking":
                return [ReasoningEnd(id=id, metadata=_to_metadata(part))]
            case _:
                raw = _encode_arguments(part.args) or "{}"
                return [ToolCall(call_id=id, tool=part.tool_name, raw=raw, metadata=_to_metadata(part))]


def _encode_arguments(args: str | dict[str, Any] | None) -> str:
    if isinstance(args, dict):
        return msgspec.json.encode(args).decode() if args else ""
    return args or ""


def _to_metadata(part: Any) -> Metadata | None:
    """Return the data that the provider wants back, as pydantic-ai holds it."""
    names = ("id", "signature", "provider_name", "provider_details")
    fields = {name: value for name in names if (value := getattr(part, name, None))}
    if not fields.keys() - {"provider_name"}:
        return None
    tail = get_trailing_space("", part.content) if part.part_kind == "thinking" else ""
    return {METADATA_KEY: fields | ({"tail": tail} if tail else {})}


def to_usage(report: Any) -> Usage:
    """Convert token counts. pydantic-ai includes cached tokens in the input, and thinking in the output."""
    details = dict(report.details)
    cache_read, cache_write = report.cache_read_tokens, report.cache_write_tokens
    reasoning = min(details.get("reasoning_tokens", 0), report.output_tokens)
    raw = {"input_tokens": report.input_tokens, "output_tokens": report.output_tokens, **details}
    return Usage(
        input=max(0, report.input_tokens - cache_read - cache_write),
        output=report.output_tokens - reasoning,
        reasoning=reasoning,
        cache_read=cache_read,
        cache_write=cache_write,
        raw=raw | {"cache_read_tokens": cache_read, "cache_write_tokens": cache_write},
    )


def to_provider_error(error: Exception, ai: PydanticAiLibrary, endpoint: ModelEndpoint) -> ProviderError:
    """Turn an exception of pydantic-ai, or of a library below it, into a `ProviderError`."""
    errors = ai.errors
    if isinstance(error, ProviderError):
        return error
    if isinstance(error, errors.ModelHTTPError):
        body = error.body if isinstance(error.body, str) else msgspec.json.encode(error.body).decode()
        return parse_error(error.status_code, error.headers or {}, body)
    if isinstance(error, errors.ModelTimeoutError | errors.ModelRequestTimeout | TimeoutError):
        return make_silence_error(str(error) or "the model did not answer in time")
    if isinstance(error, errors.ModelConnectionError | httpx2.TransportError | ConnectionError):
        refusal = find_refused_connection(endpoint.base_url, error, endpoint.provider_id)
        return refusal or make_broken_connection_error(f"the connection broke off: {error}")
    if isinstance(error, errors.UnexpectedModelBehavior):
        return make_incomplete_error(f"the answer cannot be parsed: {error}")
    if isinstance(error, errors.ModelAPIError) and not isinstance(error.__cause__, ValueError):
        document = error.body if isinstance(error.body, dict) else {"message": str(error)}
        return parse_error(None, {}, msgspec.json.encode(document, enc_hook=str))
    if isinstance(error, errors.UserError):
        return find_missing_key(error, endpoint.provider_id) or make_error("bad-request", str(error))
    return make_unreadable_error(f"the answer cannot be parsed: {error}")
