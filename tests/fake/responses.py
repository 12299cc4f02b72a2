"""A fake of OpenAI's Responses API."""

import base64
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from fake.responses_rules import RefusedError, check_request
from weft.provider.chunk import FinishReason, Usage
from weft.provider.scripted import AnyMove, End, Fail, Say, Think, UseTool, Wait
from weft.testing.fake_model_api import ReceivedRequest, ServerSentEvents, split_words

Json = dict[str, Any]

USED: Final = Usage(input=10, output=5)
CUT: Final[dict[FinishReason, str]] = {"length": "max_output_tokens", "content-filter": "content_filter"}


class ResponsesDialect(ServerSentEvents):
    """Recognises its own ids and encrypted thoughts, and refuses others."""

    def __init__(self) -> None:
        self._made = 0
        self._encrypted: set[str] = set()

    def problem(self, request: ReceivedRequest) -> str | None:
        if not request.path.endswith("/responses"):
            return f"Invalid URL (POST {request.path})"
        try:
            check_request(request.body, knows=self._encrypted.__contains__)
        except RefusedError as error:
            return str(error)
        return None

    def frames(self, moves: Sequence[AnyMove]) -> list[bytes]:
        return [frame(event) for event in self._events(moves)]

    def refusal(self, status: int, message: str) -> bytes:
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(status, "invalid_request_error")
        return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": None}})

    def failure(self, message: str) -> bytes:
        error = {"type": "service_unavailable_error", "code": "server_is_overloaded", "message": message}
        return frame({"type": "error", "error": error, "sequence_number": 2})

    def nameless_call(self) -> list[bytes]:
        item = {"type": "function_call", "id": "fc_0", "call_id": "call_0", "name": "", "arguments": "{}"}
        events: list[Json] = [
            {"type": "response.created", "response": self._response("in_progress", [])},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": self._response("completed", [item])},
        ]
        return [frame(event) for event in events]

    # --- an answer ---

    def _events(self, moves: Sequence[AnyMove]) -> Iterable[Json]:
        begun = self._response("in_progress", [])
        yield {"type": "response.created", "response": begun}
        yield {"type": "response.in_progress", "response": begun}
        output: list[Json] = []
        end = End()
        for move in moves:
            match move:
                case Say(text=text):
                    yield from self._message(text, output)
                case Think(text=text):
                    yield from self._reasoning(text, output)
                case UseTool():
                    yield from self._call(move, output)
                case Fail():
                    kind = "server_error" if move.retryable else "invalid_request_error"
                    yield {"type": "error", "error": {"type": kind, "code": None, "message": move.message}}
                    return
                case End():
                    end = move
                case Wait():
                    pass
        yield self._end(end, output)

    def _id(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}_{self._made}"

    def _message(self, text: str, output: list[Json]) -> Iterable[Json]:
        place: Json = {"output_index": len(output)}
        item: Json = {"id": self._id("msg"), "type": "message", "status": "in_progress", "role": "assistant"}
        part = {"type": "output_text", "annotations": [], "text": ""}
        inside = place | {"item_id": item["id"], "content_index": 0}
        yield {"type": "response.output_item.added", **place, "item": item | {"content": []}}
        yield {"type": "response.content_part.added", **inside, "part": part}
        for piece in split_words(text):
            yield {"type": "response.output_text.delta", **inside, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **inside, "text": text, "logprobs": []}
        yield {"type": "response.content_part.done", **inside, "part": part | {"text": text}}
        item |= {"status": "completed", "content": [part | {"text": text}]}
        output.append(item)
        yield {"type": "response.output_item.done", **place, "item": item}

    def _reasoning(self, text: str, output: list[Json]) -> Iterable[Json]:
        place: Json = {"output_index": len(output)}
        item: Json = {"id": self._id("rs"), "type": "reasoning", "summary": []}
        inside = place | {"item_id": item["id"], "summary_index": 0}
        part = {"type": "summary_text", "text": ""}
        yield {"type": "response.output_item.added", **place, "item": item}
        yield {"type": "response.reasoning_summary_part.added", **inside, "part": part}
        for piece in split_words(text):
            yield {"type": "response.reasoning_summary_text.delta", **inside, "delta": piece}
        yield {"type": "response.reasoning_summary_text.done", **inside, "text": text}
        yield {"type": "response.reasoning_summary_part.done", **inside, "part": part | {"text": text}}
        item |= {"summary": [part | {"text": text}], "encrypted_content": self._encrypt(text)}
        output.append(item)
        yield {"type": "response.output_item.done", **place, "item": item}

    def _encrypt(self, text: str) -> str:
        secret = "gAAAAAB" + base64.urlsafe_b64encode(f"{self._made}:{text}".encode()).decode()
        self._encrypted.add(secret)
        return secret

    def _call(self, call: UseTool, output: list[Json]) -> Iterable[Json]:
        raw = msgspec.json.encode(call.input).decode() if call.raw is None else call.raw
        place: Json = {"output_index": len(output)}
        item: Json = {"id": self._id("fc"), "type": "function_call", "status": "in_progress", "arguments": ""}
        item |= {"call_id": self._id("call"), "name": call.tool}
        inside = place | {"item_id": item["id"]}
        yield {"type": "response.output_item.added", **place, "item": item}
        for piece in split_words(raw):
            yield {"type": "response.function_call_arguments.delta", **inside, "delta": piece}
        yield {"type": "response.function_call_arguments.done", **inside, "arguments": raw}
        item |= {"status": "completed", "arguments": raw}
        output.append(item)
        yield {"type": "response.output_item.done", **place, "item": item}

    def _end(self, end: End, output: list[Json]) -> Json:
        usage = {"usage": to_counts(end.usage or USED)}
        if end.reason == "error":
            error = {"code": "server_error", "message": "The server had an error."}
            return {
                "type": "response.failed",
                "response": self._response("failed", output) | {"error": error},
            }
        if end.reason in ("stop", "tool-calls"):
            return {"type": "response.completed", "response": self._response("completed", output) | usage}
        cut = {"incomplete_details": {"reason": CUT.get(end.reason, end.reason)}}
        return {"type": "response.incomplete", "response": self._response("incomplete", output) | usage | cut}

    def _response(self, status: str, output: list[Json]) -> Json:
        return {
            "id": f"resp_{self._made}",
            "object": "response",
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": "gpt-5-2025-08-07",
            "output": list(output),
            "service_tier": "default",
            "store": False,
            "usage": None,
        }


def frame(event: Json) -> bytes:
    """Encode an event as it is streamed."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), msgspec.json.encode(event))


def to_counts(usage: Usage) -> Json:
    """Return token counts as OpenAI reports them: cached tokens are part of the input, reasoning is part of the output."""
    given = usage.input + usage.cache_read + usage.cache_write
    made = usage.output + usage.reasoning
    return {
        "input_tokens": given,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
        },
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": given + made,
    }
