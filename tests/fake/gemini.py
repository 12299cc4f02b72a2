"""A fake of Google's Gemini API."""

import base64
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from fake.gemini_rules import SKIP, RefusedError, check_request
from weft.provider.chunk import FinishReason, Usage
from weft.provider.scripted import AnyMove, End, Fail, Say, Think, UseTool, Wait
from weft.testing.fake_model_api import ReceivedRequest, ServerSentEvents, split_words

Json = dict[str, Any]

USED: Final = Usage(input=10, output=5)
PATH: Final = re.compile(r".*/models/([^/:]+):streamGenerateContent\?alt=sse")
STATUSES: Final = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
REASONS: Final[dict[FinishReason, str]] = {
    "stop": "STOP",
    "tool-calls": "STOP",
    "length": "MAX_TOKENS",
    "content-filter": "SAFETY",
    "error": "MALFORMED_FUNCTION_CALL",
    "other": "OTHER",
    "unknown": "FINISH_REASON_UNSPECIFIED",
}


class GeminiDialect(ServerSentEvents):
    """Recognises its own signatures and refuses others. With `ids`, calls get ids."""

    def __init__(self, *, ids: bool = False) -> None:
        self._ids = ids
        self._made = 0
        self._signed = {SKIP}

    def problem(self, request: ReceivedRequest) -> str | None:
        found = PATH.fullmatch(request.path)
        if found is None:
            return f"models/{request.path} is not found for API version v1beta"
        try:
            check_request(found[1], request.body)
            self._check_signatures(request.body)
        except RefusedError as error:
            return str(error)
        return None

    def _check_signatures(self, body: Json) -> None:
        for content in body["contents"]:
            for part in content["parts"]:
                if part.get("thoughtSignature", SKIP) not in self._signed:
                    raise RefusedError("Corrupted thought signature.")

    def frames(self, moves: Sequence[AnyMove]) -> list[bytes]:
        return [frame(event) for event in self._events(moves)]

    def refusal(self, status: int, message: str) -> bytes:
        error = {"code": status, "message": message, "status": STATUSES.get(status, "INVALID_ARGUMENT")}
        return msgspec.json.encode({"error": error})

    def failure(self, message: str) -> bytes:
        return frame({"error": {"code": 503, "message": message, "status": "UNAVAILABLE"}})

    def nameless_call(self) -> list[bytes]:
        return [frame(self._chunk([{"functionCall": {"name": "", "args": {}}}], finishReason="STOP"))]

    # --- an answer ---

    def _events(self, moves: Sequence[AnyMove]) -> Iterable[Json]:
        self._made += 1
        end = End()
        signed = False
        yield self._chunk([{"text": ""}])
        for move in moves:
            match move:
                case Say(text=text):
                    for word in split_words(text):
                        yield self._chunk([{"text": word}])
                case Think(text=text):
                    for word in split_words(text):
                        yield self._chunk([{"text": word, "thought": True}])
                case UseTool():
                    # Of several calls in an answer the first is signed.
                    yield self._chunk([self._call(move, sign=not signed)])
                    signed = True
                case Fail():
                    code, status = (500, "INTERNAL") if move.retryable else (400, "INVALID_ARGUMENT")
                    yield {"error": {"code": move.status or code, "message": move.message, "status": status}}
                    return
                case End():
                    end = move
                case Wait():
                    pass
        last = {"text": ""} if signed else {"text": "", "thoughtSignature": self._sign("end")}
        yield self._chunk([last], finishReason=REASONS[end.reason]) | {
            "usageMetadata": to_counts(end.usage or USED)
        }

    def _call(self, call: UseTool, *, sign: bool) -> Json:
        args = call.input if call.raw is None else msgspec.json.decode(call.raw)
        function_call: Json = {"name": call.tool, "args": args}
        if self._ids:
            self._made += 1
            function_call["id"] = f"fc-{self._made}"
        return {"functionCall": function_call} | ({"thoughtSignature": self._sign(call.tool)} if sign else {})

    def _sign(self, text: str) -> str:
        signature = base64.b64encode(f"signed {self._made}: {text}".encode()).decode()
        self._signed.add(signature)
        return signature

    def _chunk(self, parts: list[Json], **more: str) -> Json:
        candidate = {"content": {"parts": parts, "role": "model"}, **more, "index": 0}
        return {
            "candidates": [candidate],
            "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 1},
            "modelVersion": "gemini-3-pro-preview",
            "responseId": f"resp{self._made}",
        }


def frame(event: Json) -> bytes:
    """Encode an event as it is streamed: without a name, and with Google's line endings."""
    return b"data: %b\r\n\r\n" % msgspec.json.encode(event)


def to_counts(usage: Usage) -> Json:
    """Return token counts as Google reports them: cached tokens are part of the prompt, thoughts are separate."""
    prompt = usage.input + usage.cache_read
    counts = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": usage.output,
        "totalTokenCount": prompt + usage.output + usage.reasoning,
        "cachedContentTokenCount": usage.cache_read,
        "thoughtsTokenCount": usage.reasoning,
    }
    return {name: count for name, count in counts.items() if count}
